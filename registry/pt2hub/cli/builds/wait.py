"""`pt2hub wait`: waits until a version is ready, or an alias moves."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import click
import typer

from pt2hub.cli import panels
from pt2hub.cli.builds import control
from pt2hub.cli.output import emit, is_quiet, one_line
from pt2hub.cli.publishing.wait_option import Until
from pt2hub.cli.references import Reference  # noqa: TC001  # typer reads annotations when it runs
from pt2hub.domain.builds import BuildState
from pt2hub.domain.codec import encode
from pt2hub.errors import NotFound

if TYPE_CHECKING:
    from rich.console import Console

    from pt2hub.wire.responses import AliasMoves, BuildView, VersionView

_FAILED = 1


@panels.command(
    panels.PUBLISHING,
    "pt2hub wait vision/resnet18@3",
    "pt2hub wait vision/resnet18@3 --until measured --timeout 1800",
    "pt2hub wait vision/resnet18@3 --target torch2.13-cpu-x86_64_v3",
    "pt2hub wait vision/resnet18 --alias prod",
    "pt2hub wait vision/resnet18 --alias prod --at 7 --timeout 600",
)
def wait(  # noqa: PLR0913  # each is an argument or option of the command line
    reference: Reference,
    *,
    until: Annotated[Until, typer.Option(help="What to wait for.")] = Until.READY,
    target: Annotated[
        str | None, typer.Option(help="Wait for the build of this target only; not with --until measured.")
    ] = None,
    alias: Annotated[
        str | None, typer.Option(help="Wait until this alias of the model moves; it need not exist yet.")
    ] = None,
    at: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="N",
            help="With --alias: wait until it was moved to this version, or is there already.",
        ),
    ] = None,
    after: Annotated[
        int | None,
        typer.Option(
            min=0,
            metavar="MOVE",
            help="With --alias: number of the last known move (last in --json); later ones count.",
        ),
    ] = None,
    timeout: Annotated[
        float | None, typer.Option(min=0, metavar="SECONDS", help="Give up after this time.")
    ] = None,
) -> None:
    """Wait until a version is ready or measured, or an alias moves.

    The builds of all targets of the version have ended then. The exit code is 0 if all of them succeeded, or the alias moved, and 1 if not or the time is over. Ctrl-C stops waiting only.
    """
    if alias is not None:
        if target is not None or until is Until.MEASURED:
            raise click.UsageError("--alias cannot be combined with --target and --until.")
        _wait_for_alias(reference, alias, at, after, timeout)
        return
    if at is not None or after is not None:
        raise click.UsageError("--at and --after require --alias.")
    _wait_for_version(reference, until, target, timeout)


def _wait_for_alias(
    reference: str, alias: str, at: int | None, after: int | None, timeout: float | None
) -> None:
    from pt2hub.cli.references import model_name
    from pt2hub.client.client import Client

    with Client() as client:
        found = client.aliases.wait(model_name(reference), alias, at=at, after=after, timeout=timeout)
    emit(found, lambda out: _print_moves(out, found))


def _print_moves(out: Console, found: AliasMoves) -> None:
    name = f"{found.model}@{found.name}"
    for move in found.moves:
        before, after = (f"version {number}" if number else "nothing" for number in (move.before, move.after))
        out.print(
            f"{name} moved from {before} to {after}, by {one_line(move.by)}: {one_line(move.reason)}",
            markup=False,
            highlight=False,
        )
    now = f"is on version {found.number}" if found.number else "does not exist"
    out.print(f"{name} {now}", markup=False, highlight=False)


def _wait_for_version(reference: str, until: Until, target: str | None, timeout: float | None) -> None:
    from pt2hub.cli.references import any_version
    from pt2hub.client.builds.progress import progress
    from pt2hub.client.client import Client

    if target is not None and until is Until.MEASURED:
        raise click.UsageError("--target cannot be combined with --until measured.")
    with Client() as client, progress(quiet=is_quiet()) as display:
        version = any_version(client, reference)
        if target is None:
            found = client.versions.follow(version, display, timeout=timeout, until=until.value)
        else:
            build = _choose(version, target)
            client.builds.follow([build], display, timeout=timeout)
            found = replace(version, builds=(client.builds.get(build.id),))
    stopped = [build for build in found.builds if build.state != BuildState.SUCCEEDED]
    error = control.first_error(stopped) if stopped else None
    document: dict[str, Any] = encode(found) | ({"error": error} if error else {})
    emit(document, lambda out: _print(out, found))
    if stopped:
        raise typer.Exit(_FAILED)


def _choose(version: VersionView, target: str) -> BuildView:
    """Return the build of a version for a target.

    Raises:
        NotFound: The version has no such build.
    """
    for build in version.builds:
        if build.target == target:
            return build
    names = ", ".join(build.target for build in version.builds)
    raise NotFound(
        f"{version.model}@{version.number} has no build for {target[:80]}",
        where="target",
        hint=f"Its targets: {names or 'none'}.",
    )


def _print(out: Console, version: VersionView) -> None:
    from pt2hub.cli.artifacts.show import check_compatibility, print_version

    print_version(out, version, check_compatibility(version))
