"""`pt2hub compare` and `pt2hub changes`: what became better or worse."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from pt2hub.cli import panels
from pt2hub.cli.listing import Limit  # noqa: TC001  # typer reads annotations when it runs
from pt2hub.cli.output import AsJson, emit
from pt2hub.cli.words import when

if TYPE_CHECKING:
    from rich.console import Console

    from pt2hub.cli.tables import Cell
    from pt2hub.wire.performance import AutotuneDifference, ComparisonView, EventView

_FAILED = 1


class Flag(StrEnum):
    """A verdict that changes are flagged with."""

    BETTER = "better"
    WORSE = "worse"


class FailOn(StrEnum):
    """What makes a comparison fail."""

    WORSE = "worse"


def register(app: typer.Typer) -> None:
    """Adds the commands."""
    panels.add(
        app,
        compare,
        panels.READING,
        "pt2hub compare vision/resnet18@prod vision/resnet18@3",
        "pt2hub compare vision/resnet18@3 vision/resnet18@3 --target torch2.11-cu130-sm90 --with-target "
        "torch2.13-cu130-sm90",
        "pt2hub compare vision/resnet18@2 vision/resnet18@3 --fail-on worse",
    )
    panels.add(
        app,
        changes,
        panels.READING,
        "pt2hub changes vision/resnet18 --verdict worse",
        "pt2hub changes --limit 50 --json",
    )


def compare(
    before: Annotated[str, typer.Argument(help="What is compared with: team/name@3, team/name@prod, ...")],
    after: Annotated[str, typer.Argument(help="What is judged, likewise.")],
    *,
    target: Annotated[
        str | None, typer.Option(help="Whose artifacts; not needed where they have one target in common.")
    ] = None,
    with_target: Annotated[
        str | None,
        typer.Option(help="The second one's target, where it is another: another torch, another GPU."),
    ] = None,
    fail_on: Annotated[
        FailOn | None, typer.Option(help="End with exit code 1 where a metric is this.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Compare two artifacts, a verdict for each metric.

    CHANGE has the interval that it lies in with the model's confidence, 99 % unless its policy
    says otherwise. WHY says what the verdict rests on, from which change on the metric counts,
    and the noise. Kernels that changed follow, with what they cost, and whose code the two run.
    """
    from pt2hub.client.client import Client

    with Client() as client:
        found = client.compare(before, after, target=target, with_target=with_target)
    emit(found, lambda out: _print_comparison(out, found), as_json=as_json)
    if fail_on is not None and any(item.verdict == fail_on.value for item in found.metrics):
        raise typer.Exit(_FAILED)


def changes(
    model: Annotated[str | None, typer.Argument(help="team/name; all models without it.")] = None,
    *,
    target: Annotated[str | None, typer.Option(help="Only those for this target.")] = None,
    verdict: Annotated[Flag | None, typer.Option(help="Only those for the better or the worse.")] = None,
    limit: Limit = 20,
    as_json: AsJson = False,
) -> None:
    """List the changes of performance that were flagged, newest first.

    A version is compared with the one before it in the same environment; of long series the
    changes of level are flagged too.
    """
    from pt2hub.cli.references import model_name
    from pt2hub.client.client import Client

    name = model_name(model) if model is not None else None
    with Client() as client:
        found = client.events(
            name, target=target, verdict=verdict.value if verdict else None, limit=limit + 1
        )
    shown, more = found[:limit], len(found) > limit
    emit({"events": shown, "more": more}, lambda out: _print_events(out, shown, more=more), as_json=as_json)


def _print_comparison(out: Console, view: ComparisonView) -> None:
    from pt2hub.cli.tables import print_fields, print_table
    from pt2hub.rendering.comparing import code_lines, compared, remarks

    names = [f"{item.model}@{item.number} for {item.target}" for item in (view.before, view.after)]
    print_fields(out, [("before", names[0]), ("after", names[1])], indent="")
    if view.metrics:
        headings = ("METRIC", "BEFORE", "AFTER", "CHANGE", "VERDICT", "WHY")
        print_table(out, headings, [compared(item) for item in view.metrics])
    else:
        out.print("Nothing was measured of either.", markup=False)
    if view.autotune:
        out.print("Kernels that changed:", markup=False)
        print_table(
            out, ("OP", "SHAPES", "BEFORE", "AFTER", "COST"), [_kernel_row(item) for item in view.autotune]
        )
    for line in (*code_lines(view), *remarks(view)):
        out.print(line, markup=False)


def _kernel_row(item: AutotuneDifference) -> tuple[Cell, ...]:
    from pt2hub.rendering.comparing import cost, kernels

    before, after = kernels(item)
    shapes = ["x".join(map(str, shape)) if isinstance(shape, list) else str(shape) for shape in item.shapes]
    return (
        item.op,
        " ".join(shapes),
        _kernel(before, item.before_ms),
        _kernel(after, item.after_ms),
        cost(item.cost_ms),
    )


def _kernel(name: str, milliseconds: float | None) -> str:
    from pt2hub.rendering.quantities import quantity

    return f"{name} {quantity(milliseconds, 'ms')}" if milliseconds is not None else name


def _print_events(out: Console, found: list[EventView], *, more: bool) -> None:
    from pt2hub.cli.tables import print_table
    from pt2hub.rendering.comparing import TWO_FIGURES

    if not found:
        out.print("No change was flagged.", markup=False)
        return
    headings = ("VERSION", "TARGET", "METRIC", "CHANGE", "VERDICT", "SINCE", "FOUND AS", "AT")
    rows = [_event_row(item) for item in found]
    print_table(out, headings, rows)
    if any("; points" in str(row[6]) for row in rows):
        out.print(TWO_FIGURES, markup=False)
    if more:
        out.print("There are older ones; --limit takes more.", markup=False)


def _event_row(item: EventView) -> tuple[Cell, ...]:
    from pt2hub.rendering.comparing import change, found_as, metric

    return (
        f"{item.model}@{item.number}",
        item.target,
        metric(item.metric, item.batch),
        change(item.ratio, item.low, item.high, (item.metric, item.unit)),
        item.verdict,
        f"@{item.before}",
        found_as(item, item.points),
        when(item.at),
    )
