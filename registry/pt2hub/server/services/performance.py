"""Histories of figures, by series, and what front pages show of them.

**One rule says which figure a version has in a series**, for histories, charts, front pages, versions, artifacts and
comparisons alike: that of pt2hub's latest run there, which is the median of its processes. An artifact is measured more
than once (when it is built, beside the version that follows, by measuring jobs), and a middle of several runs would be
a figure that nobody saw. Who looks closer gets the runs: an artifact's page lists them, a point has the lowest and the
highest of them. Where there are reports only, of which production sends thousands, it is the median of the latest 200.
The rule is written down where points are made (`db.stores.performance`), which everybody reads, and for a client, which
has an artifact's figures and no points, in `rendering.speeds`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pt2hub.domain.digests import Digest
from pt2hub.domain.names import parse_model_name
from pt2hub.domain.performance import METRICS, default_threshold
from pt2hub.server.analysis.changes import change_points, settled, usual_noise
from pt2hub.server.db.stores.histories import HistoryStore, StoredSeries
from pt2hub.server.db.stores.policies import PolicyStore
from pt2hub.server.db.stores.values import stamp
from pt2hub.server.db.stores.versions import VersionStore
from pt2hub.server.services import missing, places, unmeasured
from pt2hub.wire.overview import Trend
from pt2hub.wire.performance import (
    ChangeView,
    HistoryView,
    SeriesList,
    SeriesSummary,
    SeriesView,
    Sparkline,
    SparklineList,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import datetime

    from sqlalchemy.orm import Session

    from pt2hub.domain.performance import SeriesFilter, Threshold
    from pt2hub.server.db.engine import Sessions
    from pt2hub.wire.performance import PointView

DEFAULT_POINTS = 200
MAX_POINTS = 1000
DEFAULT_FRONT = 20
MAX_FRONT = 100
_MOST_SERIES = 50
"""Of a metric: whoever reports from a thousand kinds of machines looks at a few of them at a time."""
_MOST_LISTED = 1000
_VALUES = 20
"""Values of a sparkline."""


class PerformanceService:
    """Histories, and what front pages show of them."""

    def __init__(self, sessions: Sessions) -> None:
        """Is built by the container."""
        self._sessions = sessions

    def baseline(self, model: str, number: int, target: str) -> Digest | None:
        """The artifact that a version's artifact is measured beside: of the newest earlier version that has one.

        Args:
            model: The model's name.
            number: The version's number.
            target: The target's name.

        Returns:
            Its manifest digest; None where no earlier version has an artifact for that target.
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
        """How a metric moved over a model's versions, series by series.

        Args:
            model: The model's name.
            wanted: Which metric, and which of its series.
            before: The version's number that points are below, None for the newest.
            limit: At most so many points of each series.

        Returns:
            Series with points; none where the metric was never measured of the model.

        Raises:
            InvalidInput: A text is no model's name, no subject or no environment class.
            UnknownTarget: The target's name has another form.
            UnknownMetric: Nobody knows the metric, near names are in the hint.
            NotFound: There is no such model, or nothing was measured on the target, at the batch, of the subject or in
                the environment; what there is is in the hint.
        """
        unmeasured.check_form(wanted)
        with self._sessions.begin() as session:
            model_id = model_row(session, model)
            found = HistoryStore(session).series(model_id, wanted, limit=_MOST_SERIES + 1)
            if not found:
                unmeasured.check(session, model_id, model, wanted)
            series = views(session, found[:_MOST_SERIES], before, limit)
        return HistoryView(model, wanted.metric, series, more=len(found) > _MOST_SERIES)

    def series(self, model: str) -> SeriesList:
        """What is measured of a model: its series with their last values.

        Args:
            model: The model's name.

        Raises:
            InvalidInput: The text is no model's name.
            NotFound: There is no such model; near names are in the hint.
        """
        with self._sessions.begin() as session:
            store = HistoryStore(session)
            found = store.series(model_row(session, model), limit=_MOST_LISTED)
            values = store.values([item.id for item in found], limit=_VALUES)
        summaries = [_summary(item, values[item.id]) for item in found if item.id in values]
        return SeriesList(tuple(sorted(summaries, key=_place_in_list)))

    def sparklines(self, *, after: str | None = None, limit: int = DEFAULT_FRONT) -> SparklineList:
        """What a front page shows: models with the newest figures first, a sparkline for each target.

        Args:
            after: As the page before said it, None for the newest.
            limit: At most so many models.

        Raises:
            InvalidInput: `after` is none.
        """
        begin = places.numbered(after, "models") if after is not None else None
        with self._sessions.begin() as session:
            store = HistoryStore(session)
            found = store.front(begin, limit=limit + 1)
            models = [row for row, _, _ in found[:limit]]
            chosen = _chosen(store.front_series(models), store.example_batches(models))
            values = store.values([item.id for item in chosen], limit=_VALUES)
        lines: dict[int, list[SeriesSummary]] = {row: [] for row in models}
        for item in chosen:
            if item.id in values:
                lines[item.model_id].append(_summary(item, values[item.id]))
        page = tuple(Sparkline(name, tuple(lines[row])) for row, name, _ in found[:limit])
        return SparklineList(page, next=_next(*found[limit - 1]) if len(found) > limit else None)

    def trends(self, models: Sequence[str]) -> dict[str, tuple[Trend, ...]]:
        """How models' latency moved over their last versions, and where a change was flagged.

        Args:
            models: Names of models; those that there are not are left out of the result.

        Returns:
            By the model's name: a trend of the series that `sparklines` would show for each target; those that the
            newest versions were measured on come first.
        """
        with self._sessions.begin() as session:
            store = HistoryStore(session)
            rows = store.rows(models)
            chosen = _chosen(store.front_series([*rows.values()]), store.example_batches([*rows.values()]))
            values = store.values([item.id for item in chosen], limit=_VALUES)
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


def model_row(session: Session, name: str) -> int:
    """The row of a model.

    Raises:
        InvalidInput: The text is no model's name.
        NotFound: There is no such model; near names are in the hint.
    """
    model_id = VersionStore(session).model_id(parse_model_name(name))
    if model_id is None:
        raise missing.no_model(session, name)
    return model_id


def views(
    session: Session, found: Sequence[StoredSeries], before: int | None, limit: int
) -> tuple[SeriesView, ...]:
    """Series of one model with their points, in the order given; without those that have none.

    Args:
        session: Reads them.
        found: The series.
        before: The version's number that points are below, None for the newest.
        limit: At most so many points of each.
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
            subject=item.subject,
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
    """The changes within points. Those of a metric without a direction are no events, and looked for here."""
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
        subject=item.subject,
        class_digest=Digest(item.class_digest),
        newest=newest,
        value=value,
        measured_at=stamp(item.newest_at),
        batch=item.batch or None,
        values=tuple(value for _, value in values),
    )


def _trend(item: StoredSeries, values: Sequence[tuple[int, float]], change: ChangeView | None) -> Trend:
    place = next((at for at, (number, _) in enumerate(values) if change and number >= change.number), None)
    level = settled([value for _, value in values], default_threshold(item.metric))
    return Trend(_summary(item, values), change, place, level)


def _place_in_list(item: SeriesSummary) -> tuple[int, str, str, int, str]:
    """Known metrics first; the sort is stable, so that of equal ones the newest stays first."""
    known = list(METRICS)
    place = known.index(item.metric) if item.metric in METRICS else len(known)
    return place, item.metric, item.target, item.batch or 0, item.subject


def _chosen(found: Iterable[StoredSeries], batches: dict[int, int]) -> list[StoredSeries]:
    """One series of each model and target, of those with the newest figures first: at the example batch if any is."""
    chosen: dict[tuple[int, str], StoredSeries] = {}
    for item in sorted(found, key=lambda item: item.batch != batches.get(item.model_id)):  # stable
        chosen.setdefault((item.model_id, item.target), item)
    return sorted(chosen.values(), key=lambda item: item.target)


def _next(model_id: int, _name: str, newest_at: datetime) -> str:
    return places.told(stamp(newest_at), model_id)
