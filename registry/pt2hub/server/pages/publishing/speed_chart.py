"""The latency of a model's versions as a chart drawn by the server."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pt2hub.rendering.changes import format_change
from pt2hub.rendering.quantities import format_count, quantity
from pt2hub.rendering.targets import short_target

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pt2hub.server.views.version_speeds import VersionSpeeds

WIDTH, HEIGHT = 600, 120
_FEWEST = 2
_LEAST_SPAN = 0.2
"""The vertical axis spans at least this share of the largest value, so that noise does not look like a change."""
_MARGIN = 0.1


@dataclass(frozen=True, slots=True)
class ChartMark:
    """A version that the chart marks.

    Attributes:
        x: Horizontal position.
        label: What it is: `prod`.
    """

    number: int
    x: float
    y: float
    label: str


@dataclass(frozen=True, slots=True)
class SpeedChart:
    """A line of latencies by version.

    Attributes:
        title: What is drawn.
        summary: The same in words, for screen readers.
        line: Points of the polyline.
        since: Points of the part after the newest flagged change; empty without one.
        outcome: Outcome of that change; empty without one.
        top: The label at the top of the vertical axis.
        bottom: The label at its bottom.
        first: The number at the left end of the horizontal axis.
        last: The number at its right end.
        note: What the newest change is; empty without one.
    """

    title: str
    summary: str
    line: str
    since: str
    outcome: str
    top: str
    bottom: str
    first: int
    last: int
    marks: tuple[ChartMark, ...]
    note: str


def draw_chart(speeds: VersionSpeeds | None, aliases: Sequence[tuple[str, int]]) -> SpeedChart | None:
    """Return the chart of a series; None with fewer than two measured versions.

    Args:
        aliases: Names of aliases with their versions, which are marked.
    """
    if speeds is None or len(speeds.history) < _FEWEST:
        return None
    low, high = _span([value for _, value in speeds.history])
    points = dict(_places(speeds, low, high))
    numbers = [number for number, _ in speeds.history]
    change = speeds.change
    target = short_target(speeds.target)
    batch = f", batch {speeds.batch}" if speeds.batch else ""
    return SpeedChart(
        title=f"Median latency on {target}{batch}",
        summary=f"Median latency of {format_count(len(numbers), 'version')} on {target}, from version {numbers[0]} to "
        f"{numbers[-1]}: from {quantity(speeds.history[0][1], speeds.unit)} to {quantity(speeds.history[-1][1], speeds.unit)}",
        line=_join(points.values()),
        since=_join(points[number] for number in numbers if number >= change.before) if change else "",
        outcome=change.outcome if change else "",
        top=quantity(high, speeds.unit),
        bottom=quantity(low, speeds.unit),
        first=numbers[0],
        last=numbers[-1],
        marks=_marks(points, aliases),
        note=f"{format_change(change.ratio, speeds.metric, speeds.unit)} since version {change.number}"
        if change
        else "",
    )


def _span(values: Sequence[float]) -> tuple[float, float]:
    low, high = min(values), max(values)
    spread = max(high - low, _LEAST_SPAN * high)
    middle, half = (low + high) / 2, spread * (0.5 + _MARGIN)
    return max(0.0, middle - half), middle + half


def _places(speeds: VersionSpeeds, low: float, high: float) -> list[tuple[int, tuple[float, float]]]:
    step = WIDTH / (len(speeds.history) - 1)
    return [
        (number, (round(index * step, 1), round(HEIGHT * (high - value) / ((high - low) or 1.0), 1)))
        for index, (number, value) in enumerate(speeds.history)
    ]


def _join(points: Iterable[tuple[float, float]]) -> str:
    return " ".join(f"{x},{y}" for x, y in points)


def _marks(
    points: dict[int, tuple[float, float]], aliases: Sequence[tuple[str, int]]
) -> tuple[ChartMark, ...]:
    names: dict[int, list[str]] = {}
    for name, number in aliases:
        names.setdefault(number, []).append(name)
    return tuple(
        ChartMark(number, *points[number], ", ".join(found))
        for number, found in sorted(names.items())
        if number in points
    )
