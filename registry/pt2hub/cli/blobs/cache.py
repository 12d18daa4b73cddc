"""`pt2hub cache`: what this machine has pulled."""

from __future__ import annotations

import time
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pt2hub.cli import panels
from pt2hub.cli.output import emit, shows_progress
from pt2hub.domain.digests import hex_of
from pt2hub.rendering.quantities import format_age, format_bytes, format_count

if TYPE_CHECKING:
    from rich.console import Console

    from pt2hub.client.blobs.folder import BlobFolder
    from pt2hub.client.blobs.inventory import (
        CachedArtifact,
        CachedBlob,
        CachedDownload,
        DamagedFile,
        Inventory,
    )

_SHOWN_DIGITS = 12


def register(app: typer.Typer) -> None:
    """Add the cache commands to the app."""
    cache = typer.Typer(
        help="Files that this machine has pulled.", no_args_is_help=True, suggest_commands=False
    )
    panels.add(cache, ls, verify, prune)
    app.add_typer(cache, name="cache", rich_help_panel=panels.USING)


@panels.command(None, "pt2hub cache ls")
def ls() -> None:
    """List the artifacts in the cache, the most recently used first."""
    found = [(folder, _inventory(folder)) for folder in _folders()]
    document = {"folders": [_describe(folder, inventory) for folder, inventory in found]}
    emit(document, lambda console: _print_lists(console, found))


@panels.command(None, "pt2hub cache verify")
def verify() -> None:
    """Hash every file in the cache.

    Damaged files are named, and the next pull replaces them. The exit code is 1 then.
    """
    from pt2hub.client.http.transfers import meter

    damaged: list[DamagedFile] = []
    files = 0
    for folder in _folders():
        inventory = _inventory(folder)
        files += len(inventory.blobs)
        shown = shows_progress()
        with meter(f"verifying {folder.root}", inventory.size, shown) as seen:
            damaged += inventory.verify(seen)
        damaged += _exposed(folder)
    document = {"files": files, "damaged": [asdict(item) for item in damaged]}
    emit(document, lambda console: _print_damaged(console, files, damaged))
    if damaged:
        raise typer.Exit(1)


@panels.command(None, "pt2hub cache prune --max-size 20GiB")
def prune(
    *,
    max_size: Annotated[
        str | None, typer.Option(help="Largest size that the cache may keep, such as 20GiB.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would be removed.")] = False,
) -> None:
    """Remove interrupted downloads and artifacts not used for longest.

    Without --max-size no artifact is removed. A loaded model keeps its files.
    """
    limit = _parse_limit(max_size)
    removed: list[CachedBlob] = []
    interrupted: list[CachedDownload] = []
    kept = 0
    for folder in _folders():
        if folder.is_own() and folder.root.exists():
            inventory = _inventory(folder)
            gone = inventory.prune(limit, dry_run=dry_run)
            removed += gone
            kept += inventory.size - sum(blob.size for blob in gone)
            interrupted += [item for item in inventory.downloads if not item.active]
    freed = sum(blob.size for blob in removed) + sum(item.received for item in interrupted)
    document = {
        "removed": [{"digest": blob.digest, "bytes": blob.size} for blob in removed],
        "interrupted": [{"digest": item.digest, "bytes": item.received} for item in interrupted],
        "freed_bytes": freed,
        "kept_bytes": kept,
        "dry_run": dry_run,
    }
    verb = "Would remove" if dry_run else "Removed"
    what = format_count(len(removed), "file")
    if interrupted:
        what += f" and {format_count(len(interrupted), 'interrupted download')}"
    text = f"{verb} {what} ({format_bytes(freed)}); {format_bytes(kept)} stay."
    emit(document, lambda console: console.print(text))


def _folders() -> list[BlobFolder]:
    from pt2hub.client.blobs.cache import BlobCache
    from pt2hub.client.config import ClientConfig

    config = ClientConfig.from_environ()
    return BlobCache(config.cache, shared=config.shared_cache).folders


def _inventory(folder: BlobFolder) -> Inventory:
    from pt2hub.client.blobs.inventory import Inventory
    from pt2hub.errors import HomeUnusable

    try:
        return Inventory(folder)
    except PermissionError as exc:
        raise HomeUnusable(
            "Cannot read the cache: it belongs to another user",
            where=str(folder.root),
            hint="Run it as that user, or set PT2HUB_CACHE; PT2HUB_SHARED_CACHE makes a cache that all may read.",
        ) from exc


def _parse_limit(text: str | None) -> int | None:
    from pt2hub.domain.sizes import SIZE_HINT, parse_size
    from pt2hub.errors import InvalidInput

    limit = parse_size(text) if text is not None else None
    if text is not None and limit is None:
        raise InvalidInput(f"Invalid size {text[:80]!r}", where="--max-size", hint=SIZE_HINT)
    return limit


def _exposed(folder: BlobFolder) -> list[DamagedFile]:
    """Return the folders that other users can write to."""
    from pt2hub.client.blobs.inventory import DamagedFile

    return [
        DamagedFile(str(path), f"others can write to it; correct it with: chmod go-w {path}")
        for path in folder.strangers()
    ]


def _describe(folder: BlobFolder, inventory: Inventory) -> dict[str, Any]:
    return {
        "path": str(folder.root),
        "bytes": inventory.size,
        "artifacts": [
            {
                "version": artifact.version,
                "target": artifact.target,
                "artifact": artifact.digest,
                "bytes": artifact.size,
                "missing_files": artifact.missing,
                "used_at": _iso(artifact.used),
            }
            for artifact in inventory.artifacts
        ],
        "other_files": len(inventory.others),
        "other_bytes": sum(blob.size for blob in inventory.others),
        "downloads": [asdict(item) for item in inventory.downloads],
        "strange": inventory.strange,
    }


def _print_lists(console: Console, found: list[tuple[BlobFolder, Inventory]]) -> None:
    from pt2hub.cli.tables import print_table

    for folder, inventory in found:
        console.print(f"{folder.root}  ({format_bytes(inventory.size)})", style="bold")
        rows = [_row(artifact) for artifact in inventory.artifacts]
        print_table(
            console, ["VERSION", "TARGET", "SIZE", "USED", "ARTIFACT"], rows, empty="It has no artifacts."
        )
        for line in _notes(inventory):
            console.print(line)


def _row(artifact: CachedArtifact) -> list[str]:
    return [
        artifact.version or "unknown",
        artifact.target,
        format_bytes(artifact.size) + (" (incomplete)" if artifact.missing else ""),
        f"{format_age(max(0.0, time.time() - artifact.used))} ago",
        f"sha256:{hex_of(artifact.digest)[:_SHOWN_DIGITS]}",
    ]


def _notes(inventory: Inventory) -> list[str]:
    notes = []
    if others := inventory.others:
        size = format_bytes(sum(blob.size for blob in others))
        notes.append(f"{format_count(len(others), 'other file')} ({size})")
    for download in inventory.downloads:
        state = "under way" if download.active else "interrupted; a pull continues it"
        digits = hex_of(download.digest)[:_SHOWN_DIGITS]
        notes.append(f"download of sha256:{digits}: {format_bytes(download.received)}, {state}")
    if inventory.strange:
        notes.append(f"not pt2hub's: {', '.join(inventory.strange[:5])}")
    return notes


def _print_damaged(console: Console, files: int, damaged: list[DamagedFile]) -> None:
    console.print(f"{format_count(files, 'file')} verified, {len(damaged)} damaged")
    for item in damaged:
        console.print(f"{item.path}: {item.reason}")
    if damaged:
        console.print("The next pull replaces damaged files.")


def _iso(seconds: float) -> str:
    from datetime import UTC, datetime

    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")
