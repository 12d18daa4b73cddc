"""`pt2hub tree` and `pt2hub verify`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from pt2hub.cli import panels
from pt2hub.cli.artifacts.lock import LockFile, split_targets  # typer reads annotations when it runs
from pt2hub.cli.output import emit
from pt2hub.domain.codec import encode
from pt2hub.rendering.quantities import format_bytes, format_count

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console
    from rich.tree import Tree

    from pt2hub.client.blobs.cache import BlobCache
    from pt2hub.client.lock.lock_verification import VerifiedArtifact
    from pt2hub.domain.locks import Lock, LockedArtifact, LockedModel

_FAILED = 1
_SHORT = 19
"""Characters of a shortened digest: `sha256:` and 12 digits."""


@panels.command(panels.USING, "pt2hub tree", "pt2hub tree --json")
def tree(*, path: LockFile = None) -> None:
    """Show what a lock file pins, and what of it is in the cache.

    Asks no server.
    """
    from pt2hub.client.client import Client
    from pt2hub.client.lock.declarations import Project
    from pt2hub.client.lock.lock_file import read_lock

    project = Project.find(path)
    lock = read_lock(project.lock)
    with Client() as client:
        cache = client.locks.cache()
    document = {"lock": str(project.lock), **encode(lock)}
    for model, shown in zip(lock.models, document["models"], strict=True):
        for artifact, place in zip(model.artifacts, shown["artifacts"], strict=True):
            place["cached"] = _is_cached(artifact, cache)
    emit(document, lambda out: _print_tree(out, lock, cache))


@panels.command(panels.USING, "pt2hub verify", "pt2hub verify --targets torch2.11-cu130-sm90")
def verify(
    *,
    targets: Annotated[
        list[str] | None,
        typer.Option(
            "--targets",
            metavar="TARGET,...",
            help="Only these targets, separated by commas; all must be there.",
        ),
    ] = None,
    path: LockFile = None,
) -> None:
    """Hash every cached file of what is locked.

    Compares the files with the lock file, and asks no server. The exit code is 1 if a file is damaged or missing, or if none of a reference's artifacts is in the cache.
    """
    from pt2hub.client.client import Client
    from pt2hub.client.lock.declarations import Project
    from pt2hub.client.lock.lock_file import read_lock
    from pt2hub.client.lock.lock_verification import find_failures, verify_lock

    project, names = Project.find(path), split_targets(targets) or ()
    with Client() as client:
        found = list(verify_lock(read_lock(project.lock), client.locks.cache(), names))
    failed = find_failures(found, required=names)
    document: dict[str, Any] = {"lock": str(project.lock), "artifacts": encode(found), "failed": failed}
    emit(document, lambda out: _print_verification(out, found, failed))
    if failed:
        raise typer.Exit(_FAILED)


def _is_cached(artifact: LockedArtifact, cache: BlobCache) -> bool:
    return all(cache.holds(blob.digest) for blob in artifact.blobs.values())


def _print_tree(out: Console, lock: Lock, cache: BlobCache) -> None:
    from rich.tree import Tree

    place = f", {lock.storage.url}" if lock.storage else ""
    root = Tree(f"{lock.server}{place}")
    for model in lock.models:
        _add_model(root, model, cache)
    out.print(root)


def _add_model(root: Tree, model: LockedModel, cache: BlobCache) -> None:
    from rich.text import Text  # a file's name is no markup

    branch = root.add(f"{model.reference}  version {model.version}")
    for artifact in model.artifacts:
        size = sum(blob.size for blob in artifact.blobs.values())
        state = "in the cache" if _is_cached(artifact, cache) else "not in the cache"
        leaf = branch.add(f"{artifact.target}  {format_bytes(size)}  {state}")
        for name, blob in artifact.blobs.items():
            leaf.add(f"{name.ljust(8)}  {blob.digest[:_SHORT]}  {format_bytes(blob.size)}")
    if model.files:
        leaf = branch.add("attached files")
        for file in model.files:
            leaf.add(Text(f"{file.name}  {file.digest[:_SHORT]}  {format_bytes(file.size)}"))


def _print_verification(out: Console, found: Sequence[VerifiedArtifact], failed: Sequence[str]) -> None:
    from pt2hub.cli.tables import print_table

    rows = [
        (
            item.reference,
            item.target,
            item.state,
            format_bytes(item.bytes),
            item.reason or ", ".join(item.files),
        )
        for item in found
    ]
    print_table(out, ("REFERENCE", "TARGET", "STATE", "HASHED", "FILES"), rows, empty="Nothing is locked.")
    if failed:
        wrong = sorted({item.reference for item in found if item.state == "mismatch"})
        cures = [f"pt2hub lock {' '.join(f'--upgrade {name}' for name in wrong)}"] if wrong else []
        cures += ["pt2hub sync --frozen"] if set(failed) - set(wrong) else []
        out.print(f"Not intact: {', '.join(failed)}. To repair: {'; '.join(cures)}")
    else:
        out.print(f"{format_count(len({item.reference for item in found}), 'reference')} verified")
