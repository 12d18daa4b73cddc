"""`pt2hub cancel` and `pt2hub retry`."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, Any

import click
import typer

from pt2hub.cli import panels
from pt2hub.cli.output import emit
from pt2hub.domain.builds import HIGHEST_PRIORITY, LOWEST_PRIORITY, UNFINISHED, BuildState

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rich.console import Console

    from pt2hub.client.client import Client
    from pt2hub.wire.responses import BuildView

_OPEN = frozenset(UNFINISHED)
_REPEATABLE = frozenset({BuildState.FAILED, BuildState.CANCELLED})
_What = Annotated[
    str,
    typer.Argument(
        metavar="ID|MODEL@REF", help="The id of a build, as publish and builds print it, or a version."
    ),
]
_Target = Annotated[str | None, typer.Option(help="The build to take where the version has several.")]
Priority = typer.Option(
    min=LOWEST_PRIORITY,
    max=HIGHEST_PRIORITY,
    help="Builds with a higher priority run first; equal ones run in the order they were queued.",
)
"""The `--priority` option of every command that queues builds."""


@panels.command(panels.PUBLISHING, "pt2hub cancel 688d2e6fd6eb1e11", "pt2hub cancel vision/resnet18@3 --all")
def cancel(
    build: _What,
    *,
    target: _Target = None,
    every: Annotated[
        bool, typer.Option("--all", help="Cancel every queued or running build of the version.")
    ] = False,
) -> None:
    """Cancel queued or running builds at once.

    The worker of a running build stops every process that it started for the build.
    Measuring jobs are cancelled by the id that `pt2hub measure` and `pt2hub builds` print.
    """
    from pt2hub.client.client import Client

    with Client() as client:
        chosen = _chosen(client, build, target, _OPEN if every else None)
        ended = _each(chosen, client.builds.cancel, every=every)
    emit({"builds": ended}, lambda out: _print_cancelled(out, ended, build))


@panels.command(
    panels.PUBLISHING,
    "pt2hub retry 688d2e6fd6eb1e11 --priority 10",
    "pt2hub retry vision/resnet18@3 --target torch2.13-cpu-x86_64_v4",
)
def retry(
    build: _What,
    *,
    target: _Target = None,
    every: Annotated[
        bool, typer.Option("--all", help="Retry every failed or cancelled build of the version.")
    ] = False,
    priority: Annotated[int | None, Priority] = None,
) -> None:
    """Queue failed or cancelled builds again.

    They keep their priority unless --priority sets another one.
    """
    from pt2hub.client.client import Client

    with Client() as client:
        chosen = _chosen(client, build, target, _REPEATABLE if every else None)
        queued = _each(chosen, lambda build_id: client.builds.retry(build_id, priority), every=every)
    emit({"builds": queued}, lambda out: _print_retried(out, queued, build))


def _chosen(client: Client, what: str, target: str | None, states: frozenset[BuildState] | None) -> list[str]:
    """Return the ids of the chosen builds.

    Args:
        what: The id of a build, or a version.
        target: Choose the version's build for this target.
        states: Choose all of the version's builds in these states, for `--all`.
    """
    from pt2hub.cli.references import build_of, version_of

    if "/" not in what and (target or states):
        raise click.UsageError(
            "--target and --all select among a version's builds; they cannot be combined with a build's id."
        )
    if states is None:
        return [build_of(client, what, target, otherwise=" To select all of them, use --all.")]
    if target:
        raise click.UsageError("--target and --all cannot be combined.")
    return [build.id for build in version_of(client, what).builds if build.state in states]


def _each(build_ids: list[str], action: Callable[[str], BuildView], *, every: bool) -> list[BuildView]:
    from pt2hub.cli.references import NO_BUILD, add_hint
    from pt2hub.errors import BuildActive, BuildOver

    done = []
    for build_id in build_ids:
        # With --all, builds that changed state meanwhile are skipped.
        with add_hint(NO_BUILD), suppress(*(BuildActive, BuildOver) if every else ()):
            done.append(action(build_id))
    return done


def first_error(stopped: Sequence[BuildView]) -> dict[str, Any]:
    """Return the error of the first build or measuring job that did not succeed, for `--json`."""
    from pt2hub.errors import UsageError
    from pt2hub.rendering.sheets import build_title

    again = f"To queue it again: pt2hub retry {stopped[0].id}"
    cancelled = UsageError(f"{build_title(stopped[0])} was cancelled", where=stopped[0].target, hint=again)
    errors = [build.error for build in stopped if build.error]
    return errors[0] if errors else cancelled.as_dict()


def _print_cancelled(out: Console, ended: list[BuildView], what: str) -> None:
    from pt2hub.rendering.sheets import build_title

    if not ended:
        out.print(f"No build of {what} is queued or running: nothing to cancel.")
    for build in ended:
        out.print(f"{build_title(build)} is {build.state}. To queue it again: pt2hub retry {build.id}")


def _print_retried(out: Console, queued: list[BuildView], what: str) -> None:
    if not queued:
        out.print(f"No build of {what} failed or was cancelled: nothing to retry.")
    print_queued(out, queued)


def print_queued(out: Console, queued: list[BuildView]) -> None:
    """Print the states of builds, why queued ones wait, and how to follow them."""
    from pt2hub.rendering.sheets import build_title, state_text
    from pt2hub.rendering.waits import format_note

    for build in queued:
        why = f": {format_note(build)}" if format_note(build) else ""
        out.print(
            f"{build_title(build)} is {state_text(build)}{why}. To follow it: pt2hub logs -f {build.id}",
        )
