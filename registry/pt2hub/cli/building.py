"""Commands that steer builds: cancel, retry."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Annotated

import click
import typer

from pt2hub.cli import panels
from pt2hub.cli.output import AsJson, emit
from pt2hub.domain.builds import HIGHEST_PRIORITY, LOWEST_PRIORITY, BuildState

if TYPE_CHECKING:
    from collections.abc import Callable

    from rich.console import Console

    from pt2hub.client.client import Client
    from pt2hub.wire.shapes import BuildView

_OPEN = frozenset({BuildState.QUEUED, BuildState.RUNNING})
_REPEATABLE = frozenset({BuildState.FAILED, BuildState.CANCELLED})
_What = Annotated[
    str,
    typer.Argument(metavar="ID|MODEL@REF", help="A build as publish and builds print it, or a version."),
]
_Target = Annotated[str | None, typer.Option(help="Which build of a version that has several.")]
Priority = typer.Option(
    min=LOWEST_PRIORITY,
    max=HIGHEST_PRIORITY,
    help="Higher comes first; builds of one priority come in the order in which they were queued.",
)
"""The option of every command that queues builds."""


def register(app: typer.Typer) -> None:
    """Adds the commands."""
    panels.add(
        app,
        cancel,
        panels.PUBLISHING,
        "pt2hub cancel 688d2e6fd6eb1e11",
        "pt2hub cancel vision/resnet18@3 --all",
    )
    panels.add(
        app,
        retry,
        panels.PUBLISHING,
        "pt2hub retry 688d2e6fd6eb1e11 --priority 10",
        "pt2hub retry vision/resnet18@3 --target torch2.13-cpu-x86_64_v4",
    )


def cancel(
    build: _What,
    *,
    target: _Target = None,
    every: Annotated[
        bool, typer.Option("--all", help="Every build of the version that is queued or running.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Cancel builds that are queued or running, at once.

    The worker of a running build stops everything it started for it.
    A measuring job is cancelled by its id, as `pt2hub measure` and `pt2hub builds` print it.
    """
    from pt2hub.client.client import Client

    with Client() as client:
        chosen = _chosen(client, build, target, _OPEN if every else None)
        ended = _each(chosen, client.cancel, every=every)
    emit({"builds": ended}, lambda out: _print_cancelled(out, ended, build), as_json=as_json)


def retry(
    build: _What,
    *,
    target: _Target = None,
    every: Annotated[
        bool, typer.Option("--all", help="Every build of the version that failed or was cancelled.")
    ] = False,
    priority: Annotated[int | None, Priority] = None,
    as_json: AsJson = False,
) -> None:
    """Queue builds again that failed or were cancelled.

    They keep their priority unless another one is given.
    """
    from pt2hub.client.client import Client

    with Client() as client:
        chosen = _chosen(client, build, target, _REPEATABLE if every else None)
        queued = _each(chosen, lambda build_id: client.retry(build_id, priority), every=every)
    emit({"builds": queued}, lambda out: _print_queued(out, queued, build), as_json=as_json)


def _chosen(client: Client, what: str, target: str | None, states: frozenset[BuildState] | None) -> list[str]:
    """The builds that are meant.

    Args:
        client: Asked where a version is named.
        what: A build's id or a version.
        target: Of the version's builds only this one.
        states: Of the version's builds all in these states, where all were asked for.
    """
    from pt2hub.cli.references import build_of, version_of

    if "/" not in what and (target or states):
        raise click.UsageError("--target and --all choose among a version's builds; an id names one build.")
    if states is None:
        return [build_of(client, what, target, otherwise=" Or take them all with --all.")]
    if target:
        raise click.UsageError("--target names one build, --all means every one: give one of the two.")
    return [build.id for build in version_of(client, what).builds if build.state in states]


def _each(build_ids: list[str], deed: Callable[[str], BuildView], *, every: bool) -> list[BuildView]:
    from pt2hub.cli.references import NO_BUILD, hinted
    from pt2hub.errors import BuildActive, BuildOver

    done = []
    for build_id in build_ids:
        # Where all are meant, one that ended or was queued meanwhile is no longer among them.
        with hinted(NO_BUILD), suppress(*(BuildActive, BuildOver) if every else ()):
            done.append(deed(build_id))
    return done


def _print_cancelled(out: Console, ended: list[BuildView], what: str) -> None:
    from pt2hub.rendering.printing import named

    if not ended:
        out.print(f"No build of {what} is queued or running: nothing to cancel.", markup=False)
    for build in ended:
        out.print(
            f"{named(build)} is {build.state}. To queue it again: pt2hub retry {build.id}", markup=False
        )


def _print_queued(out: Console, queued: list[BuildView], what: str) -> None:
    from pt2hub.rendering.printing import named, standing

    if not queued:
        out.print(f"No build of {what} failed or was cancelled: nothing to retry.", markup=False)
    for build in queued:
        why = f": {build.note}" if build.note else ""
        out.print(
            f"{named(build)} is {standing(build)}{why}. To follow it: pt2hub logs -f {build.id}",
            markup=False,
        )
