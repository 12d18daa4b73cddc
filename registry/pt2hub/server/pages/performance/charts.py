"""Charts: lines with colours, levels and marks, and their descriptions in words."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import groupby
from statistics import median
from typing import TYPE_CHECKING, Any

from flask import url_for

from pt2hub.analysis.changes import FEWEST, assess_unchanged
from pt2hub.domain.performance.metrics import METRICS, default_threshold
from pt2hub.rendering.changes import format_change
from pt2hub.rendering.comparisons import metric as named
from pt2hub.rendering.quantities import Scale, format_share, quantity, scale_for
from pt2hub.server.pages.performance.environment_changes import EnvironmentChange, find_environment_changes
from pt2hub.server.services.performance.history import SPARKLINE_POINTS
from pt2hub.server.views.charts import ChartView
from pt2hub.wire.performance import ChangeView, PointView, SeriesView

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pt2hub.server.views.charts import ChartsView

COLOURS = 6
_LOGARITHMIC_RATIO = 4.0
"""Ratio of the highest to the lowest value from which the axis is logarithmic."""
_LEVELS = "between levels"
_BASIS = {"paired": "both timed side by side in one run", "replicates": "from separate runs"}


@dataclass(frozen=True, slots=True)
class ChartLevel:
    """The versions between two changes, and their level."""

    first: int
    last: int
    value: float


@dataclass(frozen=True, slots=True)
class ChartLine:
    """A series as a line of a chart.

    Attributes:
        colour: Number of its target's colour, from 1.
        pattern: Dash pattern that distinguishes targets of one colour, 0 for none.
        age: 0 for the newest environment of its target, 1 for the one before, and so on; reports come last.
        machine: Short name of the machine.
        levels: Oldest first.
        base: The value that changes are relative to.
    """

    series: SeriesView
    colour: int
    pattern: int
    age: int
    machine: str
    levels: tuple[ChartLevel, ...]
    base: float

    @property
    def note(self) -> str:
        """The difference from its target's main line, empty for the main line."""
        if self.series.reported:
            return "reported"
        return "earlier environment" if self.age else ""


@dataclass(frozen=True, slots=True)
class ChartMark:
    """A flagged change.

    Attributes:
        moved: Size of the change and what it is relative to, as text.
        basis: How the change was determined, and the ratio of the points on the chart if it differs; may be empty.
        href: URL of the comparison.
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
        """Its outcome, or `changed` if the metric has no better direction."""
        return "changed" if self.change.outcome == "same" else self.change.outcome

    @property
    def text(self) -> str:
        """Outcome, change and basis as one text."""
        return ", ".join(filter(None, (self.word, self.moved, self.basis)))


@dataclass(frozen=True, slots=True)
class Trend:
    """A target's latest measurements.

    Attributes:
        line: Its newest line.
        point: Its newest point.
        summary: The trend as text.
        mark: The last flagged change, None without one.
        noise: Usual difference between neighbouring versions, such as `1.2 %`; None if unknown.
        since: The last change of its environment, None without one.
    """

    line: ChartLine
    point: PointView
    value: str
    values: tuple[float, ...]
    summary: str
    mark: ChartMark | None
    noise: str | None
    since: EnvironmentChange | None


@dataclass(frozen=True, slots=True)
class Chart:
    """A chart.

    Attributes:
        name: Metric, batch size, and implementation if not the artifact.
        lines: By target, newest first.
        marks: Flagged changes, newest first.
        breaks: Environment changes, newest first.
        kind: The y axis: `value`, `log`, `zero` (values from zero) or `change` (percent of each line's base).
    """

    view: ChartView
    name: str
    lines: tuple[ChartLine, ...]
    marks: tuple[ChartMark, ...]
    breaks: tuple[EnvironmentChange, ...]
    scale: Scale
    kind: str

    @property
    def better(self) -> str:
        """The better direction as text."""
        return f"{self.view.better} is better" if self.view.better else "no better direction is defined"

    @property
    def points(self) -> int:
        """The number of points."""
        return sum(len(line.series.points) for line in self.lines)

    @property
    def trends(self) -> list[Trend]:
        """The trend of each target, most recently measured first."""
        found = [_trend(self, index) for index, line in enumerate(self.lines) if not line.age]
        return sorted(found, key=lambda item: -item.point.number)

    @property
    def summary(self) -> str:
        """The chart as text, for screen readers."""
        trends = " ".join(
            f"{item.line.series.target}: {item.value} at version {item.point.number}, {item.summary}."
            for item in self.trends
        )
        return f"{self.name} in {self.view.unit}, {self.better}. {trends}"


def chart(view: ChartView, whole: ChartsView, shown_as: str = "value", base: int | None = None) -> Chart:
    """Return a chart of a metric.

    Args:
        shown_as: `value`, `zero`, `shared` (values whose axis is logarithmic where they lie far apart) or `change`, which
            needs positive values.
        base: The version that changes are relative to, for lines that have it; others and None take the newest level.
    """
    lines = _lines(view.series, whole, base)
    values = [point.value for line in lines for point in line.series.points]
    return Chart(
        view,
        named(view.metric, view.batch)
        + ("" if view.implementation == "artifact" else f" of {view.implementation}"),
        lines,
        tuple(sorted(_marks(whole.model, lines), key=lambda item: -item.point.number)),
        tuple(
            sorted(find_environment_changes([line.series for line in lines]), key=lambda item: -item.number)
        ),
        scale_for(values, view.unit),
        _kind(lines, values, shown_as),
    )


def _kind(lines: Sequence[ChartLine], values: Sequence[float], shown_as: str) -> str:
    """Return the kind of the y axis; `change` needs positive bases, and wide shared ranges get a logarithmic axis."""
    low, high = min(values), max(values)
    if shown_as == "zero" or (shown_as == "change" and all(line.base > 0 for line in lines)):
        return shown_as
    return "log" if shown_as == "shared" and low > 0 and high / low > _LOGARITHMIC_RATIO else "value"


def split(view: ChartView, whole: ChartsView, shown_as: str) -> dict[str, Chart]:
    """Return a chart for each target, with an axis of its own."""
    by_target = groupby(view.series, key=lambda item: item.target)
    return {target: chart(replace(view, series=tuple(same)), whole, shown_as) for target, same in by_target}


def machine(environment: Mapping[str, Any]) -> str:
    """Return the short name of a machine."""
    if gpu := environment.get("gpu"):
        return str(gpu)
    cores = environment.get("cores")
    return str(environment.get("cpu_model") or "unknown CPU") + (f", {cores} cores" if cores else "")


def colour(target: str, whole: ChartsView) -> tuple[int, int]:
    """Return a target's colour, from 1, and its dash pattern, 0 for none."""
    pattern, index = divmod(whole.targets.index(target), COLOURS)
    return index + 1, pattern


def _lines(found: Sequence[SeriesView], whole: ChartsView, base: int | None = None) -> tuple[ChartLine, ...]:
    made = []
    for target, same in groupby(found, key=lambda item: item.target):
        # Reports come last: they do not show where the target is measured now.
        newest_first = sorted(
            same, key=lambda item: (not item.reported, item.points[-1].measured_at), reverse=True
        )
        made += [
            ChartLine(
                item,
                *colour(target, whole),
                age,
                machine(item.environment),
                levels := tuple(_levels(item)),
                _base(item, levels, base),
            )
            for age, item in enumerate(newest_first)
        ]
    return tuple(made)


def _base(series: SeriesView, levels: Sequence[ChartLevel], number: int | None) -> float:
    """Return a version's value, or the newest level where the series lacks it."""
    return next((point.value for point in series.points if point.number == number), levels[-1].value)


def _levels(series: SeriesView) -> Iterable[ChartLevel]:
    begins = sorted({change.number for change in series.changes})
    for _, same in groupby(series.points, key=lambda point: sum(point.number >= number for number in begins)):
        points = list(same)
        yield ChartLevel(points[0].number, points[-1].number, median(point.value for point in points))


def _marks(model: str, lines: Sequence[ChartLine]) -> Iterable[ChartMark]:
    for index, line in enumerate(lines):
        points = {point.number: point for point in line.series.points}
        comparisons = {item.number: item for item in line.series.changes if item.kind == "comparison"}
        # If a version has both kinds, the change of level comes last and says more.
        for change in {item.number: item for item in line.series.changes}.values():
            compared = comparisons.get(change.number)
            if change.number in points:
                yield ChartMark(
                    index,
                    change,
                    points[change.number],
                    line.series.target,
                    _change(change, line.series),
                    _basis(change, compared, line.series),
                    comparison_url(model, change.before, change.number, line.series.target),
                )


def _change(change: ChangeView, series: SeriesView) -> str:
    since = "from here on" if change.kind == "change_point" else f"compared with version {change.before}"
    return f"{format_change(change.ratio, series.metric, series.unit)} {since}"


def _basis(change: ChangeView, compared: ChangeView | None, series: SeriesView) -> str:
    """Return how a change was determined; the ratio of the points on the chart may differ."""
    what, points = (series.metric, series.unit), {point.number: point for point in series.points}
    texts = [_LEVELS if change.kind == "change_point" else _BASIS.get(change.method, "")]
    if compared and compared is not change and compared.method == "paired":
        texts.append(f"side by side with version {compared.before}: {format_change(compared.ratio, *what)}")
    own, before = points[change.number].value, points.get(change.before)
    drawn = format_change(own / before.value, *what) if before and min(own, before.value) > 0 else None
    if drawn and drawn != format_change(change.ratio, *what):
        texts.append(f"by the points on the chart: {drawn}")
    return "; ".join(filter(None, texts))


def comparison_url(model: str, before: int, number: int, target: str) -> str:
    """Return the URL of the comparison of two versions on a target."""
    return url_for("pages.compare", before=f"{model}@{before}", after=f"{model}@{number}", target=target)


def _trend(drawn: Chart, index: int) -> Trend:
    line = drawn.lines[index]
    series, newest = line.series, line.series.points[-1]
    mark = next((item for item in drawn.marks if item.line == index), None)
    since = next((item for item in drawn.breaks if item.line == index), None)
    return Trend(
        line,
        newest,
        quantity(newest.value, series.unit),
        tuple(point.value for point in series.points[-SPARKLINE_POINTS:]),
        _change_text(series, mark, since),
        mark,
        format_share(series.noise, decimals=1) if series.noise is not None else None,
        since,
    )


def _change_text(series: SeriesView, mark: ChartMark | None, since: EnvironmentChange | None) -> str:
    count = len(series.points)
    if mark:
        change = format_change(mark.change.ratio, series.metric, series.unit)
        return f"{mark.word} since version {mark.change.number} ({change})"
    after = f" since its environment changed at version {since.number}" if since else ""
    if count == 1:
        return f"one version measured{after}"
    known = METRICS.get(series.metric)
    if known and known.exact:  # any difference counts
        return f"no significant change in {count} versions{after}"
    level = assess_unchanged([point.value for point in series.points], default_threshold(series.metric))
    if level == "steady":
        return f"no change beyond noise in {count} versions{after}"
    if level == "too_few":
        return f"{count} versions{after}, too few for a trend: it takes {FEWEST}"
    return f"no flagged change in {count} versions{after}, but version {series.points[-1].number} deviates from their level"
