"""Histories as CSV, for spreadsheets and data frames."""

from __future__ import annotations

import csv
import io
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pt2hub.wire.performance import ChangeView, HistoryView, SeriesView

CSV_TYPE = "text/csv"
COLUMNS = (
    "model",
    "metric",
    "unit",
    "target",
    "batch",
    "implementation",
    "environment",
    "number",
    "artifact",
    "value",
    "low",
    "high",
    "count",
    "measured_at",
    "change",
    "ratio",
    "against",
    "method",
)
_FORMULA = ("=", "+", "-", "@", "\t", "\r")
"""Characters that start a formula in a spreadsheet, which would run it."""


def history_csv(view: HistoryView) -> str:
    """Return a history as CSV: a row for each point, series by series; `change` is the flagged change.

    `ratio` is that of the flagged change, against the version in `against` and found by `method`; the ratio of the two
    values is another where both ran side by side (`paired`) or levels were compared (`change_point`).

    Args:
        view: The history.

    Returns:
        Lines that end with CR and LF, the first with the columns' names (RFC 4180).
    """
    buffer = io.StringIO()
    writer = csv.writer(buffer)
    writer.writerow(COLUMNS)
    for series in view.series:
        writer.writerows([_cell(value) for value in row] for row in _rows(view, series))
    return buffer.getvalue()


def _rows(view: HistoryView, series: SeriesView) -> Iterable[tuple[object, ...]]:
    changes = {change.number: change for change in series.changes}
    of_series = (view.model, view.metric, series.unit, series.target, series.batch, series.implementation)
    for point in series.points:
        change = changes.get(point.number)
        figures = (point.value, point.low, point.high, point.count, point.measured_at)
        flagged = (change.outcome, change.ratio, change.before, _method(change)) if change else (None,) * 4
        yield (*of_series, series.class_digest, point.number, point.artifact, *figures, *flagged)


def _method(change: ChangeView) -> str:
    return change.kind if change.kind == "change_point" else change.method


def _cell(value: object) -> object:
    """Return a value as a cell; an apostrophe is put before text that a spreadsheet would run."""
    return f"'{value}" if isinstance(value, str) and value.startswith(_FORMULA) else value
