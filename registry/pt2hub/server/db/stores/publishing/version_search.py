"""Search for versions by fields and labels, newest or oldest first.

The first versions are checked first: most searches fill their page there. Otherwise the rest is searched at once, by indexes.
PostgreSQL would have to choose between the two by guessing which labels occur together.
"""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING

from sqlalchemy import (
    ARRAY,
    BigInteger,
    ColumnElement,
    Text,
    and_,
    any_,
    case,
    cast,
    exists,
    func,
    literal_column,
    or_,
    select,
    text,
    tuple_,
)

from pt2hub.domain.builds import UNFINISHED, BuildKind, BuildState, Readiness
from pt2hub.server.db.performance_schema import SeriesPoint as SQLPoint
from pt2hub.server.db.reading import only_readable
from pt2hub.server.db.schema import Alias as SQLAlias
from pt2hub.server.db.schema import Build as SQLBuild
from pt2hub.server.db.schema import Label as SQLLabel
from pt2hub.server.db.schema import Model as SQLModel
from pt2hub.server.db.schema import Version as SQLVersion

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from sqlalchemy.orm import InstrumentedAttribute, Session

    from pt2hub.domain.version_filters import LabelFilter, VersionFilter

_CHECKED_PER_FOUND = 20
"""Versions that are checked first, per wanted one."""
_EXACT_PLANS = text("SET LOCAL plan_cache_mode = force_custom_plan")
"""Plans each search by its values: how many versions have a label differs by orders of magnitude."""
_STATES = {
    Readiness.READY: (BuildState.SUCCEEDED,),
    Readiness.PARTIAL: (*UNFINISHED, BuildState.FAILED, BuildState.CANCELLED),
    Readiness.PENDING: UNFINISHED,
    Readiness.FAILED: (BuildState.FAILED,),
    Readiness.CANCELLED: (BuildState.CANCELLED,),
}
"""By readiness, the states of which a version's first-submitted builds have at least one."""


def has_label(wanted: LabelFilter, owner: InstrumentedAttribute[int]) -> ColumnElement[bool]:
    """Return the condition for models with a label of their own."""
    mine = [SQLLabel.model_id == owner, SQLLabel.version_id.is_(None), SQLLabel.key == wanted.key]
    if wanted.value is not None:
        mine.append(SQLLabel.value == wanted.value)
    return exists().where(*mine)


class VersionSearchStore:
    """Ids of versions that match a filter."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def find(
        self, wanted: VersionFilter, *, after: int | None, limit: int, oldest_first: bool = False
    ) -> list[int]:
        """Return ids of versions that may be read, newest first unless asked otherwise.

        Args:
            after: Id after which the page begins; None for the first page.
        """
        id_ = SQLVersion.id
        order = id_.asc() if oldest_first else id_.desc()
        beyond, upto = (operator.gt, operator.le) if oldest_first else (operator.lt, operator.ge)
        conditions = [*_conditions(wanted), *self._of_models(wanted.model)]
        rest = [] if after is None else [beyond(id_, after)]
        first = select(id_).where(*rest).order_by(order)
        last = self._session.scalar(first.offset(_CHECKED_PER_FOUND * limit - 1).limit(1))
        if last is None:
            return self._matching([*conditions, *rest], limit, oldest_first=oldest_first)
        self._session.execute(_EXACT_PLANS)
        found = self._matching([*conditions, *rest, upto(id_, last)], limit, oldest_first=oldest_first)
        if (left := limit - len(found)) > 0:
            found += self._matching([*conditions, beyond(id_, last)], left, oldest_first=oldest_first)
        return found

    def fastest(
        self, wanted: VersionFilter, series: int, *, after: int | None, limit: int
    ) -> list[tuple[int, int]]:
        """Return id and number of versions that have a point in a series, the lowest value first.

        Args:
            wanted: Its model is the one of the series.
            after: Number of the version after which the page begins; None for the first page.
        """
        point = (SQLPoint.value, -SQLPoint.number)
        conditions = [*_conditions(wanted), *self._of_models(wanted.model), SQLPoint.series_id == series]
        if after is not None:
            last = select(*point).where(SQLPoint.series_id == series, SQLPoint.number == after).subquery()
            conditions.append(tuple_(*point) > select(last.c[0], last.c[1]).scalar_subquery())
        rows = self._session.execute(
            select(SQLVersion.id, SQLVersion.number)
            .join(SQLPoint, SQLPoint.number == SQLVersion.number)
            .where(*conditions)
            .order_by(*point)
            .limit(limit)
        )
        return [(id_, number) for id_, number in rows]

    def _matching(
        self, conditions: Sequence[ColumnElement[bool]], limit: int, *, oldest_first: bool
    ) -> list[int]:
        """Return the first versions that meet all conditions."""
        # Materialized: PostgreSQL would stop at the limit, and take a plan that is fast only if it is reached soon.
        matching = select(SQLVersion.id).where(*conditions).cte("matching").prefix_with("MATERIALIZED")
        order = matching.c.id.asc() if oldest_first else matching.c.id.desc()
        return list(self._session.scalars(select(matching.c.id).order_by(order).limit(limit)))

    def _of_models(self, model: str | None) -> Iterator[ColumnElement[bool]]:
        """Yield the condition for versions of the wanted models that may be read; none if these are all models."""
        name = SQLModel.name
        limits = [*only_readable(name)]
        if model is not None:
            limits.append(name.startswith(model, autoescape=True) if model.endswith("/") else name == model)
        if limits:
            # Listed first, so that they are combined with labels in one scan instead of model by model.
            ids = list(self._session.scalars(select(SQLModel.id).where(*limits)))
            yield SQLVersion.model_id == any_(cast(ids, ARRAY(BigInteger)))


def _conditions(wanted: VersionFilter) -> Iterator[ColumnElement[bool]]:
    """Yield the conditions of a filter, without that on the model."""
    for label in wanted.labels:
        if label.value is not None:
            yield SQLVersion.label_values.contains({label.key: label.value})
    keys = [label.key for label in wanted.labels if label.value is None]
    if keys:
        yield SQLVersion.label_values.has_all(cast(keys, ARRAY(Text)))
    if wanted.alias is not None:
        yield SQLVersion.id.in_(select(SQLAlias.version_id).where(SQLAlias.name == wanted.alias))
    if wanted.target is not None:
        yield _has_build(SQLBuild.target == wanted.target)
    if wanted.state is not None:
        yield _has_build(SQLBuild.state.in_(_STATES[wanted.state]), SQLBuild.first_submitted)
        yield _readiness() == wanted.state.value
    if wanted.publisher is not None:
        yield SQLVersion.published_by["name"].astext == wanted.publisher
    if wanted.since is not None:
        yield SQLVersion.created_at >= wanted.since
    if wanted.until is not None:
        yield SQLVersion.created_at <= wanted.until


def _has_build(*conditions: ColumnElement[bool] | InstrumentedAttribute[bool]) -> ColumnElement[bool]:
    return SQLVersion.id.in_(select(SQLBuild.version_id).where(SQLBuild.kind == BuildKind.BUILD, *conditions))


def _readiness() -> ColumnElement[str]:
    """Select the readiness of a version, as `domain.builds.readiness` defines it."""
    state = SQLBuild.state
    succeeded = state == BuildState.SUCCEEDED
    over = state.in_([each for each in BuildState if each.final])
    value = case(
        (func.bool_and(succeeded), Readiness.READY.value),
        (func.bool_or(succeeded), Readiness.PARTIAL.value),
        (or_(func.count() == literal_column("0"), func.bool_or(~over)), Readiness.PENDING.value),
        (func.bool_or(state == BuildState.FAILED), Readiness.FAILED.value),
        else_=Readiness.CANCELLED.value,
    )
    mine = and_(SQLBuild.version_id == SQLVersion.id, SQLBuild.first_submitted)
    return select(value).where(mine).correlate(SQLVersion).scalar_subquery()
