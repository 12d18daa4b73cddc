"""Search for versions by fields and labels, newest first.

Each condition first lists the versions that it matches, up to a limit. Conditions that match few versions are intersected
here. Those that match many are checked batch by batch from the newest version on, until the page is full. One statement
with all conditions takes up to 100 times as long: PostgreSQL does not know which labels occur together, and joins all.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy import ARRAY, BigInteger, and_, case, cast, exists, func, literal_column, or_, select, true

from pt2hub.domain.builds import BuildKind, BuildState, Readiness
from pt2hub.server.db.reading import only_readable
from pt2hub.server.db.schema import Alias as SQLAlias
from pt2hub.server.db.schema import Build as SQLBuild
from pt2hub.server.db.schema import Label as SQLLabel
from pt2hub.server.db.schema import Model as SQLModel
from pt2hub.server.db.schema import Version as SQLVersion

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy import ColumnElement, Select
    from sqlalchemy.orm import InstrumentedAttribute, Session

    from pt2hub.domain.version_filters import LabelFilter, VersionFilter

_FEW = 2000
"""Versions that a condition may match to be listed: reading the rows of so many takes a few milliseconds."""
_MAX_COUNTED = 20_000
"""Rows of a label that are counted to find the rarest one, which takes a few milliseconds."""
_GROWTH = 4
_MAX_BATCH = 10_000
_UNFINISHED = (BuildState.QUEUED, BuildState.RUNNING)
_STATES = {
    Readiness.READY: (BuildState.SUCCEEDED,),
    Readiness.PARTIAL: (*_UNFINISHED, BuildState.FAILED, BuildState.CANCELLED),
    Readiness.PENDING: _UNFINISHED,
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

    def find(self, wanted: VersionFilter, *, before: int | None, limit: int) -> list[int]:
        """Return ids of versions that may be read, newest first.

        Args:
            before: Exclusive upper bound of the ids; None for the newest.
        """
        few: set[int] | None = None
        frequent: list[Select[Any]] = []
        for matching in _conditions(wanted):
            ids = self._session.scalars(matching.limit(_FEW + 1)).all()
            if len(ids) > _FEW:
                frequent.append(matching)
            else:
                few = set(ids) if few is None else few & set(ids)
        found: list[int] = []
        source = self._rarest(frequent) if few is None else None
        others = [matching for matching in frequent if matching is not source]
        for batch in self._batches(few, source, before=before, first=limit):
            found += self._check(batch, others, wanted)
            if len(found) >= limit:
                break
        return found[:limit]

    def _rarest(self, frequent: list[Select[Any]]) -> Select[Any] | None:
        """Return the statement of the rarest of the labels; None without one."""
        labels = list(filter(_is_label, frequent))
        return min(labels, key=self._count) if len(labels) > 1 else next(iter(labels), None)

    def _count(self, matching: Select[Any]) -> int:
        """Return how many versions a condition matches, counted up to a limit."""
        some = matching.limit(_MAX_COUNTED).subquery()
        return self._session.scalar(select(func.count()).select_from(some)) or 0

    def _batches(
        self, few: set[int] | None, source: Select[Any] | None, *, before: int | None, first: int
    ) -> Iterator[list[int]]:
        """Yield ids of the versions to check, newest first, in batches that grow."""
        if few is not None:
            yield sorted((id_ for id_ in few if before is None or id_ < before), reverse=True)
            return
        statement = select(SQLVersion.id) if source is None else source
        (column,) = statement.selected_columns
        size = first
        while True:
            rest = statement if before is None else statement.where(column < before)
            batch = list(self._session.scalars(rest.order_by(column.desc()).limit(size)))
            yield batch
            if len(batch) < size:
                return
            before, size = batch[-1], min(_GROWTH * size, _MAX_BATCH)

    def _check(self, ids: list[int], frequent: list[Select[Any]], wanted: VersionFilter) -> list[int]:
        """Return those of the versions that meet the frequent conditions and may be read, in the same order."""
        for matching in frequent:
            ids = self._keep(ids, matching)
        limits = only_readable(SQLModel.name)
        if wanted.state is not None:
            limits = (*limits, _readiness() == wanted.state.value)
        return self._keep(ids, select(SQLVersion.id).join(SQLModel).where(*limits)) if limits else ids

    def _keep(self, ids: list[int], matching: Select[Any]) -> list[int]:
        """Return those of the versions that a statement selects, in the same order."""
        if not ids:
            return ids
        (column,) = matching.selected_columns
        # With a limit the rows are looked up one by one; otherwise PostgreSQL reads all rows of a frequent label.
        batch = func.unnest(cast(ids, ARRAY(BigInteger))).table_valued("id").render_derived(name="batch")
        found = matching.where(column == batch.c.id).limit(1).lateral()
        kept = set(self._session.scalars(select(batch.c.id).select_from(batch).join(found, true())))
        return [id_ for id_ in ids if id_ in kept]

    def has_key(self, key: str) -> bool:
        """Return whether a version that may be read has a label with this key."""
        found = select(SQLLabel.id).join(SQLModel, SQLModel.id == SQLLabel.model_id)
        mine = (SQLLabel.key == key, SQLLabel.version_id.is_not(None), *only_readable(SQLModel.name))
        return self._session.scalar(found.where(*mine).limit(1)) is not None

    def known_keys(self) -> list[str]:
        """Return keys of the labels that were set last, for suggestions."""
        latest = (
            select(SQLLabel.key)
            .join(SQLModel, SQLModel.id == SQLLabel.model_id)
            .where(*only_readable(SQLModel.name))
            .order_by(SQLLabel.id.desc())
            .limit(_FEW)
            .subquery()
        )
        return list(self._session.scalars(select(latest.c.key).distinct()))


def _conditions(wanted: VersionFilter) -> Iterator[Select[Any]]:
    """Yield a statement for each condition, which selects the ids of the versions that it matches."""
    for label in wanted.labels:
        found = select(SQLLabel.version_id).where(SQLLabel.version_id.is_not(None), SQLLabel.key == label.key)
        yield found if label.value is None else found.where(SQLLabel.value == label.value)
    if wanted.model is not None:
        name = SQLModel.name
        mine = (
            name.startswith(wanted.model, autoescape=True)
            if wanted.model.endswith("/")
            else name == wanted.model
        )
        yield select(SQLVersion.id).join(SQLModel).where(mine)
    if wanted.alias is not None:
        yield select(SQLAlias.version_id).where(
            SQLAlias.version_id.is_not(None), SQLAlias.name == wanted.alias
        )
    if wanted.target is not None:
        yield _with_builds(SQLBuild.target == wanted.target)
    if wanted.state is not None:
        yield _with_builds(SQLBuild.state.in_(_STATES[wanted.state]), SQLBuild.first_submitted)
    if wanted.publisher is not None:
        yield select(SQLVersion.id).where(SQLVersion.published_by["name"].astext == wanted.publisher)
    if wanted.since is not None:
        yield select(SQLVersion.id).where(SQLVersion.created_at >= wanted.since)
    if wanted.until is not None:
        yield select(SQLVersion.id).where(SQLVersion.created_at <= wanted.until)


def _with_builds(*conditions: Any) -> Select[Any]:
    return select(SQLBuild.version_id).where(SQLBuild.kind == BuildKind.BUILD, *conditions)


def _is_label(matching: Select[Any]) -> bool:
    """Return whether a condition's statement reads the index of labels, which is in the order of the versions."""
    (column,) = matching.selected_columns
    return column.table is SQLLabel.__table__


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
