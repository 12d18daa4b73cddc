"""`pt2hub history`: a metric over the versions of a model."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Any

import click
import typer

from pt2hub.cli import panels
from pt2hub.cli.output import emit, is_json, one_line
from pt2hub.rendering.quantities import Scale, format_share, percent, quantity, scale_for, sparkline
from pt2hub.rendering.times import NOTHING, format_local_time

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rich.console import Console

    from pt2hub.client.client import Client
    from pt2hub.wire.performance import (
        ChangeView,
        HistoryView,
        PointView,
        SeriesList,
        SeriesSummary,
        SeriesView,
    )
    from pt2hub.wire.responses import VersionView

_METRIC = "latency_p50"
_SPARKLINE = 60
"""Values in a sparkline, so that it fits on one line with its heading."""
_NEWEST = 20
"""Versions checked for failed builds when a history is empty."""
_SHORT = 19
"""Length of a shortened digest: `sha256:` and 12 digits."""
_TWO_FIGURES = (
    "NOTE and CHANGE can differ: CHANGE compares measurements taken at different times; 'side by side' means that both "
    "versions were timed in one run; 'from here on' compares the medians before and after the change."
)
_LAST_NUMBER = 2**31 - 1
_NAMES = {
    "cuda": "CUDA",
    "cores": "cores",
    "cpu_max_mhz": "CPU MHz",
    "gpu_max_mhz": "GPU MHz",
    "gpu_power_limit_w": "GPU W",
}
_ALONE = ("gpu", "cpu_model")
"""Fields shown without their name."""


@panels.command(
    panels.READING,
    "pt2hub history vision/resnet18",
    "pt2hub history vision/resnet18@prod --metric throughput --batch 16",
    "pt2hub history vision/resnet18 --limit 1000 --csv",
    "pt2hub history vision/resnet18 --list",
)
def history(  # noqa: PLR0913  # each is an argument or option of the command line
    reference: Annotated[
        str,
        typer.Argument(
            metavar="MODEL[@REF]", help="team/name; a version (@3, @prod) is marked in the tables."
        ),
    ],
    *,
    metric: Annotated[
        str | None,
        typer.Option(help=f"The metric, {_METRIC} by default. To list all metrics: --list."),
    ] = None,
    target: Annotated[str | None, typer.Option(help="Only for this target.")] = None,
    batch: Annotated[int | None, typer.Option(min=1, help="Only for this batch size.")] = None,
    implementation: Annotated[
        str | None,
        typer.Option(help="What was timed: artifact (default), eager or torch_compile."),
    ] = None,
    environment: Annotated[
        str | None, typer.Option(help="Only in this environment class: sha256: and its first digits.")
    ] = None,
    before: Annotated[
        int | None, typer.Option(min=1, max=_LAST_NUMBER, help="Only versions before this number.")
    ] = None,
    limit: Annotated[
        int, typer.Option("--limit", "-n", min=1, max=1000, help="Maximum number of versions per series.")
    ] = 20,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print CSV, one row per version.")] = False,
    listing: Annotated[
        bool, typer.Option("--list", help="List the model's series instead of showing one metric.")
    ] = False,
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
        emit(view, lambda out: _print(out, view, {marked: reference} if marked else {}, empty, absent))


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


def _print(out: Console, view: HistoryView, marked: Mapping[int, str], empty: str, absent: str) -> None:
    from pt2hub.domain.performance.metrics import METRICS

    known = METRICS.get(view.metric)
    title = f"{view.metric} of {view.model}" + (f": {known.text}" if known else "")
    out.print(one_line(title), style="bold")
    for series in view.series:
        _print_series(out, series, marked)
    if any(_differs(series) for series in view.series):
        out.print(f"\n{_TWO_FIGURES}")
    if not view.series:
        out.print(empty)
    if view.more:
        out.print("\nThere are more series. To select some, use --target, --batch or --environment.")
    if absent:
        out.print(f"\n{one_line(absent)}")


def _print_series(out: Console, series: SeriesView, marked: Mapping[int, str]) -> None:
    from pt2hub.cli.tables import print_fields, print_table

    line = sparkline([point.value for point in series.points][-_SPARKLINE:])
    out.print(f"\n{_heading(series)}  {line if _can_print(line) else ''}".rstrip(), style="bold")
    print_fields(out, _series_fields(series))
    scale = scale_for([point.value for point in series.points], series.unit)
    headings = ("VERSION", "VALUE", "SPREAD", "CHANGE", "RUNS", "MEASURED", "NOTE")
    changes = {
        change.number: change for change in series.changes
    }  # if a version has two, the change point is the later one
    befores = [None, *series.points[:-1]]
    rows = [
        _row(point, before, scale, _note(series, changes.get(point.number), marked.get(point.number)))
        for point, before in zip(series.points, befores, strict=True)
    ]
    print_table(out, headings, rows[::-1])
    if series.more:
        out.print(f"To see older versions: --before {series.points[0].number}")


def _heading(series: SeriesView) -> str:
    parts = (
        series.target,
        f"batch {series.batch}" if series.batch else "",
        "" if series.implementation == "artifact" else series.implementation,
    )
    return "  ".join(one_line(part) for part in parts if part)


def _series_fields(series: SeriesView) -> list[tuple[str, str]]:
    noise = f"{series.noise:.1%} from version to version is normal" if series.noise is not None else ""
    return [
        (
            "where",
            one_line(
                ", ".join(_field_text(name, value) for name, value in _order_fields(series.environment))
            ),
        ),
        ("class", series.class_digest[:_SHORT]),
        ("noise", noise.replace("%", " %")),
        ("better", series.better or "unknown; set it in the model's policy (pt2hub policy)"),
    ]


def _order_fields(fields: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """Return the fields of an environment, the machine's name first."""
    return sorted(fields.items(), key=lambda item: (item[0] not in _ALONE, item[0]))


def _field_text(name: str, value: object) -> str:
    if name in _ALONE:
        return str(value)
    text = f"{value:g}" if isinstance(value, float) else str(value)
    return (
        f"{text} {_NAMES[name]}" if name == "cores" else f"{_NAMES.get(name, name.replace('_', ' '))} {text}"
    )


def _row(point: PointView, before: PointView | None, scale: Scale, note: str) -> tuple[str, ...]:
    spread = (point.high - point.low) / abs(point.value) if point.value else 0.0
    change = percent(point.value / before.value) if before and before.value else NOTHING
    return (
        str(point.number),
        scale.text(point.value),
        format_share(spread, decimals=1) if spread else NOTHING,
        change,
        str(point.count),
        format_local_time(point.measured_at),
        note or NOTHING,
    )


def _differs(series: SeriesView) -> bool:
    """Return whether a note gives a different change than the CHANGE column."""
    values = {point.number: point.value for point in series.points}
    return any(
        min(values[item.before], values[item.number]) > 0
        and percent(values[item.number] / values[item.before]) != percent(item.ratio)
        for item in series.changes
        if item.before in values and item.number in values
    )


def _note(series: SeriesView, change: ChangeView | None, reference: str | None) -> str:
    from pt2hub.rendering.changes import format_change

    notes = [f"<- {reference}"] if reference else []
    if change:
        word = "changed" if change.outcome == "same" else change.outcome
        since = "from here on" if change.kind == "change_point" else f"than {change.before}"
        paired = " side by side" if change.method == "paired" else ""
        notes.append(f"{word} {since}{paired} ({format_change(change.ratio, series.metric, series.unit)})")
    return "; ".join(notes)


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
            item.class_digest[:_SHORT],
            str(item.newest),
            quantity(item.value, item.unit),
            line if _can_print(line) else NOTHING,
            format_local_time(item.measured_at),
        )
        for item, line in zip(found, lines, strict=True)
    ]


def _can_print(text: str) -> bool:
    """Return whether stdout can encode a text."""
    try:
        text.encode(sys.stdout.encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return False
    return True
