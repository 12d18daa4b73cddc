"""Histories of measurements by series, and trends for the overview.

**A version's measurement in a series** is, everywhere, that of pt2hub's latest run: the median of its processes. An
artifact is measured more than once (when it is built, alongside the next version, by measuring jobs), and a mean of
several runs would be a value that nobody measured. The single runs are on the artifact's page, and a point has the
lowest and highest of them. If there are only reports, of which production sends thousands, it is the median of the
latest 200. Points are computed in `db.stores.performance.measurements`; clients, which have no points, use
`rendering.speeds`.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from pt2hub.analysis.changes import assess_unchanged, change_points, find_noise_limit, usual_noise
from pt2hub.domain.digests import Digest
from pt2hub.domain.performance.metrics import METRICS, default_threshold
from pt2hub.server.db.stores.performance.series import HistoryStore, StoredSeries
from pt2hub.server.db.stores.promotion.policies import PolicyStore
from pt2hub.server.db.stores.values import stamp
from pt2hub.server.services import not_found
from pt2hub.server.services.performance import missing_measurements
from pt2hub.server.views.overview import Trend
from pt2hub.server.views.version_speeds import VersionSpeeds
from pt2hub.wire.performance import (
    ChangeView,
    HistoryView,
    SeriesList,
    SeriesSummary,
    SeriesView,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from sqlalchemy.orm import Session

    from pt2hub.domain.performance.metrics import SeriesFilter, Threshold
    from pt2hub.server.db.engine import Sessions
    from pt2hub.wire.performance import PointView

DEFAULT_POINTS = 200
MAX_POINTS = 1000
_MAX_SERIES = 50
"""Series per metric: reports may come from a thousand kinds of machines."""
_MAX_LISTED_SERIES = 1000
SPARKLINE_POINTS = 20
_HISTORY_POINTS = 60
"""Versions of a model's own chart."""
_LATENCY = "latency_p50"


class PerformanceService:
    """Histories of measurements, and trends for the overview."""

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions

    def baseline(self, model: str, number: int, target: str) -> Digest | None:
        """Return the baseline of a version's artifact: that of the newest earlier version with one.

        Returns:
            Its manifest digest; None where no earlier version has an artifact for the target.
        """
        with self._sessions.begin() as session:
            return HistoryStore(session).earlier_artifact(model, number, target)

    def history(
        self,
        model: str,
        wanted: SeriesFilter,
        *,
        before: int | None = None,
        limit: int = DEFAULT_POINTS,
    ) -> HistoryView:
        """Return the history of a metric over a model's versions, by series.

        Args:
            before: Exclusive upper bound of version numbers; None for the newest.
            limit: Maximum number of points per series.

        Returns:
            Series with points; none where the metric was never measured for the model.

        Raises:
            InvalidInput: The model, implementation or environment class is malformed.
            UnknownTarget: The target's name is malformed.
            UnknownMetric: The metric is unknown; the hint has suggestions.
            NotFound: The model does not exist, or a filter matches no measurements; the hint lists what exists.
        """
        missing_measurements.check_form(wanted)
        with self._sessions.begin() as session:
            model_id = not_found.require_model(session, model)
            found = HistoryStore(session).series(model_id, wanted, limit=_MAX_SERIES + 1)
            if not found:
                missing_measurements.check(session, model_id, model, wanted)
            series = views(session, found[:_MAX_SERIES], before, limit)
        return HistoryView(model, wanted.metric, series, more=len(found) > _MAX_SERIES)

    def series(self, model: str) -> SeriesList:
        """Return a model's series with their last values.

        Raises:
            InvalidInput: The name is malformed.
            NotFound: The model does not exist; the hint has suggestions.
        """
        with self._sessions.begin() as session:
            store = HistoryStore(session)
            found = store.series(not_found.require_model(session, model), limit=_MAX_LISTED_SERIES)
            values = store.values([item.id for item in found], limit=SPARKLINE_POINTS)
        summaries = [_summary(item, values[item.id]) for item in found if item.id in values]
        return SeriesList(tuple(sorted(summaries, key=_sort_key)))

    def trends(self, models: Sequence[str]) -> dict[str, tuple[Trend, ...]]:
        """Return the latency trends of models over their last versions, with flagged changes.

        Returns:
            By model name: a trend per target, at the example batch if there is one, newest measurements first.
        """
        with self._sessions.begin() as session:
            store = HistoryStore(session)
            rows = store.rows(models)
            chosen = _chosen(store.front_series([*rows.values()]), store.example_batches([*rows.values()]))
            values = store.values([item.id for item in chosen], limit=SPARKLINE_POINTS)
            changes = store.last_changes({row: shown[0][0] for row, shown in values.items()})
        found: dict[int, list[Trend]] = {}
        for item in chosen:
            if item.id in values:
                trend = _trend(item, values[item.id], changes.get(item.id))
                found.setdefault(item.model_id, []).append(trend)
        return {
            name: tuple(sorted(found.get(row, ()), key=lambda trend: -trend.series.newest))  # stable
            for name, row in rows.items()
        }

    def speeds(self, versions: Mapping[str, int], target: str | None = None) -> dict[str, Trend]:
        """Return the latency of versions on their main targets, with the versions before them.

        The main target is a GPU if the version was measured on one, else the one measured last.

        Args:
            versions: Number of the version by the model's name.
            target: The target instead of the main one.

        Returns:
            By model name; models whose version was not measured are left out.
        """
        with self._sessions.begin() as session:
            store = HistoryStore(session)
            rows = store.rows([*versions])
            numbers = {row: versions[name] for name, row in rows.items()}
            found = store.main_series(numbers, store.example_batches([*numbers]), target)
            upto = {item.id: numbers[item.model_id] for item in found}
            values = store.values([*upto], limit=SPARKLINE_POINTS, upto=[*upto.values()])
            changes = store.last_changes({row: shown[0][0] for row, shown in values.items()}, upto)
        trends = {item.model_id: _trend(item, values[item.id], changes.get(item.id)) for item in found}
        return {name: trends[row] for name, row in rows.items() if row in trends}

    def main_speeds(self, model: str, number: int | None, numbers: Sequence[int]) -> VersionSpeeds | None:
        """Return latencies of versions on the main target of one of them.

        Args:
            number: The version of which it is the main target; None for the target measured last.
            numbers: The versions to return, beside those of the history.

        Returns:
            None if the model was never measured.
        """
        with self._sessions.begin() as session:
            model_id, store = not_found.require_model(session, model), HistoryStore(session)
            batches = store.example_batches([model_id])
            found = store.main_series({model_id: number}, batches, None) if number else []
            found = found or _chosen(store.front_series([model_id]), batches)
            newest = sorted(found, key=lambda item: item.newest_at, reverse=True)[:1]
            speeds = self._speeds_of(session, model_id, newest, numbers, limit=_HISTORY_POINTS)
        return speeds[0] if speeds else None

    @staticmethod
    def _speeds_of(
        session: Session, model_id: int, found: Sequence[StoredSeries], numbers: Sequence[int], *, limit: int
    ) -> tuple[VersionSpeeds, ...]:
        store, rows = HistoryStore(session), [item.id for item in found]
        history, wanted = store.values(rows, limit=limit), store.values_of(rows, numbers)
        changes = store.last_changes({row: shown[0][0] for row, shown in history.items()})
        codes = store.codes(model_id, [item.target for item in found], numbers)
        threshold = PolicyStore(session).thresholds(model_id).get(_LATENCY) or default_threshold(_LATENCY)
        return tuple(
            VersionSpeeds(
                series=item.id,
                target=item.target,
                metric=item.metric,
                unit=item.unit,
                batch=item.batch or None,
                values=dict(shown) | wanted.get(item.id, {}),
                least=math.log1p(threshold.min_effect),
                limit=find_noise_limit([value for _, value in shown], threshold),
                history=tuple(shown),
                change=changes.get(item.id),
                codes=codes.get(item.target, {}),
            )
            for item in found
            if (shown := history.get(item.id))
        )


def views(
    session: Session, found: Sequence[StoredSeries], before: int | None, limit: int
) -> tuple[SeriesView, ...]:
    """Return the series of one model that have points, with their points, in the order given.

    Args:
        before: Exclusive upper bound of version numbers; None for the newest.
        limit: Maximum number of points per series.
    """
    if not found:
        return ()
    store, rows = HistoryStore(session), [item.id for item in found]
    points = store.points(rows, before=before, limit=limit + 1)
    changes = store.changes(rows)
    environments = store.environments(item.class_digest for item in found)
    thresholds = PolicyStore(session).thresholds(found[0].model_id)
    return tuple(
        SeriesView(
            metric=item.metric,
            unit=item.unit,
            target=item.target,
            implementation=item.implementation,
            class_digest=Digest(item.class_digest),
            environment=environments.get(item.class_digest, {}),
            better=threshold.better,
            batch=item.batch or None,
            noise=usual_noise([point.value for point in shown]),
            points=tuple(shown),
            changes=tuple(_changes(changes.get(item.id, ()), shown, threshold)),
            more=len(points[item.id]) > limit,
            reported=item.reported,
        )
        for item in found
        if (shown := points.get(item.id, [])[-limit:])
        and (threshold := thresholds.get(item.metric) or default_threshold(item.metric))
    )


def _changes(
    flagged: Iterable[ChangeView], points: Sequence[PointView], threshold: Threshold
) -> list[ChangeView]:
    """Return the changes within the points; those of a metric without a direction have no events and are computed here."""
    if threshold.better is None:
        found = change_points([point.value for point in points], threshold)
        return [
            ChangeView(points[item.at].number, points[item.at - 1].number, "same", item.ratio)
            for item in found
        ]
    return [item for item in flagged if points[0].number <= item.number <= points[-1].number]


def _summary(item: StoredSeries, values: Sequence[tuple[int, float]]) -> SeriesSummary:
    newest, value = values[-1]
    return SeriesSummary(
        metric=item.metric,
        unit=item.unit,
        target=item.target,
        implementation=item.implementation,
        class_digest=Digest(item.class_digest),
        newest=newest,
        value=value,
        measured_at=stamp(item.newest_at),
        batch=item.batch or None,
        values=tuple(value for _, value in values),
    )


def _trend(item: StoredSeries, values: Sequence[tuple[int, float]], change: ChangeView | None) -> Trend:
    index = next((at for at, (number, _) in enumerate(values) if change and number >= change.number), None)
    level = assess_unchanged([value for _, value in values], default_threshold(item.metric))
    return Trend(_summary(item, values), change, index, level)


def _sort_key(item: SeriesSummary) -> tuple[int, str, str, int, str]:
    """Return the sort key of a series: known metrics first; the stable sort keeps the newest of equal ones first."""
    known = list(METRICS)
    index = known.index(item.metric) if item.metric in METRICS else len(known)
    return index, item.metric, item.target, item.batch or 0, item.implementation


def _chosen(found: Iterable[StoredSeries], batches: dict[int, int]) -> list[StoredSeries]:
    """Return one series per model and target, at the example batch if there is one."""
    chosen: dict[tuple[int, str], StoredSeries] = {}
    for item in sorted(found, key=lambda item: item.batch != batches.get(item.model_id)):  # stable
        chosen.setdefault((item.model_id, item.target), item)
    return sorted(chosen.values(), key=lambda item: item.target)
