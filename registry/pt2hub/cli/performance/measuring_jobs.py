"""`pt2hub measure`: queues measuring jobs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from pt2hub.cli import panels
from pt2hub.cli.builds import control
from pt2hub.cli.output import INTERRUPTED, emit, is_json, is_quiet, note, print_json
from pt2hub.cli.references import Reference  # noqa: TC001  # typer reads annotations when it runs
from pt2hub.domain.builds import MAX_REPEAT, MEASURE_PRIORITY, BuildState

if TYPE_CHECKING:
    from rich.console import Console

    from pt2hub.client.client import Client
    from pt2hub.wire.responses import BuildView

_FAILED = 1


@panels.command(
    panels.PUBLISHING,
    "pt2hub measure vision/resnet18@3 --wait",
    "pt2hub measure vision/resnet18@prod --target torch2.13-cpu-x86_64_v4 --repeat 5",
    "pt2hub measure vision/resnet18@12 --baseline vision/resnet18@prod",
)
def measure(  # each is an argument or option of the command line
    reference: Reference,
    *,
    target: Annotated[
        str | None,
        typer.Option(help="Measure only the artifact for this target; all of them if omitted."),
    ] = None,
    repeat: Annotated[
        int,
        typer.Option(
            min=1, max=MAX_REPEAT, help="Number of runs, one after another, each in fresh processes."
        ),
    ] = 1,
    baseline: Annotated[
        str | None,
        typer.Option(
            help="Version to time in the same processes, such as team/name@prod; the previous version if "
            "omitted."
        ),
    ] = None,
    priority: Annotated[int, control.Priority] = MEASURE_PRIORITY,
    wait: Annotated[
        bool, typer.Option("--wait", "-w", help="Wait for the jobs; the exit code is 1 unless all succeed.")
    ] = False,
) -> None:
    """Measure artifacts again, each on a worker for its target.

    Nothing is built, and builds run first unless --priority is raised.
    If a job for the same artifact is already queued, that job makes the greater number of runs.
    Comparisons are most precise between versions timed in the same processes; --baseline does that.
    """
    from pt2hub.client.client import Client

    with Client() as client:
        jobs = client.performance.measure(reference, target, repeat, priority=priority, baseline=baseline)
        if not wait:
            emit({"builds": jobs}, lambda out: _print_queued(out, jobs))
            return
        try:
            jobs = _follow_jobs(client, jobs)
        except KeyboardInterrupt:
            _explain_interrupt(jobs)
            raise typer.Exit(INTERRUPTED) from None
    stopped = [job for job in jobs if job.state != BuildState.SUCCEEDED]
    document = {"builds": jobs} | ({"error": control.first_error(stopped)} if stopped else {})
    emit(document, lambda out: _print_ended(out, jobs, baseline))
    if stopped:
        raise typer.Exit(_FAILED)


def _follow_jobs(client: Client, jobs: list[BuildView]) -> list[BuildView]:
    from pt2hub.client.builds.progress import progress

    with progress(quiet=is_quiet()) as display:
        return client.builds.follow(jobs, display)


def _explain_interrupt(jobs: list[BuildView]) -> None:
    if is_json():
        print_json({"builds": jobs})
        return
    note(
        "",
        "Interrupted. The jobs continue on their workers.",
        *(f"  pt2hub logs -f {job.id}" for job in jobs),
    )


def _print_queued(out: Console, jobs: list[BuildView]) -> None:
    from pt2hub.rendering.sheets import build_title, state_text
    from pt2hub.rendering.waits import format_note

    for job in jobs:
        why = f": {format_note(job)}" if format_note(job) else ""
        out.print(f"{build_title(job)} is {state_text(job)}{why}. To follow it: pt2hub logs -f {job.id}")


def _print_ended(out: Console, jobs: list[BuildView], baseline: str | None) -> None:
    from pt2hub.client.builds.progress import print_build

    for job in jobs:
        print_build(out, job)
        if job.state == BuildState.SUCCEEDED:
            out.print(f"  To see the measurements: {_next_command(job, baseline)}")


def _next_command(job: BuildView, baseline: str | None) -> str:
    """Return the command that shows the measurements of a job."""
    if baseline:
        return f"pt2hub compare {baseline} {job.model}@{job.number} --target {job.target}"
    return f"pt2hub history {job.model}@{job.number} --target {job.target}"
