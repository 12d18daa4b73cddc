"""Examines series with new measurements, and records flagged changes as events.

An event reflects the current measurements. If later measurements of the same versions refute it (`same`, the opposite,
or an interval without its ratio), it is removed or reversed: people stop reading a list with known false alarms, and
the measurements stay in the history. Measurements that merely cannot confirm it, such as those of a busy machine, leave
it unchanged.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import structlog

from pt2hub.analysis.changes import change_points
from pt2hub.domain.performance.metrics import Threshold, default_threshold
from pt2hub.server.db.stores.performance.changes import (
    EventStore,
    ExaminedSeries,
    FlaggedChange,
    KnownEvent,
    Point,
)
from pt2hub.server.db.stores.performance.comparisons import ComparableMeasurement, ComparisonStore, PairRow
from pt2hub.server.db.stores.performance.measurements import MeasuredArtifact
from pt2hub.server.db.stores.promotion.policies import PolicyStore
from pt2hub.server.services.performance.comparison_evidence import (
    Sides,
    gather_evidence,
    series_with_replicates,
    spread_between,
)
from pt2hub.server.services.performance.metric_comparisons import to_result
from pt2hub.server.services.webhooks.events import record_regressions

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sqlalchemy.orm import Session

    from pt2hub.domain.performance.metrics import ComparisonResult

_MAX_POINTS = 500
"""Newest versions of a series that are searched for change points."""
_COMPARED_VERSIONS = 10
"""Newest versions that are compared with their predecessor: new measurements may be of older versions too."""
_MAX_SHIFT = 3
"""Versions by which new measurements may move a change point that stays the same event."""
_UNWATCHED = frozenset(("fetch_time", "export_time", "key_time", "reuse_time", "pack_time", "verify_time"))
"""Metrics that depend on the load of the worker, its network and its storage. Compile time is watched."""
_log = structlog.get_logger(__name__)


@dataclass(slots=True)
class _Findings:
    """Changes to the events of the examined series.

    Attributes:
        regressions: Those of the flagged changes that are regressions and were not known as such.
    """

    flagged: list[FlaggedChange] = field(default_factory=list)
    regressions: list[tuple[ExaminedSeries, FlaggedChange]] = field(default_factory=list)
    removed: list[tuple[int, str, int]] = field(default_factory=list)
    moved: dict[int, dict[int, int]] = field(default_factory=dict)

    def add(self, other: _Findings) -> None:
        """Add the findings of another series."""
        self.flagged += other.flagged
        self.regressions += other.regressions
        self.removed += other.removed
        self.moved |= other.moved


@dataclass(frozen=True, slots=True)
class _WatchedSeries:
    """A series with the data for its examination."""

    series: ExaminedSeries
    threshold: Threshold
    points: Sequence[Point]
    events: Mapping[tuple[str, int], KnownEvent]
    measurements: Mapping[int, Sequence[ComparableMeasurement]]
    pairs: Sequence[PairRow]
    specs: Mapping[tuple[int, int], Mapping[str, Any]]
    between: Mapping[int, float]


class ChangeDetection:
    """Examination of a batch of series, with a fixed number of statements."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._events = EventStore(session)
        self._evidence = ComparisonStore(session)
        self._policies = PolicyStore(session)

    def examine_batch(self, limit: int) -> int:
        """Examine the series with the oldest unexamined measurements.

        Returns:
            The number of series; they are locked until the transaction ends.
        """
        taken = self._events.claim_unexamined(limit)
        findings = _Findings()
        for watched in self._series_to_watch(taken) if taken else ():
            try:
                findings.add(_examine(watched))
            except Exception:  # noqa: BLE001  # an arithmetic error in one series must not stop the others
                _log.exception("series not examined", series=watched.series.id, metric=watched.series.metric)
        self._events.remove(findings.removed)
        for series, moved in findings.moved.items():
            self._events.renumber(series, "change_point", moved)
        self._events.put(findings.flagged)
        record_regressions(self._session, findings.regressions)
        self._events.mark_examined(taken)
        return len(taken)

    def _series_to_watch(self, taken: Iterable[ExaminedSeries]) -> list[_WatchedSeries]:
        chosen = self._series_with_direction(taken)
        if not chosen:
            return []
        rows = [series.id for series, _ in chosen]
        points = self._events.points(rows, _MAX_POINTS)
        newest = {own: found[-_COMPARED_VERSIONS - 1 :] for own, found in points.items()}
        measurements = self._measurements(newest)
        pairs = self._pairs(newest)
        events = self._events.of_series(rows)
        versions = {(series.model_id, point.number) for series, _ in chosen for point in newest[series.id]}
        specs = self._evidence.specs(versions)
        compared = [
            measurement for of in measurements.values() for found in of.values() for measurement in found
        ]
        between = spread_between(self._evidence.again(series_with_replicates(compared)))
        return [
            _WatchedSeries(
                series,
                threshold,
                points[series.id],
                events[series.id],
                measurements[series.id],
                pairs[series.id],
                specs,
                between,
            )
            for series, threshold in chosen
        ]

    def _series_with_direction(
        self, taken: Iterable[ExaminedSeries]
    ) -> list[tuple[ExaminedSeries, Threshold]]:
        """Return the watched series of artifacts whose metric has a better direction."""
        known: dict[int, dict[str, Threshold]] = {}
        chosen = []
        for series in taken:
            if series.implementation != "artifact" or series.metric in _UNWATCHED:
                continue
            if series.model_id not in known:
                known[series.model_id] = self._policies.thresholds(series.model_id)
            threshold = known[series.model_id].get(series.metric) or default_threshold(series.metric)
            if threshold.better is not None:
                chosen.append((series, threshold))
        return chosen

    def _measurements(
        self, newest: Mapping[int, Sequence[Point]]
    ) -> dict[int, dict[int, list[ComparableMeasurement]]]:
        found: dict[int, dict[int, list[ComparableMeasurement]]] = {own: defaultdict(list) for own in newest}
        keys = [(own, point.number) for own, points in newest.items() for point in points]
        for measurement in self._evidence.at_points(keys):
            found[measurement.series][measurement.number].append(measurement)
        return found

    def _pairs(self, newest: Mapping[int, Sequence[Point]]) -> dict[int, list[PairRow]]:
        found: dict[int, list[PairRow]] = {own: [] for own in newest}
        artifacts = (point.artifact for points in newest.values() for point in points)
        for pair in self._evidence.pairs(artifacts, newest.keys()):
            found[pair.series].append(pair)
        return found


def _examine(watched: _WatchedSeries) -> _Findings:
    findings = _compare_neighbours(watched)
    findings.add(_find_change_points(watched))
    moved = findings.moved.get(watched.series.id, {})
    known = {place for place, event in watched.events.items() if event.outcome == "worse"}
    known |= {("change_point", new) for new in moved.values()}  # those keep their outcome
    findings.regressions = [
        (watched.series, change)
        for change in findings.flagged
        if change.outcome == "worse" and (change.kind, change.number) not in known
    ]
    return findings


def _compare_neighbours(watched: _WatchedSeries) -> _Findings:
    """Compare the newest versions of a series, each with its predecessor."""
    findings, series = _Findings(), watched.series
    newest = watched.points[-_COMPARED_VERSIONS - 1 :]
    for before, after in pairwise(newest):
        result = _compare(watched, before, after)
        if result.outcome in ("better", "worse"):
            findings.flagged.append(_flag(series, before, after, result))
            continue
        event = watched.events.get(("comparison", after.number))
        if event is not None and _is_refuted(event, result):
            findings.removed.append((series.id, "comparison", after.number))
    return findings


def _compare(watched: _WatchedSeries, before: Point, after: Point) -> ComparisonResult:
    series = watched.series
    earlier, later = (
        MeasuredArtifact(point.artifact, series.model_id, point.number, series.target)
        for point in (before, after)
    )
    specs = tuple(watched.specs.get((series.model_id, point.number), {}) for point in (before, after))
    sides = Sides(earlier, later, (specs[0], specs[1]))
    both = {before.artifact, after.artifact}
    pairs = [pair for pair in watched.pairs if {pair.artifact, pair.baseline} == both]
    measurements = [*watched.measurements[before.number], *watched.measurements[after.number]]
    measurements.sort(key=lambda measurement: measurement.measured_at, reverse=True)
    usual = [point.value for point in watched.points if point.number < before.number]
    return to_result(
        gather_evidence(sides, pairs, measurements, watched.threshold, watched.between),
        usual,
        watched.threshold,
    )


def _is_refuted(event: KnownEvent, result: ComparisonResult) -> bool:
    if result.outcome == "same":
        return True
    if result.low is None or result.high is None:
        return False
    return not result.low <= event.ratio <= result.high


def _flag(series: ExaminedSeries, before: Point, after: Point, result: ComparisonResult) -> FlaggedChange:
    assert result.ratio is not None, "a change has a ratio"
    return FlaggedChange(
        series=series.id,
        model_id=series.model_id,
        kind="comparison",
        number=after.number,
        before=before.number,
        outcome=result.outcome,
        ratio=result.ratio,
        low=result.low,
        high=result.high,
        method=result.method or "",
    )


def _find_change_points(watched: _WatchedSeries) -> _Findings:
    """Find where the series changed its level.

    A change point depends on all measurements, so a new one may move it by a version or two: the event moves with it and
    is not reported again.
    """
    found = {event.number: event for event in _change_points(watched)}
    known = {number: event for (kind, number), event in watched.events.items() if kind == "change_point"}
    first = watched.points[0].number if watched.points else 0
    gone = [number for number in known if number not in found and number >= first]
    moved: dict[int, int] = {}
    for number, event in found.items():
        candidates = [
            old
            for old in gone
            if old not in moved and abs(old - number) <= _MAX_SHIFT and known[old].outcome == event.outcome
        ]
        if number not in known and candidates:
            moved[min(candidates, key=lambda old: abs(old - number))] = number
    removed = [(watched.series.id, "change_point", number) for number in gone if number not in moved]
    return _Findings(list(found.values()), removed=removed, moved={watched.series.id: moved} if moved else {})


def _change_points(watched: _WatchedSeries) -> list[FlaggedChange]:
    points, series = watched.points, watched.series
    values = [point.value for point in points]
    return [
        FlaggedChange(
            series=series.id,
            model_id=series.model_id,
            kind="change_point",
            number=points[change.at].number,
            before=points[change.at - 1].number,
            outcome="worse" if (change.ratio > 1) == (watched.threshold.better == "lower") else "better",
            ratio=change.ratio,
            low=None,
            high=None,
            method="series",
        )
        for change in change_points(values, watched.threshold)
    ]
