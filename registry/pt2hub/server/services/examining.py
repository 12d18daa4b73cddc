"""Looks through series with new figures, and keeps what changed as events.

An event says what the figures say now. Where later figures of the same versions refute it (they say `same`, the
opposite, or an interval without its ratio), it is removed or turned: a list that keeps alarms known to be false is read
less each time, and the figures behind them stay in the history. Figures that merely cannot confirm it, such as those
of a busy machine, leave it as it is.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import structlog

from pt2hub.domain.performance import Threshold, default_threshold
from pt2hub.server.analysis.changes import change_points
from pt2hub.server.db.stores.events import EventStore, ExaminedSeries, Flagged, Point, Told
from pt2hub.server.db.stores.performance import Measured
from pt2hub.server.db.stores.policies import PolicyStore
from pt2hub.server.db.stores.verdicts import EvidenceStore, Figure, PairRow
from pt2hub.server.services.evidence import Sides, gathered, judged_by_runs, spread_between
from pt2hub.server.services.verdicts import judge

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sqlalchemy.orm import Session

    from pt2hub.domain.performance import Judgement

_POINTS = 500
"""Versions of a series that its change points are looked for in."""
_NEWEST = 10
"""Versions that are compared with the one before: new figures may be of older versions too."""
_NEAR = 3
"""Versions by which a change point may move with new figures and stay the same event."""
_UNWATCHED = frozenset(("fetch_time", "export_time", "key_time", "reuse_time", "pack_time", "verify_time"))
"""They tell how busy the worker, its network and its storage were; nobody is to be told. Compiling is watched."""
_log = structlog.get_logger(__name__)


@dataclass(slots=True)
class _Findings:
    """What becomes of the events of the series that were looked through."""

    flagged: list[Flagged] = field(default_factory=list)
    removed: list[tuple[int, str, int]] = field(default_factory=list)
    moved: dict[int, dict[int, int]] = field(default_factory=dict)

    def add(self, other: _Findings) -> None:
        """Takes over what was found in one more series."""
        self.flagged += other.flagged
        self.removed += other.removed
        self.moved |= other.moved


@dataclass(frozen=True, slots=True)
class _Watched:
    """A series and everything that its examination needs."""

    series: ExaminedSeries
    threshold: Threshold
    points: Sequence[Point]
    events: Mapping[tuple[str, int], Told]
    figures: Mapping[int, Sequence[Figure]]
    pairs: Sequence[PairRow]
    specs: Mapping[tuple[int, int], Mapping[str, Any]]
    between: Mapping[int, float]


class Examination:
    """One look at some series, a fixed number of statements for all of them."""

    def __init__(self, session: Session) -> None:
        """Works in the caller's transaction."""
        self._events = EventStore(session)
        self._evidence = EvidenceStore(session)
        self._policies = PolicyStore(session)

    def some(self, limit: int) -> int:
        """Examines the series whose figures have waited longest.

        Args:
            limit: At most so many.

        Returns:
            How many there were; they are locked until the transaction ends.
        """
        taken = self._events.unexamined(limit)
        findings = _Findings()
        for watched in self._watched(taken) if taken else ():
            try:
                findings.add(_examined(watched))
            except Exception:  # noqa: BLE001  # whatever the figures of one series make the arithmetic do, the others go on
                _log.exception("series not examined", series=watched.series.id, metric=watched.series.metric)
        self._events.remove(findings.removed)
        for series, moved in findings.moved.items():
            self._events.renumber(series, "change_point", moved)
        self._events.put(findings.flagged)
        self._events.examined(taken)
        return len(taken)

    def _watched(self, taken: Iterable[ExaminedSeries]) -> list[_Watched]:
        chosen = self._directed(taken)
        if not chosen:
            return []
        rows = [series.id for series, _ in chosen]
        points = self._events.points(rows, _POINTS)
        newest = {own: found[-_NEWEST - 1 :] for own, found in points.items()}
        figures = self._figures(newest)
        pairs = self._pairs(newest)
        events = self._events.of_series(rows)
        versions = {(series.model_id, point.number) for series, _ in chosen for point in newest[series.id]}
        specs = self._evidence.specs(versions)
        told = [figure for of in figures.values() for found in of.values() for figure in found]
        between = spread_between(self._evidence.again(judged_by_runs(told)))
        return [
            _Watched(
                series,
                threshold,
                points[series.id],
                events[series.id],
                figures[series.id],
                pairs[series.id],
                specs,
                between,
            )
            for series, threshold in chosen
        ]

    def _directed(self, taken: Iterable[ExaminedSeries]) -> list[tuple[ExaminedSeries, Threshold]]:
        """The series of artifacts for which somebody said which way is better."""
        known: dict[int, dict[str, Threshold]] = {}
        chosen = []
        for series in taken:
            if series.subject != "artifact" or series.metric in _UNWATCHED:
                continue
            if series.model_id not in known:
                known[series.model_id] = self._policies.thresholds(series.model_id)
            threshold = known[series.model_id].get(series.metric) or default_threshold(series.metric)
            if threshold.better is not None:
                chosen.append((series, threshold))
        return chosen

    def _figures(self, newest: Mapping[int, Sequence[Point]]) -> dict[int, dict[int, list[Figure]]]:
        found: dict[int, dict[int, list[Figure]]] = {own: defaultdict(list) for own in newest}
        places = [(own, point.number) for own, points in newest.items() for point in points]
        for figure in self._evidence.at_points(places):
            found[figure.series][figure.number].append(figure)
        return found

    def _pairs(self, newest: Mapping[int, Sequence[Point]]) -> dict[int, list[PairRow]]:
        found: dict[int, list[PairRow]] = {own: [] for own in newest}
        artifacts = (point.artifact for points in newest.values() for point in points)
        for pair in self._evidence.pairs(artifacts, newest.keys()):
            found[pair.series].append(pair)
        return found


def _examined(watched: _Watched) -> _Findings:
    findings = _compared(watched)
    findings.add(_changed(watched))
    return findings


def _compared(watched: _Watched) -> _Findings:
    """The newest versions of a series, each against the one before."""
    findings, series = _Findings(), watched.series
    newest = watched.points[-_NEWEST - 1 :]
    for before, after in pairwise(newest):
        judgement = _judged(watched, before, after)
        if judgement.verdict in ("better", "worse"):
            findings.flagged.append(_flagged(series, before, after, judgement))
            continue
        told = watched.events.get(("comparison", after.number))
        if told is not None and _refuted(told, judgement):
            findings.removed.append((series.id, "comparison", after.number))
    return findings


def _judged(watched: _Watched, before: Point, after: Point) -> Judgement:
    series = watched.series
    earlier, later = (
        Measured(point.artifact, series.model_id, point.number, series.target) for point in (before, after)
    )
    specs = tuple(watched.specs.get((series.model_id, point.number), {}) for point in (before, after))
    sides = Sides(earlier, later, (specs[0], specs[1]))
    both = {before.artifact, after.artifact}
    pairs = [pair for pair in watched.pairs if {pair.artifact, pair.baseline} == both]
    figures = [*watched.figures[before.number], *watched.figures[after.number]]
    figures.sort(key=lambda figure: figure.measured_at, reverse=True)
    usual = [point.value for point in watched.points if point.number < before.number]
    return judge(
        gathered(sides, pairs, figures, watched.threshold, watched.between), usual, watched.threshold
    )


def _refuted(told: Told, judgement: Judgement) -> bool:
    if judgement.verdict == "same":
        return True
    if judgement.low is None or judgement.high is None:
        return False
    return not judgement.low <= told.ratio <= judgement.high


def _flagged(series: ExaminedSeries, before: Point, after: Point, judgement: Judgement) -> Flagged:
    assert judgement.ratio is not None, "a change has a ratio"
    return Flagged(
        series=series.id,
        model_id=series.model_id,
        kind="comparison",
        number=after.number,
        before=before.number,
        verdict=judgement.verdict,
        ratio=judgement.ratio,
        low=judgement.low,
        high=judgement.high,
        method=judgement.method or "",
    )


def _changed(watched: _Watched) -> _Findings:
    """Where the series changed its level.

    A change point is where it is by all figures together, so that one more may move it by a version or two: the event
    moves with it, and is not told again.
    """
    found = {event.number: event for event in _change_points(watched)}
    known = {number: told for (kind, number), told in watched.events.items() if kind == "change_point"}
    first = watched.points[0].number if watched.points else 0
    gone = [number for number in known if number not in found and number >= first]
    moved: dict[int, int] = {}
    for number, event in found.items():
        near = [
            old
            for old in gone
            if old not in moved and abs(old - number) <= _NEAR and known[old].verdict == event.verdict
        ]
        if number not in known and near:
            moved[min(near, key=lambda old: abs(old - number))] = number
    removed = [(watched.series.id, "change_point", number) for number in gone if number not in moved]
    return _Findings(list(found.values()), removed, {watched.series.id: moved} if moved else {})


def _change_points(watched: _Watched) -> list[Flagged]:
    points, series = watched.points, watched.series
    values = [point.value for point in points]
    return [
        Flagged(
            series=series.id,
            model_id=series.model_id,
            kind="change_point",
            number=points[change.at].number,
            before=points[change.at - 1].number,
            verdict="worse" if (change.ratio > 1) == (watched.threshold.better == "lower") else "better",
            ratio=change.ratio,
            low=None,
            high=None,
            method="series",
        )
        for change in change_points(values, watched.threshold)
    ]
