"""Measurements side by side: what belongs together has one scale."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import groupby
from typing import TYPE_CHECKING, Any

from pt2hub.domain.performance import METRICS, OF_JOBS
from pt2hub.rendering.quantities import quantity
from pt2hub.rendering.speeds import against
from pt2hub.wire.inspecting import FigureView

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

WIDTH = 120.0
"""Of the longest bar, in its own unit."""
_OWN, _IN_PROCESS = "artifact", "artifact beside"
_SUBJECTS = {
    _OWN: "this artifact",
    _IN_PROCESS: "this artifact",
    "torch_compile": "torch.compile",
}
_BESIDE, _RATIO = "latency_p50", "speedup"
"""What is timed in the build's own process, and the metric that says how many times the artifact's own time it is."""
_ALIKE = 1e-3
"""Relative: times of one process that are one, but for the digits that were kept."""
_MACHINE = ("gpu", "cpu_model")


@dataclass(frozen=True, slots=True)
class Row:
    """A figure, and where it lies on its group's scale.

    Attributes:
        figure: The figure.
        subject: Of what, in words.
        value: Length of its bar, of `WIDTH`.
        low: Where its spread begins.
        high: Where its spread ends.
        machine: Where it was measured, in short.
        note: What must be known to read it, else empty.
    """

    figure: FigureView
    subject: str
    value: float
    low: float
    high: float
    machine: str
    note: str = ""

    @property
    def spread(self) -> float | None:
        """Half of what lies between the lowest and the highest, relative to the figure; None of a single one."""
        figure = self.figure
        return (
            (figure.high - figure.low) / 2 / abs(figure.value)
            if figure.value and figure.low < figure.high
            else None
        )


@dataclass(frozen=True, slots=True)
class Group:
    """Figures of one metric at one batch size.

    Attributes:
        metric: The metric.
        text: What it is, for people; empty where only its reporters know it.
        better: `lower`, `higher`, or None.
        batch: Batch size, or None.
        rows: The figures, the artifact's own first.
    """

    metric: str
    text: str
    better: str | None
    batch: int | None
    rows: tuple[Row, ...]

    @property
    def lasting(self) -> bool:
        """Whether it is of the build: its steps' times and what has a size; no job measures that again."""
        return self.metric in METRICS and self.metric not in OF_JOBS and self.metric != "speedup"


def groups(figures: Iterable[FigureView], environments: Mapping[str, Mapping[str, Any]]) -> list[Group]:
    """Figures by metric and batch size.

    Args:
        figures: In the order in which they are shown.
        environments: Fields of their environment classes.
    """
    given = list(figures)
    return [
        _group(metric, batch, _with_own(list(found), given), given, environments)
        for (metric, batch), found in groupby(given, key=lambda item: (item.metric, item.batch))
    ]


def _with_own(found: list[FigureView], given: Sequence[FigureView]) -> list[FigureView]:
    """Figures of one metric, with what the artifact itself took in the process that timed others beside it.

    Its own figure is of fresh processes, in which everything may be quicker or slower: eager may look faster than it is
    beside that. The worker keeps the ratio, which gives the artifact's time of that process.
    """
    if found[0].metric != _BESIDE:
        return found
    others = [item for item in found if item.subject != _OWN]
    own = _unlike(filter(None, (own_time(item, given) for item in others)))
    return [*(item for item in found if item.subject == _OWN), *own, *others]


def own_time(item: FigureView, given: Iterable[FigureView]) -> FigureView | None:
    """What the artifact took in the process that timed something beside it; None where nobody kept the ratio.

    Args:
        item: The time of what ran beside it.
        given: All figures.
    """
    ratio = _of_same_run(item, _RATIO, given)
    if ratio is None or ratio.value <= 0:
        return None
    own = item.value / ratio.value
    return replace(item, subject=_IN_PROCESS, value=own, low=own, high=own, count=1, runs=())


def _of_same_run(item: FigureView, metric: str, given: Iterable[FigureView]) -> FigureView | None:
    """What a run says of the same subject in another metric."""
    same = (metric, item.subject, item.batch, item.class_digest, item.measured_at)
    return next(
        (
            other
            for other in given
            if (other.metric, other.subject, other.batch, other.class_digest, other.measured_at) == same
        ),
        None,
    )


def _unlike(found: Iterable[FigureView]) -> Iterator[FigureView]:
    """Times without those that stand there already."""
    seen: list[FigureView] = []
    for item in found:
        if not any(_is_one(item, other) for other in seen):
            seen.append(item)
            yield item


def _is_one(item: FigureView, other: FigureView) -> bool:
    alike = abs(item.value - other.value) <= _ALIKE * abs(other.value)
    return alike and (item.class_digest, item.measured_at) == (other.class_digest, other.measured_at)


def _group(
    metric: str,
    batch: int | None,
    found: list[FigureView],
    given: Sequence[FigureView],
    environments: Mapping[str, Mapping[str, Any]],
) -> Group:
    known = METRICS.get(metric)
    largest = {
        unit: max(max(abs(item.high), abs(item.value)) for item in found if item.unit == unit) or 1.0
        for unit in {item.unit for item in found}
    }
    several = len({item.subject for item in found}) > 1
    rows = tuple(
        _row(item, WIDTH / largest[item.unit], environments.get(item.class_digest, {}), _note(item, given))
        if several or metric == _RATIO
        else _row(item, WIDTH / largest[item.unit], environments.get(item.class_digest, {}))
        for item in found
    )
    return Group(metric, known.text if known else "", known.better if known else None, batch, rows)


def _note(item: FigureView, given: Sequence[FigureView]) -> str:
    """In which process a figure was taken, where that of others beside it differs; of a ratio what it says."""
    if item.metric == _BESIDE:
        return "in fresh processes" if item.subject == _OWN else "in the build's own process"
    if item.metric != _RATIO or item.subject == _OWN or item.value <= 0:
        return ""
    told = against(item.value, subject_of(item.subject))
    time = _of_same_run(item, _BESIDE, given)
    own = own_time(time, [item]) if time else None
    if time is None or own is None:
        return told
    return f"{told}: {quantity(own.value, own.unit)} beside {quantity(time.value, time.unit)}"


def _row(item: FigureView, scale: float, environment: Mapping[str, Any], note: str = "") -> Row:
    value, low, high = (round(abs(figure) * scale, 1) for figure in (item.value, item.low, item.high))
    machine = next((str(environment[name]) for name in _MACHINE if environment.get(name)), "")
    return Row(item, subject_of(item.subject), value, low, high, machine, note)


def subject_of(name: str) -> str:
    """What a figure is of, in words."""
    return _SUBJECTS.get(name, name)
