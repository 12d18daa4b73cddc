"""The command that has artifacts timed again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from pt2hub.cli import building, panels
from pt2hub.cli.output import INTERRUPTED, AsJson, emit, note
from pt2hub.cli.references import Reference  # noqa: TC001  # typer reads annotations when it runs
from pt2hub.domain.builds import MAX_REPEAT, MEASURE_PRIORITY, BuildState

if TYPE_CHECKING:
    from rich.console import Console

    from pt2hub.client.client import Client
    from pt2hub.wire.shapes import BuildView

_FAILED = 1


def register(app: typer.Typer) -> None:
    """Adds the command."""
    panels.add(
        app,
        measure,
        panels.PUBLISHING,
        "pt2hub measure vision/resnet18@3 --wait",
        "pt2hub measure vision/resnet18@prod --target torch2.13-cpu-x86_64_v4 --repeat 5",
        "pt2hub measure vision/resnet18@12 --beside vision/resnet18@prod",
    )


def measure(  # noqa: PLR0913  # each is an argument or option of the command line
    reference: Reference,
    *,
    target: Annotated[
        str | None,
        typer.Option(help="Of the version's artifacts only this target's; all of them without it."),
    ] = None,
    repeat: Annotated[
        int,
        typer.Option(min=1, max=MAX_REPEAT, help="So many runs, one after another, each of fresh processes."),
    ] = 1,
    beside: Annotated[
        str | None,
        typer.Option(
            help="Whose artifact is timed in the same processes, such as team/name@prod; without it that of "
            "the version before."
        ),
    ] = None,
    priority: Annotated[int, building.Priority] = MEASURE_PRIORITY,
    wait: Annotated[
        bool, typer.Option("--wait", "-w", help="Follow the jobs; ends with 1 unless all of them succeeded.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Measure artifacts again, each on a worker of its target.

    Nothing is built, and builds come first unless the priority says otherwise.
    A job that still waits for the same artifact is joined: it makes the greater number of runs.
    Versions that ran beside each other are compared best: that is what --beside is for.
    """
    from pt2hub.client.client import Client

    with Client() as client:
        jobs = client.measure(reference, target, repeat, priority=priority, beside=beside)
        if not wait:
            emit({"builds": jobs}, lambda out: _print_queued(out, jobs), as_json=as_json)
            return
        try:
            jobs = _followed(client, jobs, quiet=as_json)
        except KeyboardInterrupt:
            _explain_interrupt(jobs, as_json=as_json)
            raise typer.Exit(INTERRUPTED) from None
    stopped = [job for job in jobs if job.state != BuildState.SUCCEEDED]
    emit(_document(jobs, stopped), lambda out: _print_ended(out, jobs, beside), as_json=as_json)
    if stopped:
        raise typer.Exit(_FAILED)


def _followed(client: Client, jobs: list[BuildView], *, quiet: bool) -> list[BuildView]:
    from pt2hub.client.progress import progress

    with progress(quiet=quiet) as display:
        return client.follow_builds(jobs, display)


def _document(jobs: list[BuildView], stopped: list[BuildView]) -> dict[str, Any]:
    """The jobs, and for programs that look for an error the first one's."""
    from pt2hub.errors import UsageError

    document: dict[str, Any] = {"builds": jobs}
    if not stopped:
        return document
    again = f"pt2hub retry {stopped[0].id} queues it again."
    cancelled = UsageError("The measuring job was cancelled", where=stopped[0].target, hint=again)
    errors = [job.error for job in stopped if job.error]
    return document | {"error": errors[0] if errors else cancelled.as_dict()}


def _explain_interrupt(jobs: list[BuildView], *, as_json: bool) -> None:
    if as_json:
        emit({"builds": jobs}, lambda _: None, as_json=True)
        return
    note("", "Interrupted. The jobs go on without you.", *(f"  pt2hub logs -f {job.id}" for job in jobs))


def _print_queued(out: Console, jobs: list[BuildView]) -> None:
    from pt2hub.rendering.printing import named, standing

    for job in jobs:
        why = f": {job.note}" if job.note else ""
        out.print(
            f"{named(job)} is {standing(job)}{why}. To follow it: pt2hub logs -f {job.id}", markup=False
        )


def _print_ended(out: Console, jobs: list[BuildView], beside: str | None) -> None:
    from pt2hub.client.progress import print_build

    for job in jobs:
        print_build(out, job)
        if job.state == BuildState.SUCCEEDED:
            out.print(f"  Its figures: {_next(job, beside)}", markup=False)


def _next(job: BuildView, beside: str | None) -> str:
    """The command that shows what a job found."""
    if beside:
        return f"pt2hub compare {beside} {job.model}@{job.number} --target {job.target}"
    return f"pt2hub history {job.model}@{job.number} --target {job.target}"
