"""Tables of `pt2hub history`: a metric over versions, one table per series."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from pt2hub.cli.output import one_line
from pt2hub.rendering.quantities import Scale, format_share, percent, scale_for, sparkline
from pt2hub.rendering.times import NOTHING, format_local_time

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rich.console import Console

    from pt2hub.wire.performance import ChangeView, HistoryView, PointView, SeriesView

_SPARKLINE = 60
"""Values in a sparkline, so that it fits on one line with its heading."""
DIGEST_LENGTH = 19
"""Length of a shortened digest: `sha256:` and 12 digits."""
_TWO_FIGURES = (
    "NOTE and CHANGE can differ: CHANGE compares measurements taken at different times; 'side by side' means that both "
    "versions were timed in one run; 'from here on' compares the medians before and after the change."
)
_NAMES = {
    "cuda": "CUDA",
    "cores": "cores",
    "cpu_max_mhz": "CPU MHz",
    "gpu_max_mhz": "GPU MHz",
    "gpu_power_limit_w": "GPU W",
}
_ALONE = ("gpu", "cpu_model")
"""Fields shown without their name."""


def print_history(
    out: Console, view: HistoryView, marked: Mapping[int, str], empty: str, absent: str
) -> None:
    """Print a table for each series of a history.

    Args:
        marked: References by the number of the version that they name.
        empty: Printed if there are no measurements.
        absent: Why the named version is in no table; may be empty.
    """
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
    out.print(f"\n{_heading(series)}  {line if can_print(line) else ''}".rstrip(), style="bold")
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
        ("class", series.class_digest[:DIGEST_LENGTH]),
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


def can_print(text: str) -> bool:
    """Return whether stdout can encode a text."""
    try:
        text.encode(sys.stdout.encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return False
    return True
