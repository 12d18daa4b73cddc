"""`pt2hub history`: a metric over the versions of a model."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Any

import click
import typer

from pt2hub.cli import panels
from pt2hub.cli.output import emit, is_json
from pt2hub.cli.performance.history_tables import DIGEST_LENGTH, can_print, print_history
from pt2hub.rendering.quantities import quantity, sparkline
from pt2hub.rendering.times import NOTHING, format_local_time

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rich.console import Console

    from pt2hub.client.client import Client
    from pt2hub.wire.performance import (
        HistoryView,
        SeriesList,
        SeriesSummary,
    )
    from pt2hub.wire.responses import VersionView

_METRIC = "latency_p50"
_NEWEST = 20
"""Versions checked for failed builds when a history is empty."""
_LAST_NUMBER = 2**31 - 1
_Reference = Annotated[
    str,
    typer.Argument(metavar="MODEL[@REF]", help="team/name; a version (@3, @prod) is marked in the tables."),
]
_Metric = Annotated[
    str | None, typer.Option(help=f"The metric, {_METRIC} by default. To list all metrics: --list.")
]
_Target = Annotated[str | None, typer.Option(help="Only for this target.")]
_Batch = Annotated[int | None, typer.Option(min=1, help="Only for this batch size.")]
_Implementation = Annotated[
    str | None, typer.Option(help="What was timed: artifact (default), eager or torch_compile.")
]
_Environment = Annotated[
    str | None, typer.Option(help="Only in this environment class: sha256: and its first digits.")
]
_Before = Annotated[
    int | None, typer.Option(min=1, max=_LAST_NUMBER, help="Only versions before this number.")
]
_Limit = Annotated[
    int, typer.Option("--limit", "-n", min=1, max=1000, help="Maximum number of versions per series.")
]
_Csv = Annotated[bool, typer.Option("--csv", help="Print CSV, one row per version.")]
_Listing = Annotated[
    bool, typer.Option("--list", help="List the model's series instead of showing one metric.")
]


@panels.command(
    panels.READING,
    "pt2hub history vision/resnet18",
    "pt2hub history vision/resnet18@prod --metric throughput --batch 16",
    "pt2hub history vision/resnet18 --limit 1000 --csv",
    "pt2hub history vision/resnet18 --list",
)
def history(  # noqa: PLR0913  # each is an argument or option of the command line
    reference: _Reference,
    *,
    metric: _Metric = None,
    target: _Target = None,
    batch: _Batch = None,
    implementation: _Implementation = None,
    environment: _Environment = None,
    before: _Before = None,
    limit: _Limit = 20,
    as_csv: _Csv = False,
    listing: _Listing = False,
) -> None:
    """Show how a metric changed over a model's versions.

    Prints one table per series; measurements of different targets, batch sizes or machines are never mixed.
    SPREAD is the range of repeated runs of a version, CHANGE is relative to the version in the row below.
    Only changes flagged in NOTE exceed noise.
    """
    from pt2hub.client.client import Client
    from pt2hub.rendering.tabular import history_csv

    if as_csv and (is_json() or listing):
        raise click.UsageError("--csv cannot be combined with --json or --list.")
    chosen: dict[str, Any] = {
        "target": target,
        "batch": batch,
        "implementation": implementation,
        "environment": environment,
    }
    with Client() as client:
        if listing:
            _list(client, reference, {"metric": metric, **chosen})
            return
        view = client.performance.history(reference, metric or _METRIC, before=before, limit=limit, **chosen)
        version = _named_version(client, reference)
        marked = version.number if version else None
        failed = not view.series and before is None and _all_failed(client, view.model)
    if as_csv:
        sys.stdout.write(history_csv(view))
    else:
        empty = _empty(view.model, before=before, failed=failed)
        absent = _explain_absence(view, version) if version else ""
        emit(view, lambda out: print_history(out, view, {marked: reference} if marked else {}, empty, absent))


def _list(client: Client, reference: str, chosen: Mapping[str, Any]) -> None:
    from pt2hub.domain.names import Reference
    from pt2hub.wire.performance import SeriesList

    model = Reference.parse(reference).model
    everything = client.performance.metrics(model)
    found = SeriesList(tuple(item for item in everything.series if _is_chosen(item, chosen)))
    emit(found, lambda out: _print_list(out, model, found, len(everything.series)))


def _is_chosen(item: SeriesSummary, chosen: Mapping[str, Any]) -> bool:
    environment = chosen["environment"] or ""
    fields = ("metric", "target", "batch", "implementation")
    return item.class_digest.startswith(environment) and all(
        chosen[name] in (None, getattr(item, name)) for name in fields
    )


def _empty(model: str, *, before: int | None, failed: bool) -> str:
    """Return the message for a history without measurements."""
    from pt2hub.rendering.histories import NO_MEASUREMENTS

    if before is not None:
        return f"No such measurements of versions before {before}."
    if failed:
        return f"No measurements, because no build of the newest versions succeeded. To see the builds: pt2hub builds {model}"
    return NO_MEASUREMENTS.format(model=model)


def _all_failed(client: Client, model: str) -> bool:
    """Return whether the newest versions all failed or were cancelled."""
    newest = client.versions.list(model, limit=_NEWEST)
    return bool(newest) and all(item.readiness in ("failed", "cancelled") for item in newest)


def _named_version(client: Client, reference: str) -> VersionView | None:
    """Return the version that a reference names; None if it names a model only."""
    from pt2hub.cli.references import version_of

    return version_of(client, reference) if "@" in reference else None


def _explain_absence(view: HistoryView, version: VersionView) -> str:
    """Return why the named version is in none of the tables; empty if it is in one."""
    from pt2hub.rendering.sheets import measurement

    if any(point.number == version.number for series in view.series for point in series.points):
        return ""
    states = [(build.target, measurement(build.measurement)) for build in version.builds]
    if waiting := [f"{target}: {state}" for target, state in states if state]:
        return f"Version {version.number} is not in these tables. " + "; ".join(waiting)
    return f"Version {version.number} is not in these tables. To include it, use --before or --limit."


def _print_list(out: Console, model: str, found: SeriesList, many: int) -> None:
    from pt2hub.cli.tables import print_table
    from pt2hub.rendering.histories import NO_MEASUREMENTS

    if many and not found.series:
        out.print(f"None of its {many} series match. To see more, leave out an option.")
        return
    if not found.series:
        out.print(NO_MEASUREMENTS.partition(", pt2hub history")[0].format(model=model) + ".")
        return
    headings = (
        "METRIC",
        "TARGET",
        "BATCH",
        "IMPLEMENTATION",
        "ENVIRONMENT",
        "NEWEST",
        "VALUE",
        "LAST",
        "MEASURED",
    )
    print_table(out, headings, _list_rows(found.series))


def _list_rows(found: Sequence[SeriesSummary]) -> list[tuple[str, ...]]:

    lines = [sparkline(item.values) for item in found]
    return [
        (
            item.metric,
            item.target,
            str(item.batch or NOTHING),
            item.implementation,
            item.class_digest[:DIGEST_LENGTH],
            str(item.newest),
            quantity(item.value, item.unit),
            line if can_print(line) else NOTHING,
            format_local_time(item.measured_at),
        )
        for item, line in zip(found, lines, strict=True)
    ]
