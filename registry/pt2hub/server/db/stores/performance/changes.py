"""Flagged changes, and the series to be examined for them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, cast

from sqlalchemy import and_, bindparam, case, delete, func, select, text, tuple_, update
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.orm import aliased

from pt2hub.domain.digests import Digest
from pt2hub.server.db.performance_schema import PerformanceEvent as SQLEvent
from pt2hub.server.db.performance_schema import Series as SQLSeries
from pt2hub.server.db.performance_schema import SeriesPoint as SQLPoint
from pt2hub.server.db.reading import only_readable
from pt2hub.server.db.schema import Model as SQLModel
from pt2hub.server.db.stores.values import stamp
from pt2hub.wire.performance import EventView

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from sqlalchemy import ColumnElement, Row, Select, Table
    from sqlalchemy.orm import InstrumentedAttribute, Session

_EVENTS = cast("Table", SQLEvent.__table__)
_MINE = ("series_id", "kind", "number")
_UPDATED_COLUMNS = ("before", "outcome", "ratio", "low", "high", "method")
_POINTS = text("""
    SELECT wanted.series_id, p.number, p.artifact, p.value
    FROM unnest(CAST(:series AS bigint[])) AS wanted (series_id)
    JOIN LATERAL (
        SELECT own.number, own.artifact, own.value FROM series_points AS own
        WHERE own.series_id = wanted.series_id ORDER BY own.number DESC LIMIT :most
    ) AS p ON true
    ORDER BY wanted.series_id, p.number
""")

_WAITING = text("""
    SELECT count(*) > 0, coalesce(bool_or(points >= :fewest), false) FROM (
        SELECT (
            SELECT count(*) FROM (
                SELECT 1 FROM series_points AS p WHERE p.series_id = s.id LIMIT :fewest
            ) AS first
        ) AS points
        FROM series AS s WHERE s.examined_at IS DISTINCT FROM s.changed_at ORDER BY s.changed_at LIMIT :most
    ) AS waiting
""")
_LOOKED_AT = 1000
"""Unexamined series that are checked for their length; more of them wait for a further pass anyway."""


def _put() -> Any:
    """Add or update events; an existing one keeps its time, unless its outcome reverses."""
    statement = insert(_EVENTS)
    turned = _EVENTS.c.outcome != statement.excluded.outcome
    at = case((turned, func.clock_timestamp()), else_=_EVENTS.c.at)
    values = {name: statement.excluded[name] for name in _UPDATED_COLUMNS}
    return statement.on_conflict_do_update(index_elements=_MINE, set_={**values, "at": at})


_PUT = _put()
# Only what was examined: measurements that came meanwhile are left to the next pass.
_EXAMINED = (
    update(cast("Table", SQLSeries.__table__))
    .where(SQLSeries.__table__.c.id == bindparam("series"))
    .values(examined_at=bindparam("seen"))
)


@dataclass(frozen=True, slots=True)
class ExaminedSeries:
    """A series with new measurements.

    Attributes:
        batch: Batch size, 0 where there is none.
        implementation: `artifact`, or a baseline.
        changed_at: When its latest measurement was added.
    """

    id: int
    model_id: int
    target: str
    metric: str
    batch: int
    implementation: str
    changed_at: datetime


@dataclass(frozen=True, slots=True)
class Point:
    """The value of a series at a version."""

    number: int
    artifact: Digest
    value: float


@dataclass(frozen=True, slots=True)
class KnownEvent:
    """The outcome, `better` or `worse`, and the ratio of an event."""

    outcome: str
    ratio: float


@dataclass(frozen=True, slots=True)
class FlaggedChange:
    """A change to record as an event.

    Attributes:
        kind: `comparison` or `change_point`.
        before: The previous version, or the last one of the old level.
        outcome: `better` or `worse`.
        ratio: After over before.
        low: Lower end of its interval, or None.
        high: Its upper end, or None.
        method: How it was found.
    """

    series: int
    model_id: int
    kind: str
    number: int
    before: int
    outcome: str
    ratio: float
    low: float | None
    high: float | None
    method: str

    @property
    def row(self) -> dict[str, Any]:
        """Return the event as a row of the table."""
        values = {name: getattr(self, name) for name in _UPDATED_COLUMNS}
        return {
            "series_id": self.series,
            "model_id": self.model_id,
            "kind": self.kind,
            "number": self.number,
            **values,
        }


class EventStore:
    """Flagged changes."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def waiting(self, fewest: int) -> tuple[bool, bool]:
        """Return whether there are unexamined series, and whether any of them is long."""
        wanted = {"fewest": fewest, "most": _LOOKED_AT}
        some, long = self._session.execute(_WAITING, wanted).one()
        return bool(some), bool(long)

    def claim_unexamined(self, limit: int) -> list[ExaminedSeries]:
        """Lock and return unexamined series, oldest first, skipping those of other processes."""
        columns = SQLSeries.__table__.c
        statement = (
            select(
                *(
                    columns[name]
                    for name in (
                        "id",
                        "model_id",
                        "target",
                        "metric",
                        "batch",
                        "implementation",
                        "changed_at",
                    )
                )
            )
            .where(columns.examined_at.is_distinct_from(columns.changed_at))
            .order_by(columns.changed_at)
            .limit(limit)
            .with_for_update(skip_locked=True)
        )
        return [ExaminedSeries(*row) for row in self._session.execute(statement)]

    def mark_examined(self, series: Sequence[ExaminedSeries]) -> None:
        """Mark series as examined, up to the measurements that they had when they were claimed."""
        if series:
            self._session.connection().execute(
                _EXAMINED, [{"series": item.id, "seen": item.changed_at} for item in series]
            )

    def points(self, series: Collection[int], limit: int) -> dict[int, list[Point]]:
        """Return the points of the series' newest versions, oldest first.

        Args:
            limit: Maximum number of versions per series.
        """
        found: dict[int, list[Point]] = {own: [] for own in series}
        for own, number, artifact, value in self._session.execute(
            _POINTS, {"series": list(series), "most": limit}
        ):
            found[own].append(Point(number, Digest(artifact), value))
        return found

    def of_series(self, series: Collection[int]) -> dict[int, dict[tuple[str, int], KnownEvent]]:
        """Return the events of each series, by kind and version."""
        found: dict[int, dict[tuple[str, int], KnownEvent]] = {own: {} for own in series}
        columns = _EVENTS.c
        said = (columns.series_id, columns.kind, columns.number, columns.outcome, columns.ratio)
        rows = self._session.execute(select(*said).where(columns.series_id.in_(list(series))))
        for own, kind, number, outcome, ratio in rows:
            found[own][kind, number] = KnownEvent(outcome, ratio)
        return found

    def put(self, events: Sequence[FlaggedChange]) -> None:
        """Add events, or update existing ones."""
        if events:
            self._session.execute(_PUT, [event.row for event in events])

    def renumber(self, series: int, kind: str, moved: Mapping[int, int]) -> None:
        """Move events to other versions of their series; they keep their times."""
        for old, new in moved.items():
            mine = (SQLEvent.series_id == series, SQLEvent.kind == kind, SQLEvent.number == old)
            self._session.execute(update(SQLEvent).where(*mine).values(number=new))

    def remove(self, events: Collection[tuple[int, str, int]]) -> None:
        """Remove events, each by series, kind and version."""
        if events:
            columns = [_EVENTS.c[name] for name in _MINE]
            self._session.execute(delete(_EVENTS).where(tuple_(*columns).in_(list(events))))

    def page(
        self, filters: Mapping[str, str | int | None], *, after: tuple[datetime, int] | None, limit: int
    ) -> list[EventView]:
        """Return events of models that may be read, newest first.

        Args:
            filters: Any of `model`, `number`, `target`, `outcome`; None does not filter.
            after: Time and id of the previous page's last event; None for the newest.
        """
        place = (SQLEvent.at, SQLEvent.id)
        statement = (
            _events()
            .where(*self._matching(filters), *only_readable(SQLModel.name))
            .order_by(*(column.desc() for column in place))
            .limit(limit)
        )
        if after is not None:
            statement = statement.where(tuple_(*place) < after)
        return [_view(row) for row in self._session.execute(statement)]

    def of_versions(
        self, keys: Collection[tuple[int, int, str]], target: str | None, limit: int
    ) -> list[EventView]:
        """Return the events of versions, the largest changes of each version first.

        Args:
            keys: Model id, number and outcome of each version.
            target: Only for this target; None for all.
            limit: Maximum number of events of each version.
        """
        if not keys:
            return []
        mine = (SQLEvent.model_id, SQLEvent.number, SQLEvent.outcome)
        size = case((SQLEvent.ratio > 0, func.abs(func.ln(SQLEvent.ratio))), else_=0.0)
        # The median time of a call comes first: it names the change.
        rank = func.row_number().over(
            partition_by=mine, order_by=((SQLSeries.metric != "latency_p50"), size.desc(), SQLEvent.id)
        )
        ranked = (
            select(SQLEvent.id.label("id"), rank.label("rank"))
            .join(SQLSeries, SQLSeries.id == SQLEvent.series_id)
            .where(tuple_(*mine).in_(list(keys)))
        )
        if target is not None:
            ranked = ranked.where(SQLSeries.target == target)
        first = ranked.subquery()
        statement = (
            _events()
            .join(first, first.c.id == SQLEvent.id)
            .where(first.c.rank <= limit)
            .order_by(first.c.rank)
        )
        return [_view(row) for row in self._session.execute(statement)]

    def _matching(self, filters: Mapping[str, str | int | None]) -> list[ColumnElement[bool]]:
        # By the model's id, which is in the index; a name would be looked up after the join.
        model = select(SQLModel.id).where(SQLModel.name == filters.get("model")).scalar_subquery()
        columns = {
            "model": SQLEvent.model_id == model,
            "number": SQLEvent.number == filters.get("number"),
            "target": SQLSeries.target == filters.get("target"),
            "outcome": SQLEvent.outcome == filters.get("outcome"),
        }
        return [condition for name, condition in columns.items() if filters.get(name) is not None]


def _events() -> Select[SQLEvent, SQLSeries, str, float | None, float | None]:
    """Select events with their series, models and both points."""
    own, before = aliased(SQLPoint), aliased(SQLPoint)
    return (
        select(SQLEvent, SQLSeries, SQLModel.name, own.value, before.value)
        .join(SQLSeries, SQLSeries.id == SQLEvent.series_id)
        .join(SQLModel, SQLModel.id == SQLEvent.model_id)
        .outerjoin(own, _at(own, SQLEvent.number))
        .outerjoin(before, _at(before, SQLEvent.before))
        .execution_options(populate_existing=True)
    )


def _at(point: type[SQLPoint], number: InstrumentedAttribute[int]) -> ColumnElement[bool]:
    return and_(point.series_id == SQLEvent.series_id, point.number == number)


def _view(row: Row[SQLEvent, SQLSeries, str, float | None, float | None]) -> EventView:
    event, series, model, own, before = row
    return EventView(
        id=event.id,
        model=model,
        number=event.number,
        before=event.before,
        target=series.target,
        metric=series.metric,
        unit=series.unit,
        outcome=event.outcome,
        kind=event.kind,
        ratio=event.ratio,
        at=stamp(event.at),
        method=event.method,
        batch=series.batch or None,
        low=event.low,
        high=event.high,
        points=own / before if own and before and min(own, before) > 0 else None,
    )
