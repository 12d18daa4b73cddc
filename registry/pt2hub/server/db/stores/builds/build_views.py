"""Views of builds: state, position in the queue, and wait reason."""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from sqlalchemy import and_, bindparam, func, or_, select, tuple_
from sqlalchemy.orm import aliased

from pt2hub.domain.builds import UNFINISHED, BuildFilter, BuildKind, BuildOrder, BuildState, Outcome
from pt2hub.domain.digests import Digest
from pt2hub.domain.principals import read_principal
from pt2hub.server.db.reading import only_readable
from pt2hub.server.db.schema import Artifact as SQLArtifact
from pt2hub.server.db.schema import Build as SQLBuild
from pt2hub.server.db.schema import BuildAttempt as SQLBuildAttempt
from pt2hub.server.db.schema import Model as SQLModel
from pt2hub.server.db.schema import Version as SQLVersion
from pt2hub.server.db.stores.builds.attempts import AttemptStore
from pt2hub.server.db.stores.builds.measurement_states import MeasurementStateStore
from pt2hub.server.db.stores.builds.progress import ProgressStore
from pt2hub.server.db.stores.operations.workers import is_offered, last_seen
from pt2hub.server.db.stores.values import optional_stamp, stamp
from pt2hub.wire.responses import AttemptView, BuildView, MeasurementStatus, StepView, WaitReason

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from sqlalchemy import ColumnElement, Row, Select
    from sqlalchemy.orm import InstrumentedAttribute, Session

_MAX_COUNTED_ONE_BY_ONE = 4
"""Up to so many positions are counted one by one; more are cheaper to rank together."""
_KEYS: dict[
    BuildOrder, tuple[ColumnElement[Any] | InstrumentedAttribute[Any], InstrumentedAttribute[str]]
] = {
    BuildOrder.NEWEST: (SQLBuild.created_at, SQLBuild.id),
    BuildOrder.OLDEST: (SQLBuild.created_at, SQLBuild.id),
    BuildOrder.ENDED: (SQLBuild.finished_at, SQLBuild.id),
    BuildOrder.LONGEST: (SQLBuild.finished_at - SQLBuild.started_at, SQLBuild.id),
}


@dataclass(frozen=True, slots=True)
class _BuildContext:
    """The parts of a view that are not in its row.

    Attributes:
        position: The build's position in its queue, None unless it is queued.
    """

    position: int | None
    steps: tuple[StepView, ...] = ()
    attempts: tuple[AttemptView, ...] = ()
    measurement: MeasurementStatus | None = None


class BuildViewStore:
    """Views of builds."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def view(self, build_id: str, *, heartbeat_timeout: timedelta) -> BuildView | None:
        """Return a build with its steps and all its attempts."""
        found = self._views(SQLBuild.id == build_id, heartbeat_timeout)
        return found[0] if found else None

    def views(self, version_id: int, *, heartbeat_timeout: timedelta) -> list[BuildView]:
        """Return the builds of a version with their steps and attempts, in the order submitted."""
        builds = and_(SQLBuild.version_id == version_id, SQLBuild.kind == BuildKind.BUILD)
        return self._views(builds, heartbeat_timeout)

    def of(self, build_ids: Sequence[str], *, heartbeat_timeout: timedelta) -> list[BuildView]:
        """Return the builds with their steps and attempts, those of a version in the order submitted."""
        return self._views(SQLBuild.id.in_(build_ids), heartbeat_timeout)

    def page(
        self,
        wanted: BuildFilter,
        *,
        after: tuple[datetime | timedelta, str] | None,
        limit: int,
        heartbeat_timeout: timedelta,
    ) -> list[BuildView]:
        """Return the builds that may be read, in the wanted order, without their steps.

        Args:
            after: What the previous page's last build was sorted by, and its id; None for the first page.
        """
        key = _KEYS[wanted.order]
        in_order = list(key) if wanted.order is BuildOrder.OLDEST else [column.desc() for column in key]
        # Ids are selected first: a model may have a hundred thousand builds, and sorting whole views takes seconds.
        chosen = (
            select(SQLBuild.id)
            .join(SQLVersion, SQLVersion.id == SQLBuild.version_id)
            .where(*self._matching(wanted))
            .order_by(*in_order)
            .limit(limit)
        )
        if limits := only_readable(SQLModel.name):
            chosen = chosen.join(SQLModel, SQLModel.id == SQLVersion.model_id).where(*limits)
        if after is not None:
            place = tuple_(*key)
            chosen = chosen.where(place > after if wanted.order is BuildOrder.OLDEST else place < after)
        statement = _select_views(heartbeat_timeout).where(SQLBuild.id.in_(chosen)).order_by(*in_order)
        rows = self._session.execute(statement).all()
        positions, measured = self._positions(rows), self._measurement_states(rows)
        return [
            _view(row, _BuildContext(positions.get(row.Build.id), measurement=measured.get(row.artifact)))
            for row in rows
        ]

    def _views(self, condition: ColumnElement[bool], heartbeat_timeout: timedelta) -> list[BuildView]:
        rows = self._session.execute(
            _select_views(heartbeat_timeout).where(condition).order_by(SQLBuild.position)
        ).all()
        ids = [row.Build.id for row in rows]
        positions, measured = self._positions(rows), self._measurement_states(rows)
        begun = [row.Build.id for row in rows if row.Build.attempt]
        steps = ProgressStore(self._session).steps(begun) if begun else {}
        attempts = AttemptStore(self._session).of_each(begun) if begun else {}
        return [
            _view(
                row,
                _BuildContext(
                    positions.get(it),
                    tuple(steps.get(it, ())),
                    tuple(attempts.get(it, ())),
                    measured.get(row.artifact),
                ),
            )
            for it, row in zip(ids, rows, strict=True)
        ]

    def _measurement_states(self, rows: Sequence[Row[*tuple[Any, ...]]]) -> dict[Digest, MeasurementStatus]:
        """Return the measurement status of the builds' artifacts, by digest."""
        return MeasurementStateStore(self._session).of(row.artifact for row in rows if row.artifact)

    def _matching(self, wanted: BuildFilter) -> list[ColumnElement[bool]]:
        given = {
            SQLVersion.number: wanted.number,
            SQLBuild.state: wanted.state,
            SQLBuild.target: wanted.target,
            SQLBuild.kind: wanted.kind,
        }
        conditions = [column == value for column, value in given.items() if value is not None]
        if wanted.days is not None:
            # Not by `finished_at IS NULL`, for which there is no index.
            recent = SQLBuild.finished_at > func.now() - timedelta(days=wanted.days)
            conditions.append(or_(recent, SQLBuild.state.in_(UNFINISHED)))
        if wanted.order in (BuildOrder.ENDED, BuildOrder.LONGEST):
            conditions.append(_KEYS[wanted.order][0].is_not(None))
        if wanted.model is not None:
            # By its id: from a name PostgreSQL cannot estimate whether the model has one build or nearly all of them.
            row = self._session.scalar(select(SQLModel.id).where(SQLModel.name == wanted.model))
            conditions.append(SQLVersion.model_id == row)
        return conditions

    def _positions(self, rows: Sequence[Row[*tuple[Any, ...]]]) -> dict[str, int]:
        """Return the position of each queued build in its target's queue."""
        queued = [row.Build for row in rows if row.Build.state == BuildState.QUEUED]
        if not queued:
            return {}
        statement = _count_positions() if len(queued) <= _MAX_COUNTED_ONE_BY_ONE else _rank_queues(queued)
        ids = {"ids": [build.id for build in queued]}
        return {build_id: position for build_id, position in self._session.execute(statement, ids)}  # noqa: C416  # rows are not pairs to mypy


@functools.cache
def _count_positions() -> Select[str, int]:
    """Select the positions of a few builds, each by counting those before it."""
    other = aliased(SQLBuild)
    same = and_(
        other.priority == SQLBuild.priority,
        tuple_(other.queued_at, other.id) <= tuple_(SQLBuild.queued_at, SQLBuild.id),
    )
    place = (
        select(func.count())
        .where(other.state == BuildState.QUEUED, other.target == SQLBuild.target)
        .where(or_(other.priority > SQLBuild.priority, same))
        .scalar_subquery()
    )
    wanted = SQLBuild.id.in_(bindparam("ids", expanding=True))
    return select(SQLBuild.id, place).where(wanted, SQLBuild.state == BuildState.QUEUED)


def _rank_queues(queued: Sequence[SQLBuild]) -> Select[str, int]:
    """Select the positions of many builds, in one pass over their queues."""
    order = (SQLBuild.priority.desc(), SQLBuild.queued_at, SQLBuild.id)
    place = func.row_number().over(partition_by=SQLBuild.target, order_by=order).label("place")
    ranked = (
        select(SQLBuild.id, place)
        .where(SQLBuild.state == BuildState.QUEUED)
        .where(SQLBuild.target.in_({build.target for build in queued}))
        .subquery()
    )
    return select(ranked.c.id, ranked.c.place).where(ranked.c.id.in_(bindparam("ids", expanding=True)))


@functools.cache
def _select_views(
    heartbeat_timeout: timedelta,
) -> Select[SQLBuild, str, int, str, SQLBuildAttempt, bool, datetime | None]:
    """Select the columns of views of builds."""
    latest = and_(SQLBuildAttempt.build_id == SQLBuild.id, SQLBuildAttempt.attempt == SQLBuild.attempt)
    return (
        select(
            SQLBuild,
            SQLModel.name.label("model"),
            SQLVersion.number.label("number"),
            SQLArtifact.digest.label("artifact"),
            SQLBuildAttempt,
            is_offered(SQLBuild.target, heartbeat_timeout).label("offered"),
            last_seen(SQLBuild.target).label("last_seen"),
        )
        .join(SQLVersion, SQLVersion.id == SQLBuild.version_id)
        .join(SQLModel, SQLModel.id == SQLVersion.model_id)
        .outerjoin(SQLArtifact, SQLArtifact.build_id == SQLBuild.id)
        .outerjoin(SQLBuildAttempt, latest)
        .execution_options(populate_existing=True)
    )


def _view(row: Row[*tuple[Any, ...]], context: _BuildContext) -> BuildView:
    build: SQLBuild = row.Build
    attempt: SQLBuildAttempt | None = row.BuildAttempt
    measuring = build.request if build.kind == BuildKind.MEASURE else {}
    return BuildView(
        id=build.id,
        model=row.model,
        number=row.number,
        target=build.target,
        state=build.state,
        attempt=build.attempt,
        created_at=stamp(build.created_at),
        started_at=optional_stamp(build.started_at),
        finished_at=optional_stamp(build.finished_at),
        steps=context.steps,
        error=build.error if build.state == BuildState.FAILED else None,
        artifact=Digest(row.artifact) if row.artifact else None,
        wait=_wait(row),
        cancellation=(build.error or {}).get("message") if build.state == BuildState.CANCELLED else None,
        priority=build.priority,
        position=context.position,
        not_before=optional_stamp(build.not_before),
        worker=(attempt.worker_id or None) if attempt else build.worker_id,
        failures=build.failures,
        attempts=context.attempts,
        kind=build.kind,
        measures=measuring.get("artifact"),
        baseline=measuring.get("baseline"),
        measurement=context.measurement,
        requested_by=read_principal(build.requested_by),
        retried_by=read_principal(build.retried_by),
        cancelled_by=read_principal(build.cancelled_by),
        rebuilds=build.request.get("artifact") if build.kind == BuildKind.REBUILD else None,
    )


def _wait(row: Row[*tuple[Any, ...]]) -> WaitReason | None:
    """Return why a queued build waits."""
    build: SQLBuild = row.Build
    if build.state != BuildState.QUEUED:
        return None
    if not row.offered and row.last_seen is None:
        return WaitReason("never_offered")
    if not row.offered:
        return WaitReason("no_live_worker", last_seen=_second(row.last_seen))
    if build.not_before is None:
        return None
    attempt: SQLBuildAttempt | None = row.BuildAttempt
    reason = WaitReason("next_attempt", until=_second(build.not_before))
    if attempt is None or attempt.outcome != Outcome.RETRIED or not attempt.error:
        return reason
    return replace(reason, attempt=attempt.attempt, error=attempt.error.get("code"))


def _second(moment: datetime) -> str:
    return stamp(moment.replace(microsecond=0))
