"""Charts as SVG: where everything lies. Templates write it; scripts draw the same with more to it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise
from typing import TYPE_CHECKING

from pt2hub.rendering.quantities import quantity
from pt2hub.server.pages.charts import Line
from pt2hub.wire.performance import PointView

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pt2hub.server.pages.charts import Chart

LEFT, RIGHT, TOP, BOTTOM = 84, 16, 20, 44
LABEL = "environments changed"
LABEL_ROWS = 3
"""Rows above a chart that say what changed in environments, so that no label lies on a figure."""
_LABEL_ROW, _FIRST_ROW, _LETTER, _BESIDE, _ABOVE = 13, 12, 6.2, 5, 5
_LEAST = 0.2
"""Relative range that an axis spans at least: a few percent of noise must not look like cliffs."""
_PAD = 0.08
_SINGLE = 60
"""Points of a line that are still drawn one by one, with the spread of their runs."""
_MOST = 300
"""Points of a polyline; of longer series the lowest and the highest of neighbours are kept."""
_Y_TICKS, _X_TICKS = 6, 8
_FEWEST_TICKS = 3
_FURTHEST = 1e300
"""Figures beyond it lie at the edge: a range of more than a float holds could not be drawn."""
_DAY = 86400.0
_MINUTES = (1, 5, 15, 60, 180, 360, 720, 1440, 2 * 1440, 7 * 1440, 14 * 1440)
"""Minutes between ticks of times; of longer times they are some thirty days apart."""


@dataclass(frozen=True, slots=True)
class Tick:
    """A place on an axis."""

    at: float
    text: str


@dataclass(frozen=True, slots=True)
class Box:
    """A rectangle."""

    x: float
    y: float
    width: float
    height: float


@dataclass(frozen=True, slots=True)
class Drawn:
    """A line: its way, its points and the spreads of their runs as paths, and the noise around its levels."""

    line: Line
    path: str
    dots: str
    spreads: str
    bands: tuple[Box, ...]


@dataclass(frozen=True, slots=True)
class Flag:
    """A flagged change, as a triangle that points where the figure went."""

    verdict: str
    path: str
    text: str


@dataclass(frozen=True, slots=True)
class Cut:
    """Where an environment changed; the label may lie on either side of its line, or have no room."""

    colour: int
    x: float
    text: str
    label: str
    begin: float
    row: float


@dataclass(frozen=True, slots=True)
class Plot:
    """A chart's geometry."""

    width: int
    height: int
    lines: tuple[Drawn, ...]
    flags: tuple[Flag, ...]
    cuts: tuple[Cut, ...]
    across: tuple[Tick, ...]
    up: tuple[Tick, ...]
    below: str
    top: int


@dataclass(frozen=True, slots=True)
class _Axes:
    x: Callable[[PointView], float]
    y: Callable[[Line, float], float]
    cut: Callable[[PointView], float]
    across: tuple[Tick, ...]
    up: tuple[Tick, ...]
    low: float
    high: float


def plot(chart: Chart, *, by_time: bool, width: int = 720, height: int = 280) -> Plot:
    """Lays a chart out.

    Args:
        chart: What to draw.
        by_time: Whether times are on the x axis, not versions.
        width: Of all of it.
        height: Likewise.
    """
    axes = _axes(chart, width, height, by_time=by_time)
    return Plot(
        width,
        height,
        tuple(_drawn(line, axes) for line in chart.lines),
        tuple(
            Flag(
                mark.change.verdict,
                _triangle(
                    axes.x(mark.point),
                    axes.y(chart.lines[mark.line], mark.point.value),
                    up=mark.change.ratio > 1,
                ),
                f"Version {mark.point.number}, {mark.target}: {mark.said}",
            )
            for mark in chart.marks
        ),
        tuple(_cuts(chart, axes, width - RIGHT)),
        axes.across,
        axes.up,
        "measured on (UTC)" if by_time else "version",
        _top(chart) - _ABOVE,
    )


def _cuts(chart: Chart, axes: _Axes, right: float) -> Iterable[Cut]:
    """Changes of environments; several at one place have one label, which lies on no other and on no line."""
    labels, rows = shared_labels(chart), label_rows(chart)
    rooms = _Rooms(right, [[] for _ in range(rows)], [])
    if rows:
        rooms.taken[-1].append((0.0, len(chart.axis) * _LETTER + 2 * _BESIDE))
    labelled: set[float] = set()
    for item in chart.breaks:
        line = chart.lines[item.line]
        x = axes.cut(line.series.points[0])
        text = f"From version {item.number} on, {item.target}: {item.said}"
        wanted = () if x in labelled else labels[item.number]
        labelled.add(x)
        begin, row, label = rooms.take(x, wanted)
        yield Cut(line.colour, x, text, label, begin, _FIRST_ROW + _LABEL_ROW * (rows - 1 - row))


@dataclass(frozen=True, slots=True)
class _Rooms:
    """Where labels lie in the rows above a chart, the row next to the chart first.

    Attributes:
        right: Where the rows end.
        taken: What each row holds.
        lines: Lines that go down from a label, with its row.
    """

    right: float
    taken: list[list[tuple[float, float]]]
    lines: list[tuple[float, int]]

    def take(self, x: float, texts: Iterable[str]) -> tuple[float, int, str]:
        """Where the first of the texts lies that there is room for beside a line; an empty one where there is none."""
        for text in texts:
            long = len(text) * _LETTER
            for begin in (x + _BESIDE, x - _BESIDE - long):
                rows = (row for row in range(len(self.taken)) if self._is_free(x, begin, begin + long, row))
                if (row := next(rows, None)) is not None:
                    self.taken[row].append((begin, begin + long))
                    self.lines.append((x, row))
                    return round(begin, 1), row, text
        return x, 0, ""

    def _is_free(self, x: float, begin: float, end: float, row: int) -> bool:
        below = [room for there in self.taken[:row] for room in there]
        return (
            begin >= 0
            and end <= self.right
            and all(end + _BESIDE < low or begin > high + _BESIDE for low, high in self.taken[row])
            and not any(low <= x <= high for low, high in below)
            and not any(begin <= line <= end for line, its_row in self.lines if its_row > row)
        )


def _top(chart: Chart) -> int:
    """Where figures begin, below the labels."""
    return TOP + _LABEL_ROW * max(0, label_rows(chart) - 1)


def label_rows(chart: Chart) -> int:
    """Rows that are kept above a chart for what changed in environments."""
    return min(LABEL_ROWS, len({item.number for item in chart.breaks}))


def shared_labels(chart: Chart) -> dict[int, tuple[str, str]]:
    """What each change of environments is called, long and short; of several in one version what is true of all."""
    labels: dict[int, tuple[str, str]] = {}
    for item in chart.breaks:
        long, short = labels.setdefault(item.number, (item.label, item.short))
        if short != item.short:
            labels[item.number] = (LABEL, LABEL)
        elif long != item.label:
            labels[item.number] = (short, short)
    return labels


def seconds(iso: str) -> float:
    """A time as seconds since the epoch."""
    return datetime.fromisoformat(iso).timestamp()


def _axes(chart: Chart, width: int, height: int, *, by_time: bool) -> _Axes:
    def place(point: PointView) -> float:
        return seconds(point.measured_at) if by_time else point.number

    def value(line: Line, figure: float) -> float:
        if chart.is_relative:
            return (figure / line.base - 1) * 100
        if chart.is_log:
            return math.log10(figure) if figure > 0 else -math.inf  # of a spread; it ends at the lower edge
        return figure

    places = [place(point) for line in chart.lines for point in line.series.points]
    low, high = _range(chart, value)
    first, last = min(places), max(places)
    margin = (last - first) * 0.02 or (43200.0 if by_time else 0.5)
    first, last = first - margin, last + margin

    def x(number: float) -> float:
        return round(LEFT + (number - first) / (last - first) * (width - LEFT - RIGHT), 1)

    top = _top(chart)

    def y(shown: float) -> float:
        share = (shown - low) / (high - low)
        return round(top + (1 - min(max(share, 0.0), 1.0)) * (height - top - BOTTOM), 1)

    across = _times(first, last, x) if by_time else _versions(first, last, x)
    return _Axes(
        lambda point: x(place(point)),
        lambda line, figure: y(value(line, figure)),
        lambda point: x(place(point) if by_time else point.number - 0.5),
        across,
        tuple(Tick(y(at), text) for at, text in _figures(chart, low, high)),
        low,
        high,
    )


def _range(chart: Chart, value: Callable[[Line, float], float]) -> tuple[float, float]:
    """The figures that an axis reaches from and to."""
    shown = [value(line, point.value) for line in chart.lines for point in line.series.points]
    lowest, highest = (min(max(at, -_FURTHEST), _FURTHEST) for at in (min(shown), max(shown)))
    furthest = max(abs(lowest), abs(highest))
    least = 20.0 if chart.is_relative else math.log10(1 + _LEAST) if chart.is_log else _LEAST * furthest
    spare = max(0.0, (least or 1.0) - (highest - lowest)) / 2
    pad = (highest - lowest + 2 * spare) * _PAD
    low, high = lowest - spare - pad, highest + spare + pad
    if chart.from_zero:
        return min(0.0, low), max(0.0, high)
    from_zero = not chart.is_relative and not chart.is_log and lowest >= 0 > low
    return (0.0 if from_zero else low), high


def _figures(chart: Chart, low: float, high: float) -> list[tuple[float, str]]:
    """Ticks of the y axis; the unit stands above them."""
    if chart.is_relative:
        return [(at, f"{at:+g} %" if at else "0 %") for at in nice(low, high, _Y_TICKS)]
    factor = chart.scale.factor
    if chart.is_log:
        ticks = logarithmic(10**low, 10**high)
        return [(math.log10(at), quantity(at / factor, "1")) for at in ticks]
    return [(at * factor, quantity(at, "1")) for at in nice(low / factor, high / factor, _Y_TICKS)]


def nice(low: float, high: float, many: int) -> list[float]:
    """Round figures within a range, about so many."""
    rough = (high - low) / many
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * times for times in (1, 2, 5, 10) if power * times >= rough)
    first = math.ceil(low / step)
    # Not 0.30000000000000004; rounded to digits that count, since figures may be far smaller than one.
    return [float(f"{at * step:.12g}") for at in range(first, math.floor(high / step) + 1)]


def logarithmic(low: float, high: float) -> list[float]:
    """Round figures within a wide range: as many of each power of ten as there is room for."""
    kept: list[float] = []
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    for digits in ((1, 1.5, 2, 3, 4, 5, 6, 8), (1, 2, 5), (1, 5), (1,)):
        found = [digit * 10.0**power for power in powers for digit in digits]
        kept = [at for at in found if low <= at <= high]
        if len(kept) <= _Y_TICKS + 2:
            break
    # Within a power of ten these are one or none.
    return kept if len(kept) >= _FEWEST_TICKS else nice(low, high, _Y_TICKS)


def _versions(first: float, last: float, x: Callable[[float], float]) -> tuple[Tick, ...]:
    return tuple(
        Tick(x(at), f"{at:.0f}") for at in nice(first, last, _X_TICKS) if at.is_integer() and at >= 1
    )


def _times(first: float, last: float, x: Callable[[float], float]) -> tuple[Tick, ...]:
    """Ticks at the beginnings of minutes, hours or days in UTC, which have no summer time."""
    rough = (last - first) / (_X_TICKS - 2)
    fitting = (minutes * 60.0 for minutes in _MINUTES if minutes * 60 >= rough)
    step = next(fitting, math.ceil(rough / (30 * _DAY)) * 30 * _DAY)
    form = "%d %b %y" if step >= _DAY else "%d %b %H:%M"
    places = range(math.ceil(first / step), math.floor(last / step) + 1)
    return tuple(Tick(x(at * step), f"{datetime.fromtimestamp(at * step, UTC):{form}}") for at in places)


def _drawn(line: Line, axes: _Axes) -> Drawn:
    # Along time, an old version that was measured again comes late.
    points = sorted(line.series.points, key=axes.x)
    ways = [(axes.x(point), axes.y(line, point.value)) for point in points]
    single = points if len(points) <= _SINGLE else []
    spreads = (
        f"M{x:g} {axes.y(line, point.high):g}V{axes.y(line, point.low):g}"
        for (x, _), point in zip(ways, single, strict=False)
        if point.high != point.low
    )
    dots = (f"M{x:g} {y:g}h0" for (x, y), _ in zip(ways, single, strict=False))
    path = " ".join(f"{x:g},{y:g}" for x, y in _thinned(ways))
    return Drawn(line, path, "".join(dots), "".join(spreads), _bands(line, axes))


def _bands(line: Line, axes: _Axes) -> tuple[Box, ...]:
    if not line.series.noise:
        return ()
    by_number = {point.number: point for point in line.series.points}
    found = []
    for level in line.levels:
        left, right = axes.x(by_number[level.first]), axes.x(by_number[level.last])
        left, right = min(left, right), max(left, right)
        around = (level.value * (1 + line.series.noise), level.value / (1 + line.series.noise))
        top, bottom = sorted(axes.y(line, figure) for figure in around)  # of figures below zero the other way
        found.append(Box(left - 2, top, round(right - left + 4, 1), round(max(1.0, bottom - top), 1)))
    return tuple(found)


def _thinned(ways: Sequence[tuple[float, float]]) -> Sequence[tuple[float, float]]:
    """Of many points the lowest and the highest of each few neighbours, so that no peak is lost."""
    if len(ways) <= _MOST:
        return ways
    edges = [round(part * len(ways) / (_MOST // 2)) for part in range(_MOST // 2 + 1)]
    kept: list[tuple[float, float]] = []
    for begin, end in pairwise(edges):
        some = ways[begin:end]
        kept += sorted({min(some, key=lambda way: way[1]), max(some, key=lambda way: way[1])})
    return kept


def _triangle(x: float, y: float, *, up: bool) -> str:
    """A triangle above or below a point."""
    tip, foot = (y - 18, y - 8) if up else (y + 18, y + 8)
    return f"M{x:g} {tip:g}L{x - 6:g} {foot:g}L{x + 6:g} {foot:g}Z"
