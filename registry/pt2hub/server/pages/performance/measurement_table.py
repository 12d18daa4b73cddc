"""Table below a chart, from which two rows can be selected for comparison."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pt2hub.domain.targets import parse_target
from pt2hub.errors import InvalidInput
from pt2hub.rendering.quantities import format_share, percent, quantity
from pt2hub.server.pages.performance.charts import ChartLine, ChartMark
from pt2hub.server.pages.performance.environment_changes import EnvironmentChange
from pt2hub.wire.performance import PointView

if TYPE_CHECKING:
    from pt2hub.server.pages.performance.charts import Chart

SEPARATOR = "~"
"""Separator of version number and target in form values; neither contains it."""
_NUMBER = re.compile(r"[1-9][0-9]{0,8}")


@dataclass(frozen=True, slots=True)
class Row:
    """A row of the table below a chart.

    Attributes:
        spread: Range of the version's runs.
        change: Change from the previous version of the series.
        mark: The flagged change, if any.
        since: The environment change, if any.
        choice: Form value that selects the row for a comparison.
    """

    line: ChartLine
    point: PointView
    value: str
    spread: str
    change: str
    mark: ChartMark | None
    since: EnvironmentChange | None
    choice: str


def rows(drawn: Chart, limit: int) -> list[Row]:
    """Return the newest rows of a chart's table, newest version first.

    Args:
        limit: Maximum number of rows.
    """
    marks = {(item.line, item.point.number): item for item in drawn.marks}
    breaks = {(item.line, item.number): item for item in drawn.breaks}
    order = [
        (-point.number, line, at)
        for line, shown in enumerate(drawn.lines)
        for at, point in enumerate(shown.series.points)
    ]
    return [
        _row(
            drawn.lines[line],
            at,
            marks.get((line, -number)),
            breaks.get((line, -number)),
        )
        for number, line, at in sorted(order)[:limit]
    ]


def _row(line: ChartLine, at: int, mark: ChartMark | None, since: EnvironmentChange | None) -> Row:
    series, point = line.series, line.series.points[at]
    before = series.points[at - 1] if at else None
    spread = (point.high - point.low) / abs(point.value) if point.value else 0.0
    return Row(
        line,
        point,
        quantity(point.value, series.unit),
        format_share(spread, decimals=1) if spread else "-",
        percent(point.value / before.value) if before and min(before.value, point.value) > 0 else "-",
        mark,
        since,
        choice(point.number, series.target),
    )


def choice(number: int, target: str) -> str:
    """Return the form value that selects a version on a target."""
    return f"{number}{SEPARATOR}{target}"


def parse_choice(text: str) -> tuple[int, str]:
    """Parse a value of `choice`: version number and target.

    Raises:
        InvalidInput: The value is malformed.
        UnknownTarget: The target's name is malformed.
    """
    number, _, target = text.partition(SEPARATOR)
    if not _NUMBER.fullmatch(number):
        raise InvalidInput(
            f"Invalid table row {text[:80]!a}",
            where="point",
            hint=f"Select rows with their checkboxes. The form of a row is 3{SEPARATOR}TARGET.",
        )
    return int(number), parse_target(target).name
