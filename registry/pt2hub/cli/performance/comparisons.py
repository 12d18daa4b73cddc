"""`pt2hub compare` and `pt2hub changes`: regressions and improvements."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from pt2hub.cli import panels
from pt2hub.cli.lists import Limit  # noqa: TC001  # typer reads annotations when it runs
from pt2hub.cli.output import emit
from pt2hub.rendering.times import format_local_time

if TYPE_CHECKING:
    from rich.console import Console

    from pt2hub.cli.tables import Cell
    from pt2hub.wire.performance import ComparisonView, EventView

_FAILED = 1


class Flag(StrEnum):
    """The direction of a flagged change."""

    BETTER = "better"
    WORSE = "worse"


class FailOn(StrEnum):
    """The result that makes `pt2hub compare` fail."""

    WORSE = "worse"


@panels.command(
    panels.READING,
    "pt2hub compare vision/resnet18@prod vision/resnet18@3",
    "pt2hub compare vision/resnet18@3 vision/resnet18@3 --target torch2.11-cu130-sm90 --with-target "
    "torch2.13-cu130-sm90",
    "pt2hub compare vision/resnet18@2 vision/resnet18@3 --fail-on worse",
)
def compare(
    before: Annotated[
        str, typer.Argument(help="The version to compare with: team/name@3, team/name@prod, ...")
    ],
    after: Annotated[str, typer.Argument(help="The version to evaluate, in the same form.")],
    *,
    target: Annotated[
        str | None,
        typer.Option(help="Target of the artifacts; optional if the versions have one target in common."),
    ] = None,
    with_target: Annotated[
        str | None,
        typer.Option(help="Target of the second artifact, if it differs (another torch, another GPU)."),
    ] = None,
    fail_on: Annotated[
        FailOn | None, typer.Option(help="Exit with code 1 if a metric has this result.")
    ] = None,
) -> None:
    """Compare two artifacts metric by metric.

    CHANGE has a confidence interval, at 99 % unless the model's policy sets another confidence.
    WHY names the evidence, the smallest change that counts for the metric, and the noise.
    Below the table are the kernels that changed, with each side's own times, and the code that the two run.
    """
    from pt2hub.client.client import Client

    with Client() as client:
        found = client.performance.compare(before, after, target=target, with_target=with_target)
    emit(found, lambda out: _print_comparison(out, found))
    outcomes = [item.outcome for item in found.metrics] + [item.outcome for item in found.evaluations]
    if fail_on is not None and fail_on.value in outcomes:
        raise typer.Exit(_FAILED)


@panels.command(
    panels.READING, "pt2hub changes vision/resnet18 --outcome worse", "pt2hub changes --limit 50 --json"
)
def changes(
    model: Annotated[str | None, typer.Argument(help="team/name; all models if omitted.")] = None,
    *,
    target: Annotated[str | None, typer.Option(help="Only for this target.")] = None,
    outcome: Annotated[
        Flag | None, typer.Option(help="Only improvements (better) or only regressions (worse).")
    ] = None,
    limit: Limit = 20,
) -> None:
    """List flagged changes of performance, newest first.

    Each version is compared with the previous one in the same environment. In long series,
    change points are flagged as well.
    """
    from pt2hub.cli.references import model_name
    from pt2hub.client.client import Client

    name = model_name(model) if model is not None else None
    with Client() as client:
        found = client.performance.changes(
            name, target=target, outcome=outcome.value if outcome else None, limit=limit + 1
        )
    shown, more = found[:limit], len(found) > limit
    emit({"events": shown, "more": more}, lambda out: _print_events(out, shown, more=more))


def _print_comparison(out: Console, view: ComparisonView) -> None:
    from pt2hub.cli.tables import print_fields, print_table
    from pt2hub.rendering.changed_kernels import KERNEL_HEADINGS, kernel_rows
    from pt2hub.rendering.comparisons import comparison_row, notes
    from pt2hub.rendering.evaluations import EVALUATION_HEADINGS, evaluation_row

    names = [f"{item.model}@{item.number} for {item.target}" for item in (view.before, view.after)]
    print_fields(out, [("before", names[0]), ("after", names[1])], indent="")
    if view.metrics:
        headings = ("METRIC", "BEFORE", "AFTER", "CHANGE", "OUTCOME", "WHY")
        print_table(out, headings, [comparison_row(item) for item in view.metrics])
    else:
        out.print("The two artifacts have no measurements.")
    if view.evaluations:
        out.print("Evaluations of the versions:")
        print_table(out, EVALUATION_HEADINGS, [evaluation_row(item) for item in view.evaluations])
    if view.autotune:
        out.print("Changed kernels:")
        print_table(out, tuple(heading.upper() for heading in KERNEL_HEADINGS), kernel_rows(view))
    for line in notes(view):
        out.print(line)


def _print_events(out: Console, found: list[EventView], *, more: bool) -> None:
    from pt2hub.cli.tables import print_table
    from pt2hub.rendering.comparisons import TWO_FIGURES

    headings = ("VERSION", "TARGET", "METRIC", "CHANGE", "OUTCOME", "SINCE", "FOUND AS", "AT")
    rows = [_event_row(item) for item in found]
    print_table(out, headings, rows, empty="No flagged changes.", more=more)
    if any("; points" in str(row[6]) for row in rows):
        out.print(TWO_FIGURES)


def _event_row(item: EventView) -> tuple[Cell, ...]:
    from pt2hub.rendering.comparisons import change, found_as, metric

    return (
        f"{item.model}@{item.number}",
        item.target,
        metric(item.metric, item.batch),
        change(item.ratio, item.low, item.high, (item.metric, item.unit)),
        item.outcome,
        f"@{item.before}",
        found_as(item, item.points),
        format_local_time(item.at),
    )
