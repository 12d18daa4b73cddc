"""Rows of the versions on a model's page."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pt2hub.domain.performance.metrics import SeriesFilter
from pt2hub.rendering.quantities import format_count, quantity
from pt2hub.rendering.sheets import measurement_state
from pt2hub.rendering.states import format_state
from pt2hub.rendering.targets import short_target
from pt2hub.rendering.version_speeds import SpeedChange, compare_speed
from pt2hub.wire.responses import VersionSummary

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pt2hub.server.services.performance.history import PerformanceService
    from pt2hub.wire.performance import SeriesSummary, SeriesView

MAX_TARGETS = 8
"""Targets with a column of their own."""


@dataclass(frozen=True, slots=True)
class Base:
    """The version that others are compared with.

    Attributes:
        name: What it is called: `prod`.
    """

    name: str
    number: int


@dataclass(frozen=True, slots=True)
class Cell:
    """A version's state on a target.

    Attributes:
        name: The target's short name.
        label: Target and state in words; empty if the version does not have the target.
    """

    target: str
    name: str
    state: str = "none"
    label: str = ""


@dataclass(frozen=True, slots=True)
class VersionRow:
    """A version in the list.

    Attributes:
        cells: One for each column.
        more: Targets without a column, in words: `92 more, 3 failed`.
        measured: Its measurement on the main target; empty if there is none.
        unmeasured: Why there is none, of an artifact for the main target.
        change: How that differs from the base.
    """

    version: VersionSummary
    cells: tuple[Cell, ...]
    more: str = ""
    measured: str = ""
    unmeasured: str = ""
    change: SpeedChange | None = None


class Speeds:
    """Measurements of versions in one series."""

    def __init__(self, series: SeriesView | None, base: Base | None, base_value: float | None) -> None:
        self._series, self._base, self._base_value = series, base, base_value
        self._values = {point.number: point.value for point in series.points} if series else {}

    @property
    def target(self) -> str:
        """The series' target; empty without a series."""
        return self._series.target if self._series else ""

    def measured(self, number: int) -> str:
        """Return a version's measurement as text; empty if there is none."""
        value = self._values.get(number)
        return quantity(value, self._series.unit) if self._series and value is not None else ""

    def change(self, number: int) -> SpeedChange | None:
        """Return how a version's measurement differs from the base's; None for the base itself."""
        value, base, series = self._values.get(number), self._base, self._series
        if value is None or series is None or base is None or self._base_value is None:
            return None
        if number == base.number:
            return None
        return compare_speed(
            value, self._base_value, series.metric, series.unit, noise=series.noise, than=base.name
        )

    def compare(self, number: int | None) -> str:
        """Return how a version's measurement differs from the base's, with the target; empty if that is unknown."""
        change = self.change(number) if number else None
        if change is None or self._series is None:
            return ""
        if change.outcome == "same":
            return f"its speed on {short_target(self._series.target)} is {change.text}"
        return f"{change.text} on {short_target(self._series.target)}"


def read_speeds(
    performance: PerformanceService,
    model: str,
    summary: SeriesSummary | None,
    versions: Sequence[VersionSummary],
    base: Base | None,
) -> Speeds:
    """Read the measurements of versions and of the base in a series: at most two reads."""
    if summary is None or not versions:
        return Speeds(None, base, None)
    newest, count = versions[0].number, len(versions)
    series = _read(performance, model, summary, newest, count)
    value = _value(series, base)
    if value is None and base is not None:
        value = _value(_read(performance, model, summary, base.number, 1), base)
    return Speeds(series, base, value)


def list_targets(versions: Sequence[VersionSummary], main: str | None) -> list[str]:
    """Return the targets of versions: the main one first, then those of the newest version."""
    found = list(dict.fromkeys(target for version in versions for target in version.targets))
    return sorted(found, key=lambda target: target != main)  # stable


def list_rows(versions: Sequence[VersionSummary], targets: Sequence[str], speeds: Speeds) -> list[VersionRow]:
    """Return a row for each version.

    Args:
        targets: All targets of the versions; the first ones have columns.
    """
    shown, hidden = targets[:MAX_TARGETS], frozenset(targets[MAX_TARGETS:])
    names = {target: short_target(target, shown) for target in shown}
    return [
        VersionRow(
            version,
            tuple(_cell(version, target, name) for target, name in names.items()),
            _more({target: state for target, state in version.targets.items() if target in hidden}),
            speeds.measured(version.number),
            _unmeasured(version, speeds.target or next(iter(targets), "")),
            speeds.change(version.number),
        )
        for version in versions
    ]


def _cell(version: VersionSummary, target: str, name: str) -> Cell:
    state = version.targets.get(target)
    if state is None:
        return Cell(target, name)
    measurement = version.measurements.get(target, "measured")
    more = f", {measurement_state(measurement)}" if measurement != "measured" else ""
    return Cell(target, name, state, f"{name}: {format_state(state)}{more}")


def _unmeasured(version: VersionSummary, target: str) -> str:
    state = version.measurements.get(target, "measured")
    return measurement_state(state) if state != "measured" else ""


def _more(states: Mapping[str, str]) -> str:
    if not states:
        return ""
    counts = Counter(state for state in states.values() if state != "succeeded")
    others = [f"{count:,} {format_state(state)}" for state, count in counts.most_common()]
    return ", ".join([f"+{len(states):,}", *others])


def count_hidden(targets: Sequence[str]) -> str:
    """Return how many targets have no column: `+92 targets`; empty if all have one."""
    hidden = len(targets) - MAX_TARGETS
    return f"+{format_count(hidden, 'target')}" if hidden > 0 else ""


def _read(
    performance: PerformanceService, model: str, summary: SeriesSummary, newest: int, count: int
) -> SeriesView | None:
    wanted = SeriesFilter(
        summary.metric,
        summary.implementation,
        summary.target,
        summary.batch,
        str(summary.class_digest),
    )
    found = performance.history(model, wanted, before=newest + 1, limit=count).series
    return next((series for series in found if series.batch == summary.batch), None)


def _value(series: SeriesView | None, base: Base | None) -> float | None:
    if series is None or base is None:
        return None
    return next((point.value for point in series.points if point.number == base.number), None)
