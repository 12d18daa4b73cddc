"""Builds and their state changes; every change compares the previous state or holds the row's lock."""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from sqlalchemy import bindparam, func, or_, select, text, update
from sqlalchemy.dialects.postgresql import insert

from pt2hub.domain.builds import BuildKind, BuildState, Claim
from pt2hub.domain.codec import encode
from pt2hub.domain.digests import Digest
from pt2hub.domain.principals import read_principal
from pt2hub.domain.publishing.spec_settings import merge_settings
from pt2hub.domain.targets import parse_target
from pt2hub.server.db.engine import Prepared
from pt2hub.server.db.schema import Artifact as SQLArtifact
from pt2hub.server.db.schema import Build as SQLBuild
from pt2hub.server.db.schema import Model as SQLModel
from pt2hub.server.db.schema import Version as SQLVersion
from pt2hub.server.db.schema import Worker as SQLWorker
from pt2hub.server.db.stores.operations.workers import lives
from pt2hub.server.db.stores.values import storable

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import datetime, timedelta

    from sqlalchemy import ColumnElement, Row, Table
    from sqlalchemy.orm import Session

    from pt2hub.domain.principals import Principal
    from pt2hub.domain.publishing.spec import TargetSpec
    from pt2hub.server.db.engine import Reader


@dataclass(frozen=True, slots=True)
class HeldBuild:
    """A build whose row is locked until the transaction ends.

    Attributes:
        failures: Attempts that were lost or failed for a transient reason, since the submission or the last retry.
        worker: Id of the worker that runs it, or None.
    """

    id: str
    state: BuildState
    kind: BuildKind
    attempt: int
    failures: int
    target: str
    priority: int
    worker: str | None


_HELD = (
    SQLBuild.id,
    SQLBuild.state,
    SQLBuild.kind,
    SQLBuild.attempt,
    SQLBuild.failures,
    SQLBuild.target,
    SQLBuild.priority,
    SQLBuild.worker_id,
)


# Updates use the table and not its class: otherwise SQLAlchemy also updates objects in memory.
_BUILDS = cast("Table", SQLBuild.__table__)
_CLAIM = (
    update(_BUILDS)
    .where(_BUILDS.c.id == bindparam("build"), _BUILDS.c.state == BuildState.QUEUED)
    .where(or_(_BUILDS.c.not_before.is_(None), _BUILDS.c.not_before <= func.now()))
    .values(
        state=BuildState.RUNNING,
        attempt=_BUILDS.c.attempt + 1,
        worker_id=bindparam("worker"),
        started_at=func.now(),
        not_before=None,
    )
    .returning(_BUILDS.c.id)
)
_STATE = Prepared.of(select(SQLBuild.state, SQLBuild.attempt).where(SQLBuild.id == bindparam("build")))


def read_state(reader: Reader, build_id: str) -> tuple[BuildState, int] | None:
    """Return a build's state and the number of its latest attempt, in one round trip; None where it does not exist."""
    rows = reader.rows(_STATE, build=build_id)
    return (BuildState(rows[0][0]), rows[0][1]) if rows else None


def build_request(request: TargetSpec) -> dict[str, Any]:
    """Return the target and its overrides as stored with a build."""
    return request.model_dump(mode="json", exclude_defaults=True)


class BuildStore:
    """Builds, and their state changes."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def requests(self, version_id: int) -> dict[str, dict[str, Any]]:
        """Return the targets of a version's builds in the order submitted, each with its request."""
        rows = self._session.execute(
            select(SQLBuild.target, SQLBuild.request)
            .where(SQLBuild.version_id == version_id, SQLBuild.kind == BuildKind.BUILD)
            .order_by(SQLBuild.position)
        )
        return {target: request for target, request in rows}  # noqa: C416  # rows are not pairs to mypy

    def add(
        self,
        version_id: int,
        request: TargetSpec,
        *,
        position: int,
        first_submitted: bool,
        by: Principal,
        priority: int = 0,
    ) -> str:
        """Add a queued build.

        Returns:
            The build's id.
        """
        build_id = secrets.token_hex(8)
        self._session.add(
            SQLBuild(
                id=build_id,
                version_id=version_id,
                target=request.target,
                position=position,
                request=build_request(request),
                first_submitted=first_submitted,
                state=BuildState.QUEUED,
                priority=priority,
                requested_by=encode(by),
            )
        )
        return build_id

    def restore(self, row: dict[str, Any]) -> str:
        """Add a succeeded build, or complete an unfinished one of the same version and target.

        Returns:
            The build's id.
        """
        statement = insert(SQLBuild).values(state=BuildState.SUCCEEDED, **row)
        # The journal knows these times better than the manifest, if it knew the build.
        known = {key: func.coalesce(_BUILDS.c[key], row[key]) for key in ("started_at", "finished_at")}
        return self._session.execute(
            statement.on_conflict_do_update(
                index_elements=["version_id", "target"],
                # Not a parameter: that fits no index once PostgreSQL plans without its value, after some executions.
                index_where=text("kind = 'build'"),
                set_={
                    "state": BuildState.SUCCEEDED,
                    "error": None,
                    "not_before": None,
                    "worker_id": None,
                    "attempt": row["attempt"],
                    **known,
                },
            ).returning(SQLBuild.id)
        ).scalar_one()

    def claim(self, build_id: str, worker_id: str) -> Claim | None:
        """Move a queued build to running, as a new attempt of a worker.

        Returns:
            The claim, or None where the build is not queued or must wait longer.
        """
        given = {"build": build_id, "worker": worker_id}
        return self._claim(build_id) if self._session.execute(_CLAIM, given).first() else None

    def held(self, claim: Claim) -> HeldBuild | None:
        """Lock a running build, if the attempt is still current."""
        return self._hold(*_held(claim))

    def lock(self, build_id: str) -> HeldBuild | None:
        """Lock a build in any state; return None where it does not exist."""
        return self._hold(SQLBuild.id == build_id)

    def lost(self, heartbeat_timeout: timedelta) -> list[HeldBuild]:
        """Lock the running builds whose worker is lost or has left."""
        living = select(SQLWorker.id).where(lives(heartbeat_timeout))
        gone = or_(SQLBuild.worker_id.is_(None), SQLBuild.worker_id.not_in(living))
        return self._hold_free(SQLBuild.state == BuildState.RUNNING, gone)

    def unknown_to(
        self, worker_id: str, held: Iterable[str], heartbeat_timeout: timedelta
    ) -> list[HeldBuild]:
        """Lock the running builds of a worker that it does not name, though it claimed them long ago.

        Args:
            heartbeat_timeout: Minimum time since the claim, whose response may still be under way.
        """
        return self._hold_free(
            SQLBuild.state == BuildState.RUNNING,
            SQLBuild.worker_id == worker_id,
            SQLBuild.id.not_in(list(held)),
            SQLBuild.started_at < func.now() - heartbeat_timeout,
        )

    def finish(
        self,
        build: HeldBuild,
        state: BuildState,
        *,
        error: dict[str, Any] | None = None,
        failures: int | None = None,
    ) -> None:
        """Move a locked build to a final state.

        Args:
            error: Fields of the error or cancellation.
            failures: The new failure count; unchanged where omitted.
        """
        self._move(
            build,
            state=state,
            failures=build.failures if failures is None else failures,
            error=storable(error),
            finished_at=func.clock_timestamp(),
            not_before=None,
            worker_id=None,
        )

    def queue(
        self, build: HeldBuild, *, failures: int, priority: int, pause: timedelta | None = None
    ) -> datetime | None:
        """Move a locked build to the end of its queue.

        Args:
            pause: Delay before its next attempt, None for none.

        Returns:
            When its next attempt may begin, None for at once.
        """
        return self._move(
            build,
            state=BuildState.QUEUED,
            failures=failures,
            priority=priority,
            queued_at=func.clock_timestamp(),
            not_before=func.clock_timestamp() + pause if pause else None,
            finished_at=None,
            error=None,
            worker_id=None,
        )

    def record_cancellation(self, build_id: str, by: Principal) -> None:
        """Record who cancelled a build."""
        self._session.execute(update(_BUILDS).where(_BUILDS.c.id == build_id).values(cancelled_by=encode(by)))

    def record_retry(self, build_id: str, by: Principal) -> None:
        """Record who had a build queued again, which is cancelled no more."""
        values = {"retried_by": encode(by), "cancelled_by": None}
        self._session.execute(update(_BUILDS).where(_BUILDS.c.id == build_id).values(values))

    def raise_priority(self, version_id: int, targets: Sequence[str], priority: int) -> list[str]:
        """Raise the priority of a version's queued builds, but not of its measuring jobs.

        Returns:
            The builds whose priority was lower.
        """
        lower = (
            select(SQLBuild.id)
            .where(SQLBuild.version_id == version_id, SQLBuild.target.in_(targets))
            .where(SQLBuild.kind == BuildKind.BUILD)
            .where(SQLBuild.state == BuildState.QUEUED, SQLBuild.priority < priority)
            .order_by(SQLBuild.id)
            .with_for_update(key_share=True)
        )
        ids = list(self._session.scalars(lower))
        if ids:
            statement = update(SQLBuild).where(SQLBuild.id.in_(ids)).values(priority=priority)
            self._session.execute(statement.execution_options(synchronize_session=False))
        return ids

    def astray(self, build_ids: Iterable[str]) -> list[HeldBuild]:
        """Lock those of the given builds that are still queued."""
        return self._hold_free(SQLBuild.id.in_(list(build_ids)), SQLBuild.state == BuildState.QUEUED)

    def states(self, version_id: int) -> list[tuple[str, str]]:
        """Return target and state of a version's builds, in the order submitted."""
        rows = self._session.execute(
            select(SQLBuild.target, SQLBuild.state)
            .where(SQLBuild.version_id == version_id, SQLBuild.kind == BuildKind.BUILD)
            .order_by(SQLBuild.position)
        )
        return [(target, state) for target, state in rows]

    def keep(self, claim: Claim) -> bool:
        """Lock a running build against state changes until the transaction ends.

        Returns:
            Whether the attempt is still current.
        """
        statement = select(SQLBuild.id).where(*_held(claim)).with_for_update(read=True)
        return self._session.execute(statement).first() is not None

    def has_published(self, claim: Claim, digest: Digest) -> bool:
        """Return whether the attempt has published this artifact."""
        statement = select(SQLArtifact.digest).where(
            SQLArtifact.build_id == claim.build,
            SQLArtifact.attempt == claim.attempt,
            SQLArtifact.digest == digest,
        )
        return self._session.execute(statement).first() is not None

    def running_on(self, worker_id: str) -> dict[str, int]:
        """Return the attempt numbers of a worker's running builds."""
        rows = self._session.execute(
            select(SQLBuild.id, SQLBuild.attempt).where(
                SQLBuild.state == BuildState.RUNNING, SQLBuild.worker_id == worker_id
            )
        )
        return {build_id: attempt for build_id, attempt in rows}  # noqa: C416  # rows are not pairs to mypy

    def first_submitted(self, version_id: int) -> list[BuildState]:
        """Return the states of the builds that count for a version's readiness."""
        rows = self._session.scalars(
            select(SQLBuild.state).where(SQLBuild.version_id == version_id, SQLBuild.first_submitted)
        )
        return [BuildState(state) for state in rows]

    def _hold(self, *conditions: ColumnElement[bool]) -> HeldBuild | None:
        statement = select(*_HELD).where(*conditions).with_for_update(key_share=True)
        row = self._session.execute(statement).first()
        return _held_build(row) if row else None

    def _hold_free(self, *conditions: ColumnElement[bool]) -> list[HeldBuild]:
        """Lock builds that no other transaction has locked: one that is being published is not lost."""
        statement = (
            select(*_HELD)
            .where(*conditions)
            .order_by(SQLBuild.id)
            .with_for_update(key_share=True, skip_locked=True)
        )
        return [_held_build(row) for row in self._session.execute(statement)]

    def _move(self, build: HeldBuild, **values: Any) -> datetime | None:
        statement = update(_BUILDS).where(_BUILDS.c.id == build.id).values(**values)
        not_before: datetime | None = self._session.execute(
            statement.returning(_BUILDS.c.not_before)
        ).scalar_one()
        return not_before

    def _claim(self, build_id: str) -> Claim:
        build, version, model = self._session.execute(
            select(SQLBuild, SQLVersion, SQLModel.name)
            .join(SQLVersion, SQLVersion.id == SQLBuild.version_id)
            .join(SQLModel, SQLModel.id == SQLVersion.model_id)
            .where(SQLBuild.id == build_id)
            .execution_options(populate_existing=True)
        ).one()
        return Claim(
            build=build.id,
            kind=BuildKind(build.kind),
            attempt=build.attempt,
            worker=build.worker_id or "",
            version_id=version.id,
            model=model,
            number=version.number,
            identity=Digest(version.identity),
            spec=merge_settings(version.spec, version.settings),
            settings=version.settings,
            request=build.request,
            target=parse_target(build.target),
            pins=version.pins,
            weights=Digest(version.weights) if version.weights else None,
            golden=Digest(version.golden) if version.golden else None,
            published_by=read_principal(version.published_by),
            requested_by=read_principal(build.requested_by),
        )


def _held(claim: Claim) -> tuple[ColumnElement[bool], ...]:
    """Return the conditions that fence off an overtaken attempt, by number and state."""
    return (
        SQLBuild.id == claim.build,
        SQLBuild.attempt == claim.attempt,
        SQLBuild.state == BuildState.RUNNING,
    )


def _held_build(row: Row[*tuple[Any, ...]]) -> HeldBuild:
    build_id, state, kind, *others = row
    return HeldBuild(build_id, BuildState(state), BuildKind(kind), *others)
