"""Charts as pages show them: lines with their colours, levels, marks, and what they say in words."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby
from statistics import median
from typing import TYPE_CHECKING, Any

from flask import url_for

from pt2hub.domain.performance import METRICS, default_threshold
from pt2hub.rendering.comparing import metric as named
from pt2hub.rendering.moves import moved
from pt2hub.rendering.quantities import Scale, quantity, scale_for
from pt2hub.server.analysis.changes import FEWEST, settled
from pt2hub.server.pages.breaks import Break, breaks
from pt2hub.wire.charts import ChartView
from pt2hub.wire.performance import ChangeView, PointView, SeriesView

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pt2hub.wire.charts import ChartsView

COLOURS = 6
_WIDE = 4.0
"""Highest over lowest figure from which a logarithmic axis shows them better."""
_SPARKLINE = 20
_LEVELS = "level against level"
_BASIS = {"paired": "both timed side by side in one run", "replicates": "of separate runs"}


@dataclass(frozen=True, slots=True)
class Level:
    """Versions between two changes.

    Attributes:
        first: The first of them.
        last: The last.
        value: Median of their figures.
    """

    first: int
    last: int
    value: float


@dataclass(frozen=True, slots=True)
class Line:
    """A series, drawn.

    Attributes:
        series: The series.
        colour: That of its target, from 1.
        pattern: Dashes that tell targets of one colour apart, 0 for none.
        age: 0 for the newest environment of its target, 1 for those before, and so on; reports from outside come last.
        machine: Where it was measured, in short.
        levels: Between its changes, oldest first.
    """

    series: SeriesView
    colour: int
    pattern: int
    age: int
    machine: str
    levels: tuple[Level, ...]

    @property
    def note(self) -> str:
        """What tells it from its target's main line, if it is not that."""
        if self.series.reported:
            return "reported"
        return "earlier environment" if self.age else ""

    @property
    def base(self) -> float:
        """The newest level: what relative figures are of."""
        return self.levels[-1].value


@dataclass(frozen=True, slots=True)
class Mark:
    """A flagged change.

    Attributes:
        line: Which line it is on.
        change: What was flagged.
        point: The version's point.
        target: The target's name.
        moved: By how much, since when or against which version, in words.
        basis: What that is of, and what the points of the chart say where that is another figure; may be empty.
        href: The comparison.
    """

    line: int
    change: ChangeView
    point: PointView
    target: str
    moved: str
    basis: str
    href: str

    @property
    def word(self) -> str:
        """Its verdict; `changed` where nobody has said which way is better."""
        return "changed" if self.change.verdict == "same" else self.change.verdict

    @property
    def said(self) -> str:
        """All of it in words."""
        return ", ".join(filter(None, (self.word, self.moved, self.basis)))


@dataclass(frozen=True, slots=True)
class Standing:
    """What a target's newest figures say, at a glance.

    Attributes:
        line: Its newest line.
        point: The newest figure.
        value: That with its unit.
        values: The last ones, for a sparkline.
        said: How they moved, in words.
        mark: The last flagged change, None where there is none.
        noise: What is usual between neighbours, such as `1.2 %`; None where too little is known.
        since: Where its environment changed; None where they did not.
    """

    line: Line
    point: PointView
    value: str
    values: tuple[float, ...]
    said: str
    mark: Mark | None
    noise: str | None
    since: Break | None


@dataclass(frozen=True, slots=True)
class Chart:
    """A chart.

    Attributes:
        view: What it shows.
        name: The metric with its batch size, and the subject if that is not the artifact.
        lines: By target, the newest first.
        marks: Flagged changes, newest first.
        breaks: Changes of environments, newest first.
        scale: The unit of its axis.
        is_log: Whether its axis is logarithmic.
        is_relative: Whether it shows changes against each line's newest level.
        from_zero: Whether its axis begins at zero.
    """

    view: ChartView
    name: str
    lines: tuple[Line, ...]
    marks: tuple[Mark, ...]
    breaks: tuple[Break, ...]
    scale: Scale
    is_log: bool
    is_relative: bool
    from_zero: bool

    @property
    def axis(self) -> str:
        """What its figures are, for the axis."""
        if self.is_relative:
            return "% against the newest level"
        return (self.scale.unit or "ratio") + (", logarithmic" if self.is_log else "")

    @property
    def better(self) -> str:
        """Which way is better, in words."""
        return f"{self.view.better} is better" if self.view.better else "nobody said which way is better"

    @property
    def points(self) -> int:
        """How many points it has."""
        return sum(len(line.series.points) for line in self.lines)

    @property
    def standings(self) -> list[Standing]:
        """What the newest figures of each target say; targets that are built no more come last."""
        found = [_standing(self, place) for place, line in enumerate(self.lines) if not line.age]
        return sorted(found, key=lambda item: -item.point.number)

    @property
    def summary(self) -> str:
        """All of it in words, for who does not see it."""
        told = " ".join(
            f"{item.line.series.target}: {item.value} at version {item.point.number}, {item.said}."
            for item in self.standings
        )
        return f"{self.name} in {self.view.unit}, {self.better}. {told}"


def chart(view: ChartView, whole: ChartsView, *, relative: bool = False, from_zero: bool = False) -> Chart:
    """A chart of a metric.

    Args:
        view: What it shows.
        whole: All charts: the targets of all say which colour each has.
        relative: Whether to show changes against each line's newest level.
        from_zero: Whether to begin at zero, and to count evenly from there.
    """
    lines = _lines(view.series, whole)
    values = [point.value for line in lines for point in line.series.points]
    low, high = min(values), max(values)
    return Chart(
        view,
        named(view.metric, view.batch) + ("" if view.subject == "artifact" else f" of {view.subject}"),
        lines,
        tuple(sorted(_marks(whole.model, lines), key=lambda item: -item.point.number)),
        tuple(sorted(breaks(lines), key=lambda item: -item.number)),
        scale_for(values, view.unit),
        is_log=not relative and not from_zero and low > 0 and high / low > _WIDE,
        is_relative=relative and all(line.base > 0 for line in lines),
        from_zero=from_zero,
    )


def machine(environment: Mapping[str, Any]) -> str:
    """Where figures were taken, in short: what a reader would call the machine."""
    if gpu := environment.get("gpu"):
        return str(gpu)
    cores = environment.get("cores")
    return str(environment.get("cpu_model") or "unknown CPU") + (f", {cores} cores" if cores else "")


def colour(target: str, whole: ChartsView) -> tuple[int, int]:
    """Colour of a target, from 1, and the dashes that tell it from others of that colour, 0 for none."""
    pattern, place = divmod(whole.targets.index(target), COLOURS)
    return place + 1, pattern


def _lines(found: Sequence[SeriesView], whole: ChartsView) -> tuple[Line, ...]:
    made = []
    for target, same in groupby(found, key=lambda item: item.target):
        # Reports come last: the newest of them say nothing of where the target is measured now.
        newest_first = sorted(
            same, key=lambda item: (not item.reported, item.points[-1].measured_at), reverse=True
        )
        made += [
            Line(
                item,
                *colour(target, whole),
                age,
                machine(item.environment),
                tuple(_levels(item)),
            )
            for age, item in enumerate(newest_first)
        ]
    return tuple(made)


def _levels(series: SeriesView) -> Iterable[Level]:
    begins = sorted({change.number for change in series.changes})
    for _, same in groupby(series.points, key=lambda point: sum(point.number >= number for number in begins)):
        points = list(same)
        yield Level(points[0].number, points[-1].number, median(point.value for point in points))


def _marks(model: str, lines: Sequence[Line]) -> Iterable[Mark]:
    for place, line in enumerate(lines):
        points = {point.number: point for point in line.series.points}
        comparisons = {item.number: item for item in line.series.changes if item.kind == "comparison"}
        # Of a version's two the change of level comes last, and says more.
        for change in {item.number: item for item in line.series.changes}.values():
            compared = comparisons.get(change.number)
            if change.number in points:
                yield Mark(
                    place,
                    change,
                    points[change.number],
                    line.series.target,
                    _change(change, line.series),
                    _basis(change, compared, line.series),
                    beside(model, change.before, change.number, line.series.target),
                )


def _change(change: ChangeView, series: SeriesView) -> str:
    since = "from here on" if change.kind == "change_point" else f"against version {change.before}"
    return f"{moved(change.ratio, series.metric, series.unit)} {since}"


def _basis(change: ChangeView, compared: ChangeView | None, series: SeriesView) -> str:
    """What a change's figure is of: a reader who divides two points of the chart may find another one."""
    what, points = (series.metric, series.unit), {point.number: point for point in series.points}
    said = [_LEVELS if change.kind == "change_point" else _BASIS.get(change.method, "")]
    if compared and compared is not change and compared.method == "paired":
        said.append(f"side by side with version {compared.before}: {moved(compared.ratio, *what)}")
    own, before = points[change.number].value, points.get(change.before)
    drawn = moved(own / before.value, *what) if before and min(own, before.value) > 0 else None
    if drawn and drawn != moved(change.ratio, *what):
        said.append(f"by their points on the chart: {drawn}")
    return "; ".join(filter(None, said))


def beside(model: str, before: int, number: int, target: str) -> str:
    """The address of the comparison of two versions for a target."""
    return url_for("pages.compare", before=f"{model}@{before}", after=f"{model}@{number}", target=target)


def _standing(drawn: Chart, place: int) -> Standing:
    line = drawn.lines[place]
    series, newest = line.series, line.series.points[-1]
    mark = next((item for item in drawn.marks if item.line == place), None)
    since = next((item for item in drawn.breaks if item.line == place), None)
    return Standing(
        line,
        newest,
        quantity(newest.value, series.unit),
        tuple(point.value for point in series.points[-_SPARKLINE:]),
        _moved(series, mark, since),
        mark,
        f"{series.noise * 100:.1f} %" if series.noise is not None else None,
        since,
    )


def _moved(series: SeriesView, mark: Mark | None, since: Break | None) -> str:
    many = len(series.points)
    if mark:
        change = moved(mark.change.ratio, series.metric, series.unit)
        return f"{mark.word} since version {mark.change.number} ({change})"
    after = f" since its environment changed at version {since.number}" if since else ""
    if many == 1:
        return f"one version was measured{after}"
    known = METRICS.get(series.metric)
    if known and known.exact:  # any two of them have a verdict
        return f"no change that counts in {many} versions{after}"
    level = settled([point.value for point in series.points], default_threshold(series.metric))
    if level == "steady":
        return f"no change beyond noise in {many} versions{after}"
    if level == "too_few":
        return f"no verdict yet over {many} versions{after}: a series is judged from {FEWEST} on"
    return f"no change was flagged in {many} versions{after}, but version {series.points[-1].number} is off their level"
