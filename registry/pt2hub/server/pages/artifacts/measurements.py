"""Measurements of an artifact, grouped by metric on common scales."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from itertools import groupby
from typing import TYPE_CHECKING, Any

from pt2hub.domain.performance.metrics import METRICS, OF_JOBS
from pt2hub.rendering.quantities import quantity
from pt2hub.rendering.speeds import against
from pt2hub.server.views.inspection import MetricView

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

WIDTH = 120.0
"""Length of the longest bar, in SVG units."""
_OWN, _IN_PROCESS = "artifact", "artifact in build process"
_IMPLEMENTATIONS = {
    _OWN: "this artifact",
    _IN_PROCESS: "this artifact",
    "torch_compile": "torch.compile",
}
_LATENCY, _RATIO = "latency_p50", "speedup"
"""Baselines are timed in the build's own process; the ratio is their time relative to the artifact's there."""
_RELATIVE_TOLERANCE = 1e-3
"""Times of one process that differ by less are equal but for rounding."""
_MACHINE = ("gpu", "cpu_model")


@dataclass(frozen=True, slots=True)
class Row:
    """A measurement on its group's scale.

    Attributes:
        value: Length of its bar, of `WIDTH`.
        low: Start of its range on that scale.
        high: End of its range.
        machine: Short name of the machine.
        note: How it was measured; may be empty.
    """

    measurement: MetricView
    implementation: str
    value: float
    low: float
    high: float
    machine: str
    note: str = ""

    @property
    def spread(self) -> float | None:
        """Half the range relative to the value, None for a single value."""
        item = self.measurement
        return (item.high - item.low) / 2 / abs(item.value) if item.value and item.low < item.high else None


@dataclass(frozen=True, slots=True)
class Group:
    """Measurements of one metric at one batch size.

    Attributes:
        text: Description of the metric; empty for reported metrics without one.
        better: `lower`, `higher`, or None.
        batch: Batch size, or None.
    """

    metric: str
    text: str
    better: str | None
    batch: int | None
    rows: tuple[Row, ...]

    @property
    def is_permanent(self) -> bool:
        """Whether it was measured by the build alone (sizes and step times) and is never measured again."""
        return self.metric in METRICS and self.metric not in OF_JOBS and self.metric != "speedup"


@dataclass(frozen=True, slots=True)
class MeasurementTable:
    """Groups of measurements with the machine and time of most of them, so that rows need not repeat these.

    Attributes:
        machine: The most frequent machine; may be empty.
        measured_at: The most frequent time, ISO 8601; empty without rows.
        is_uniform: Whether all rows have both.
    """

    groups: tuple[Group, ...]
    machine: str = ""
    measured_at: str = ""
    is_uniform: bool = True


def table(groups: Sequence[Group]) -> MeasurementTable:
    """Return groups of measurements as a table."""
    rows = [row for group in groups for row in group.rows]
    if not rows:
        return MeasurementTable(tuple(groups))
    machines = Counter(row.machine for row in rows)
    times = Counter(row.measurement.measured_at for row in rows)
    newest = max(times, key=lambda time: (times[time], time))
    machine = machines.most_common(1)[0][0]
    return MeasurementTable(tuple(groups), machine, newest, is_uniform=len(machines) == len(times) == 1)


def groups(items: Iterable[MetricView], environments: Mapping[str, Mapping[str, Any]]) -> list[Group]:
    """Group measurements by metric and batch size, keeping their order."""
    given = list(items)
    return [
        _group(metric, batch, _with_own(list(found), given), given, environments)
        for (metric, batch), found in groupby(given, key=lambda item: (item.metric, item.batch))
    ]


def _with_own(found: list[MetricView], given: Sequence[MetricView]) -> list[MetricView]:
    """Add the artifact's own time in the process that timed the baselines.

    The artifact is measured in fresh processes, where times may differ, so baselines could look faster or slower than
    they are. The worker keeps the ratio, which yields the artifact's time in the baselines' process.
    """
    if found[0].metric != _LATENCY:
        return found
    others = [item for item in found if item.implementation != _OWN]
    own = _unique(filter(None, (own_time(item, given) for item in others)))
    return [*(item for item in found if item.implementation == _OWN), *own, *others]


def own_time(item: MetricView, given: Iterable[MetricView]) -> MetricView | None:
    """Return the artifact's time in the process that timed a baseline, None without a recorded ratio."""
    ratio = _of_same_run(item, _RATIO, given)
    if ratio is None or ratio.value <= 0:
        return None
    own = item.value / ratio.value
    return replace(item, implementation=_IN_PROCESS, value=own, low=own, high=own, count=1, runs=())


def _of_same_run(item: MetricView, metric: str, given: Iterable[MetricView]) -> MetricView | None:
    """Return the same run's measurement of another metric."""
    same = (metric, item.implementation, item.batch, item.class_digest, item.measured_at)
    return next(
        (
            other
            for other in given
            if (other.metric, other.implementation, other.batch, other.class_digest, other.measured_at)
            == same
        ),
        None,
    )


def _unique(found: Iterable[MetricView]) -> Iterator[MetricView]:
    """Yield measurements without duplicates."""
    seen: list[MetricView] = []
    for item in found:
        if not any(_is_same(item, other) for other in seen):
            seen.append(item)
            yield item


def _is_same(item: MetricView, other: MetricView) -> bool:
    is_close = abs(item.value - other.value) <= _RELATIVE_TOLERANCE * abs(other.value)
    return is_close and (item.class_digest, item.measured_at) == (other.class_digest, other.measured_at)


def _group(
    metric: str,
    batch: int | None,
    found: list[MetricView],
    given: Sequence[MetricView],
    environments: Mapping[str, Mapping[str, Any]],
) -> Group:
    known = METRICS.get(metric)
    largest = {
        unit: max(max(abs(item.high), abs(item.value)) for item in found if item.unit == unit) or 1.0
        for unit in {item.unit for item in found}
    }
    several = len({item.implementation for item in found}) > 1
    rows = tuple(
        _row(item, WIDTH / largest[item.unit], environments.get(item.class_digest, {}), _note(item, given))
        if several or metric == _RATIO
        else _row(item, WIDTH / largest[item.unit], environments.get(item.class_digest, {}))
        for item in found
    )
    return Group(metric, known.text if known else "", known.better if known else None, batch, rows)


def _note(item: MetricView, given: Sequence[MetricView]) -> str:
    """Return the process in which a latency was measured, or the meaning of a ratio."""
    if item.metric == _LATENCY:
        return "in fresh processes" if item.implementation == _OWN else "in the build's own process"
    if item.metric != _RATIO or item.implementation == _OWN or item.value <= 0:
        return ""
    text = against(item.value, implementation_name(item.implementation))
    time = _of_same_run(item, _LATENCY, given)
    own = own_time(time, [item]) if time else None
    if time is None or own is None:
        return text
    return f"{text}: {quantity(own.value, own.unit)} compared with {quantity(time.value, time.unit)}"


def _row(item: MetricView, scale: float, environment: Mapping[str, Any], note: str = "") -> Row:
    value, low, high = (round(abs(number) * scale, 1) for number in (item.value, item.low, item.high))
    machine = next((str(environment[name]) for name in _MACHINE if environment.get(name)), "")
    return Row(item, implementation_name(item.implementation), value, low, high, machine, note)


def implementation_name(name: str) -> str:
    """Return the name of an implementation."""
    return _IMPLEMENTATIONS.get(name, name)
