"""`pt2hub delete`."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, TypedDict

import click
import typer

from pt2hub.cli import panels
from pt2hub.cli.output import emit, one_line

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from pt2hub.client.client import Client
    from pt2hub.wire.retention import DeletionView

_MAX_LISTED = 10
"""Versions that a message has an option for."""
_MAX_NAMED = 5
"""Versions that a line names."""
_KEPT = 1
"""Exit code of a dry run of a deletion that would be refused."""


class ForcedOptions(TypedDict):
    """What a forced deletion does with bytes that other versions need."""

    also: list[str]
    also_sharing: bool
    keep_shared: bool


@panels.command(
    panels.PUBLISHING,
    "pt2hub delete vision/resnet18@3",
    'pt2hub delete vision/resnet18@3 --yes --reason "superseded"',
    'pt2hub delete vision/resnet18@3 --force --yes --reason "leaked weights" --also vision/resnet18@4',
    'pt2hub delete vision/resnet18@3 --force --yes --reason "leaked weights" --also-sharing',
)
def delete(  # noqa: PLR0913  # each is an argument or option of the command line
    what: Annotated[
        str,
        typer.Argument(
            metavar="WHAT",
            help="A version (team/name@3), a model (team/name), a build's id, or a blob (sha256:...).",
        ),
    ],
    *,
    yes: Annotated[
        bool, typer.Option("--yes", help="Delete it; without this, only show what would go.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only show what would go; this is the default.")
    ] = False,
    reason: Annotated[
        str | None, typer.Option(help="Reason, which its tombstone keeps; required with --yes.")
    ] = None,
    force: Annotated[
        bool,
        typer.Option(
            "--force",
            help="Remove a version's bytes at once, with aliases on it, and refuse to store them again.",
        ),
    ] = False,
    also: Annotated[
        list[str] | None,
        typer.Option(metavar="MODEL@N", help="With --force: delete this version too; repeat it for more."),
    ] = None,
    also_sharing: Annotated[
        bool,
        typer.Option(
            "--also-sharing",
            help="With --force: delete every version that shares its bytes, and those that share theirs.",
        ),
    ] = False,
    keep_shared: Annotated[
        bool,
        typer.Option("--keep-shared", help="With --force: leave bytes served that other versions need."),
    ] = False,
) -> None:
    """Show what a deletion removes and what it keeps; --yes deletes.

    It requires an admin token. Numbers of deleted versions are not used again.
    What an alias pins or would roll back to is kept, and so are unfinished builds.
    """
    from pt2hub.client.client import Client

    if dry_run and yes:
        raise click.UsageError("--dry-run and --yes contradict each other.")
    if yes and not (reason or "").strip() and not what.startswith("sha256:"):
        raise click.UsageError('--reason "..." is required with --yes; the tombstone keeps it.')
    if (also or also_sharing or keep_shared) and not force:
        raise click.UsageError("--also, --also-sharing and --keep-shared require --force.")
    if force and "@" not in what:
        raise click.UsageError("--force is only for a version, such as team/name@3.")
    with Client() as client:
        forced: ForcedOptions = {"also": also or [], "also_sharing": also_sharing, "keep_shared": keep_shared}
        view = _delete(client, what, reason or "", dry_run=not yes, force=force, forced=forced)
    open_blobs = [blob for blob in view.shared if blob.undecided and not keep_shared]
    undecided = force and bool(open_blobs) and not view.deleted
    emit(view, lambda out: _print_deletion(out, view, undecided=undecided))
    if view.kept or undecided:
        raise typer.Exit(_KEPT)


def _delete(
    client: Client, what: str, reason: str, *, dry_run: bool, force: bool, forced: ForcedOptions
) -> DeletionView:
    from pt2hub.cli.references import number_of
    from pt2hub.domain.digests import DIGEST_PATTERN, Digest
    from pt2hub.errors import InvalidInput, StillNeeded

    retention = client.retention
    if what.startswith("sha256:"):
        if not re.fullmatch(DIGEST_PATTERN, what):
            raise InvalidInput(
                f"Invalid digest {what!r:.100}", where="WHAT", hint="Write sha256: and 64 hexadecimal digits."
            )
        return retention.delete_blob(Digest(what), dry_run=dry_run)
    if "@" in what:
        model, number = number_of(client, what)
        try:
            return retention.delete_version(
                model, number, reason=reason, dry_run=dry_run, force=force, **forced
            )
        except StillNeeded as exc:
            if "versions" not in exc.context:
                raise
            raise exc.replace(hint=_choices(exc.context["versions"])) from exc
    if "/" in what:
        return retention.delete_model(what, reason=reason, dry_run=dry_run)
    return retention.delete_build(what, reason=reason, dry_run=dry_run)


def _choices(versions: Sequence[str]) -> str:
    """Return how to say what happens to the bytes that versions need."""
    if not versions:
        return "To leave the shared bytes served: --keep-shared."
    also = " ".join(f"--also {name}" for name in versions)
    also = also if len(versions) <= _MAX_LISTED else f"--also-sharing ({len(versions):,} versions)"
    return f"To delete what shares its bytes too: {also}. To leave the shared bytes served: --keep-shared."


def _print_deletion(out: Console, view: DeletionView, *, undecided: bool) -> None:
    """Print a deletion.

    Args:
        undecided: Whether it is forced and does not say what happens to shared bytes.
    """
    from pt2hub.rendering.quantities import format_bytes, format_count

    for item in view.kept:  # first: with it, nothing of what follows goes
        for reason in item.reasons:
            out.print(one_line(f"{item.name} is kept because {reason}"))
    verb = "deleted" if view.deleted else "would go" if view.kept else "goes"
    for line in view.goes:
        out.print(one_line(f"{verb}: {line}"))
    for note in view.notes:
        out.print(one_line(f"note: {note}"))
    if not view.notes:
        for blob in view.shared:
            others = _shorten(blob.needed_by) or "other versions"
            title = blob.title or f"{blob.what} {blob.digest[:19]} ({format_bytes(blob.size)})"
            out.print(one_line(f"stays: {title}, needed by {others}"))
    if view.refused:
        out.print(
            f"refused from {'now' if view.deleted else 'then'} on: {format_count(len(view.refused), 'digest')}"
        )
    out.print(_outcome(view, undecided=undecided))


def _shorten(names: Sequence[str]) -> str:
    """Return the first of many names, and how many follow."""
    more = f" and {len(names) - _MAX_NAMED} more" if len(names) > _MAX_NAMED else ""
    return ", ".join(names[:_MAX_NAMED]) + more


def _outcome(view: DeletionView, *, undecided: bool) -> str:
    """Return what happened, or what would."""
    from pt2hub.rendering.quantities import format_bytes, format_count

    size = f"{format_bytes(view.freed_bytes)} in {format_count(view.freed_blobs, 'blob')} that nothing else needs"
    if view.kept:
        return "Nothing was deleted, and --yes would refuse it."
    if undecided:
        others = dict.fromkeys(name for blob in view.shared if blob.undecided for name in blob.needed_by)
        return f"Nothing was deleted, and --yes would refuse it. {_choices(list(others))}"
    if view.deleted:
        return f"Freed {size}{'' if view.forced else '; the collector removes them after its grace'}."
    return f"Would free {size}. Nothing was deleted: add --yes to delete it."
