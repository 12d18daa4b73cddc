"""Builds as people see them: where they stand, their place in the queue, and why they wait."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from sqlalchemy import and_, bindparam, func, or_, select, tuple_
from sqlalchemy.orm import aliased

from pt2hub.domain.builds import BuildFilter, BuildKind, BuildState, Outcome
from pt2hub.domain.digests import Digest
from pt2hub.server.db.schema import Artifact as SQLArtifact
from pt2hub.server.db.schema import Build as SQLBuild
from pt2hub.server.db.schema import BuildAttempt as SQLBuildAttempt
from pt2hub.server.db.schema import Model as SQLModel
from pt2hub.server.db.schema import Version as SQLVersion
from pt2hub.server.db.stores.attempts import AttemptStore
from pt2hub.server.db.stores.measurement_states import MeasurementStateStore
from pt2hub.server.db.stores.progress import ProgressStore
from pt2hub.server.db.stores.values import optional_stamp, stamp
from pt2hub.server.db.stores.workers import last_seen, offered
from pt2hub.wire.shapes import AttemptView, BuildView, MeasurementStatus, StepView

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from sqlalchemy import ColumnElement, Row, Select
    from sqlalchemy.orm import Session

NO_WORKER = "no live worker offers this target"
NEVER_OFFERED = "no worker ever offered this target"
_FEW = 4
"""So many builds count their places one by one; more are cheaper to rank all at once."""


@dataclass(frozen=True, slots=True)
class _Beside:
    """What a view has besides its row.

    Attributes:
        position: The build's place in its queue, None unless it is queued.
        steps: Of its latest attempt.
        attempts: All of them.
        measurement: Whether its artifact is measured.
    """

    position: int | None
    steps: tuple[StepView, ...] = ()
    attempts: tuple[AttemptView, ...] = ()
    measurement: MeasurementStatus | None = None


class BuildViewStore:
    """Builds, to be looked at."""

    def __init__(self, session: Session) -> None:
        """Works in the caller's transaction."""
        self._session = session

    def view(self, build_id: str, *, silence: timedelta) -> BuildView | None:
        """A build with its steps and all its attempts.

        Args:
            build_id: The build.
            silence: Time without a heartbeat after which a worker is lost.
        """
        found = self._views(SQLBuild.id == build_id, silence)
        return found[0] if found else None

    def views(self, version_id: int, *, silence: timedelta) -> list[BuildView]:
        """The builds of a version with their steps and attempts, in the order submitted."""
        builds = and_(SQLBuild.version_id == version_id, SQLBuild.kind == BuildKind.BUILD)
        return self._views(builds, silence)

    def of(self, build_ids: Sequence[str], *, silence: timedelta) -> list[BuildView]:
        """Builds with their steps and attempts, those of a version in the order submitted."""
        return self._views(SQLBuild.id.in_(build_ids), silence)

    def page(
        self, wanted: BuildFilter, *, after: tuple[datetime, str] | None, limit: int, silence: timedelta
    ) -> list[BuildView]:
        """Builds, newest first, without their steps.

        Args:
            wanted: Which of them.
            after: Time and id of the build that they follow, None for the newest.
            limit: At most so many.
            silence: Time without a heartbeat after which a worker is lost.
        """
        place = (SQLBuild.created_at, SQLBuild.id)
        newest_first = [column.desc() for column in place]
        # Chosen by their ids first: a model may have a hundred thousand, and sorting whole views takes seconds.
        chosen = (
            select(SQLBuild.id)
            .join(SQLVersion, SQLVersion.id == SQLBuild.version_id)
            .where(*self._matching(wanted))
            .order_by(*newest_first)
            .limit(limit)
        )
        if after is not None:
            chosen = chosen.where(tuple_(*place) < after)
        statement = _viewed(silence).where(SQLBuild.id.in_(chosen)).order_by(*newest_first)
        rows = self._session.execute(statement).all()
        positions, measured = self._positions(rows), self._measured(rows)
        return [
            _view(row, _Beside(positions.get(row.Build.id), measurement=measured.get(row.artifact)))
            for row in rows
        ]

    def _views(self, condition: ColumnElement[bool], silence: timedelta) -> list[BuildView]:
        rows = self._session.execute(_viewed(silence).where(condition).order_by(SQLBuild.position)).all()
        ids = [row.Build.id for row in rows]
        positions, measured = self._positions(rows), self._measured(rows)
        begun = [row.Build.id for row in rows if row.Build.attempt]
        steps = ProgressStore(self._session).steps(begun) if begun else {}
        attempts = AttemptStore(self._session).of_each(begun) if begun else {}
        return [
            _view(
                row,
                _Beside(
                    positions.get(it),
                    tuple(steps.get(it, ())),
                    tuple(attempts.get(it, ())),
                    measured.get(row.artifact),
                ),
            )
            for it, row in zip(ids, rows, strict=True)
        ]

    def _measured(self, rows: Sequence[Row[*tuple[Any, ...]]]) -> dict[Digest, MeasurementStatus]:
        """Whether the artifacts of builds are measured, by their digests."""
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
            conditions.append(SQLBuild.created_at > func.now() - timedelta(days=wanted.days))
        if wanted.model is not None:
            # By its row: of a name PostgreSQL cannot tell whether the model has one build or nearly all of them.
            row = self._session.scalar(select(SQLModel.id).where(SQLModel.name == wanted.model))
            conditions.append(SQLVersion.model_id == row)
        return conditions

    def _positions(self, rows: Sequence[Row[*tuple[Any, ...]]]) -> dict[str, int]:
        """The place of each queued build among those of its target."""
        queued = [row.Build for row in rows if row.Build.state == BuildState.QUEUED]
        if not queued:
            return {}
        statement = _counted() if len(queued) <= _FEW else _ranked(queued)
        ids = {"ids": [build.id for build in queued]}
        return {build_id: place for build_id, place in self._session.execute(statement, ids)}  # noqa: C416  # rows are not pairs to mypy


@functools.cache
def _counted() -> Select[str, int]:
    """Places of the few builds `ids`: each counts those before it."""
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


def _ranked(queued: Sequence[SQLBuild]) -> Select[str, int]:
    """Places of many builds: one pass over the queues concerned."""
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
def _viewed(silence: timedelta) -> Select[SQLBuild, str, int, str, SQLBuildAttempt, bool, datetime | None]:
    """What views of builds are made of."""
    latest = and_(SQLBuildAttempt.build_id == SQLBuild.id, SQLBuildAttempt.attempt == SQLBuild.attempt)
    return (
        select(
            SQLBuild,
            SQLModel.name.label("model"),
            SQLVersion.number.label("number"),
            SQLArtifact.digest.label("artifact"),
            SQLBuildAttempt,
            offered(SQLBuild.target, silence).label("offered"),
            last_seen(SQLBuild.target).label("last_seen"),
        )
        .join(SQLVersion, SQLVersion.id == SQLBuild.version_id)
        .join(SQLModel, SQLModel.id == SQLVersion.model_id)
        .outerjoin(SQLArtifact, SQLArtifact.build_id == SQLBuild.id)
        .outerjoin(SQLBuildAttempt, latest)
        .execution_options(populate_existing=True)
    )


def _view(row: Row[*tuple[Any, ...]], beside: _Beside) -> BuildView:
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
        steps=beside.steps,
        error=build.error if build.state == BuildState.FAILED else None,
        artifact=Digest(row.artifact) if row.artifact else None,
        note=_note(row),
        priority=build.priority,
        position=beside.position,
        not_before=optional_stamp(build.not_before),
        worker=(attempt.worker_id or None) if attempt else build.worker_id,
        failures=build.failures,
        attempts=beside.attempts,
        kind=build.kind,
        measures=measuring.get("artifact"),
        beside=measuring.get("beside"),
        measurement=beside.measurement,
    )


def _note(row: Row[*tuple[Any, ...]]) -> str | None:
    """Why a build waits, or who ended it."""
    build: SQLBuild = row.Build
    if build.state == BuildState.CANCELLED:
        return (build.error or {}).get("message")
    if build.state != BuildState.QUEUED:
        return None
    if not row.offered and row.last_seen is None:
        return NEVER_OFFERED
    if not row.offered:
        return f"{NO_WORKER}; the last one was heard of at {_second(row.last_seen)}"
    if build.not_before is None:
        return None
    return f"waits until {_second(build.not_before)} for its next attempt{_after(row.BuildAttempt)}"


def _after(attempt: SQLBuildAttempt | None) -> str:
    if attempt is None or attempt.outcome != Outcome.RETRIED or not attempt.error:
        return ""
    return f", after attempt {attempt.attempt} ended with {attempt.error.get('code')}"


def _second(moment: datetime) -> str:
    return stamp(moment.replace(microsecond=0))
