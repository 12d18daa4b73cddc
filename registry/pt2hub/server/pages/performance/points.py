"""Chart data for the script that draws it, in columns because ten thousand named rows take megabytes."""

from __future__ import annotations

from datetime import datetime
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pt2hub.server.pages.performance.charts import Chart, ChartLevel, ChartLine, ChartMark

_DIGITS = 6
"""Significant digits of a value; a chart shows four."""
_MAX_VALUE = 1e300
"""Larger values are clipped, because the range of an axis must fit into a float."""
_MIN_DISTANCE_S = 0.001
"""Distance between points that were measured at the same time, so that both are drawn."""
_SEVERAL = "environments changed"


def document(chart: Chart, *, by_time: bool, span: tuple[float, float] | None = None) -> dict[str, Any]:
    """Return a chart as JSON; its values are in the chart's unit.

    Args:
        span: Ends of the x axis, for charts that are aligned; None for those of its own points.
    """
    positions = [_positions(line, by_time=by_time) for line in chart.lines]
    labels: dict[int, set[str]] = {}
    for item in chart.breaks:
        labels.setdefault(item.number, set()).add(item.label)
    return {
        "unit": chart.scale.unit,
        "kind": chart.kind,
        "byTime": by_time,
        "span": span,
        "bands": _bands(chart, positions, by_time=by_time),
        "lines": [
            _line(line, chart.scale.factor, there) for line, there in zip(chart.lines, positions, strict=True)
        ],
        "marks": [_mark(mark) for mark in chart.marks],
        "breaks": [
            {
                "line": item.line,
                "x": positions[item.line][item.number] if by_time else item.number - 0.5,
                "label": label if len({label, *others}) == 1 else _SEVERAL,
            }
            for item in chart.breaks
            for label, *others in [sorted(labels[item.number])]
        ],
    }


def find_span(charts: Iterable[Chart], *, by_time: bool) -> tuple[float, float]:
    """Return the ends of the x axis over all points of charts; there must be one."""
    points = [point for chart in charts for line in chart.lines for point in line.series.points]
    found = [_seconds(point.measured_at) if by_time else point.number for point in points]
    return min(found), max(found)


def strip(line: ChartLine, first: int | None, last: int | None) -> dict[str, Any]:
    """Return a line over all versions, and the chosen range of them, for the strip that chooses one."""
    return {
        "xs": [point.number for point in line.series.points],
        "values": _short((point.value for point in line.series.points), 1.0),
        "chosen": None if first is None and last is None else [first, last],
    }


def _bands(chart: Chart, positions: list[dict[int, float]], *, by_time: bool) -> list[list[float | None]]:
    """Return where a target's environments begin and end, every second one; empty for several targets."""
    if len({line.series.target for line in chart.lines}) > 1:
        return []
    begins = sorted(
        positions[item.line][item.number] if by_time else item.number - 0.5
        for item in chart.breaks
        if item.is_change
    )
    return [[*pair] for pair in zip_longest(begins[::2], begins[1::2])]


def _positions(line: ChartLine, *, by_time: bool) -> dict[int, float]:
    """Return the x positions of a line's versions, in order and without duplicates."""
    points = line.series.points
    if not by_time:
        return {point.number: point.number for point in points}
    found: dict[int, float] = {}
    last = 0.0
    for at, number in sorted((round(_seconds(point.measured_at)), point.number) for point in points):
        last = max(at, round(last + _MIN_DISTANCE_S, 3))
        found[number] = last
    return found


def _seconds(iso: str) -> float:
    return datetime.fromisoformat(iso).timestamp()


def _line(line: ChartLine, factor: float, positions: Mapping[int, float]) -> dict[str, Any]:
    by_number = {point.number: point for point in line.series.points}
    points = [by_number[number] for number in positions]
    return {
        "target": line.series.target,
        "machine": line.machine,
        "colour": line.colour,
        "pattern": line.pattern,
        "age": line.age,
        "note": line.note,
        "noise": line.series.noise,
        "base": _short([line.base], factor)[0],
        "xs": list(positions.values()),
        "numbers": list(positions),
        "times": [round(_seconds(point.measured_at)) for point in points],
        "values": _short((point.value for point in points), factor),
        "lows": _short((point.low for point in points), factor),
        "highs": _short((point.high for point in points), factor),
        "counts": [point.count for point in points],
        "levels": [_level(level, factor, positions) for level in line.levels],
    }


def _level(level: ChartLevel, factor: float, positions: Mapping[int, float]) -> list[float]:
    """Return a level's start and end on the x axis and its value; an old version may have been measured again later."""
    return [*sorted((positions[level.first], positions[level.last])), *_short([level.value], factor)]


def _short(values: Iterable[float], factor: float) -> list[float]:
    bounded = (max(-_MAX_VALUE, min(value / factor, _MAX_VALUE)) for value in values)
    return [float(f"{value:.{_DIGITS}g}") for value in bounded]


def _mark(mark: ChartMark) -> dict[str, Any]:
    return {
        "line": mark.line,
        "number": mark.point.number,
        "before": mark.change.before,
        "href": mark.href,
        "outcome": mark.change.outcome,
        "up": mark.change.ratio > 1,
        "text": mark.text,
    }
