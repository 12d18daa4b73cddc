"""The table below a chart: a row for each version and line, and forms of two that are compared."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pt2hub.domain.targets import parse_target
from pt2hub.errors import InvalidInput
from pt2hub.rendering.quantities import percent, quantity
from pt2hub.server.pages.breaks import Break
from pt2hub.server.pages.charts import Line, Mark
from pt2hub.wire.performance import PointView

if TYPE_CHECKING:
    from pt2hub.server.pages.charts import Chart

BETWEEN = "~"
"""Between a version's number and a target, in what a form sends; neither has it."""
_NUMBER = re.compile(r"[1-9][0-9]{0,8}")


@dataclass(frozen=True, slots=True)
class Row:
    """A row of the table below a chart.

    Attributes:
        line: Its line.
        point: Its point.
        value: The figure, in the unit of its line.
        spread: How far repeated runs of the version lie apart.
        change: Against the version before in the same series.
        mark: What was flagged, or None.
        since: Where machines changed, or None.
        choice: What a form sends that chooses it for a comparison.
    """

    line: Line
    point: PointView
    value: str
    spread: str
    change: str
    mark: Mark | None
    since: Break | None
    choice: str


def rows(drawn: Chart, most: int) -> list[Row]:
    """The newest rows of a chart's table, newest version first.

    Args:
        drawn: The chart.
        most: At most so many.
    """
    marks = {(item.line, item.point.number): item for item in drawn.marks}
    breaks = {(item.line, item.number): item for item in drawn.breaks}
    places = [
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
        for number, line, at in sorted(places)[:most]
    ]


def _row(line: Line, at: int, mark: Mark | None, since: Break | None) -> Row:
    series, point = line.series, line.series.points[at]
    before = series.points[at - 1] if at else None
    spread = (point.high - point.low) / abs(point.value) if point.value else 0.0
    return Row(
        line,
        point,
        quantity(point.value, series.unit),
        f"{spread * 100:.1f} %" if spread else "-",
        percent(point.value / before.value) if before and min(before.value, point.value) > 0 else "-",
        mark,
        since,
        choice(point.number, series.target),
    )


def choice(number: int, target: str) -> str:
    """What a form sends that chooses a version's artifact for a target."""
    return f"{number}{BETWEEN}{target}"


def parse_choice(text: str) -> tuple[int, str]:
    """Reads what `choice` wrote: the version's number and the target.

    Raises:
        InvalidInput: It is none.
        UnknownTarget: The target's name has another form.
    """
    number, _, target = text.partition(BETWEEN)
    if not _NUMBER.fullmatch(number):
        raise InvalidInput(
            f"{text[:80]!a} names no row of a table",
            where="point",
            hint=f"Choose rows with their boxes, or write 3{BETWEEN}TARGET.",
        )
    return int(number), parse_target(target).name
