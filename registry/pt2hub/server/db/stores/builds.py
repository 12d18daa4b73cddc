"""Builds and how they change hands. Every change compares the state it starts from, or holds the row's lock."""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from sqlalchemy import bindparam, func, or_, select, update
from sqlalchemy.dialects.postgresql import insert

from pt2hub.domain.builds import BuildKind, BuildState, Claim
from pt2hub.domain.digests import Digest
from pt2hub.domain.targets import parse_target
from pt2hub.server.db.engine import Prepared
from pt2hub.server.db.schema import Artifact as SQLArtifact
from pt2hub.server.db.schema import Build as SQLBuild
from pt2hub.server.db.schema import Model as SQLModel
from pt2hub.server.db.schema import Version as SQLVersion
from pt2hub.server.db.schema import Worker as SQLWorker
from pt2hub.server.db.stores.values import storable
from pt2hub.server.db.stores.workers import lives

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import datetime, timedelta

    from sqlalchemy import ColumnElement, Row, Table
    from sqlalchemy.orm import Session

    from pt2hub.domain.specs import TargetSpec
    from pt2hub.server.db.engine import Reader


@dataclass(frozen=True, slots=True)
class HeldBuild:
    """A build whose row is locked: nothing else moves it before the transaction ends.

    Attributes:
        id: Its id.
        state: Where it stands.
        kind: What it is for.
        attempt: Attempts begun so far.
        failures: Those that failed for a passing reason, since the submission or the last retry.
        target: What it builds for.
        priority: Its place among others.
        worker: Who has it, or None.
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


# Changes name the table and not its class: SQLAlchemy would look for objects in memory to change as well.
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
_STANDING = Prepared.of(select(SQLBuild.state, SQLBuild.attempt).where(SQLBuild.id == bindparam("build")))


def standing(reader: Reader, build_id: str) -> tuple[BuildState, int] | None:
    """State of a build and number of its latest attempt, in one round trip; None where there is none."""
    rows = reader.rows(_STANDING, build=build_id)
    return (BuildState(rows[0][0]), rows[0][1]) if rows else None


def build_request(request: TargetSpec) -> dict[str, Any]:
    """The target and its overrides as a build keeps them."""
    return request.model_dump(mode="json", exclude_defaults=True)


class BuildStore:
    """Builds."""

    def __init__(self, session: Session) -> None:
        """Works in the caller's transaction."""
        self._session = session

    def requests(self, version_id: int) -> dict[str, dict[str, Any]]:
        """The targets a version has builds of, in the order submitted, each with what was asked for."""
        rows = self._session.execute(
            select(SQLBuild.target, SQLBuild.request)
            .where(SQLBuild.version_id == version_id, SQLBuild.kind == BuildKind.BUILD)
            .order_by(SQLBuild.position)
        )
        return {target: request for target, request in rows}  # noqa: C416  # rows are not pairs to mypy

    def add(
        self, version_id: int, request: TargetSpec, *, position: int, first_submitted: bool, priority: int = 0
    ) -> str:
        """Adds a queued build.

        Args:
            version_id: The version's row.
            request: The target, by name, and its overrides.
            position: Its place among the version's builds.
            first_submitted: Whether it counts for readiness.
            priority: Higher comes first.

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
            )
        )
        return build_id

    def restore(self, row: dict[str, Any]) -> str:
        """Adds a succeeded build, or completes an unfinished one of the same version and target.

        Returns:
            The build's id.
        """
        statement = insert(SQLBuild).values(state=BuildState.SUCCEEDED, **row)
        changed = {key: row[key] for key in ("attempt", "started_at", "finished_at")}
        return self._session.execute(
            statement.on_conflict_do_update(
                index_elements=["version_id", "target"],
                index_where=SQLBuild.kind == BuildKind.BUILD,
                set_={
                    "state": BuildState.SUCCEEDED,
                    "error": None,
                    "not_before": None,
                    "worker_id": None,
                    **changed,
                },
            ).returning(SQLBuild.id)
        ).scalar_one()

    def claim(self, build_id: str, worker_id: str) -> Claim | None:
        """Moves a queued build to running, as a new attempt of this worker.

        Returns:
            What the attempt needs, or None where the build is not queued or must wait longer.
        """
        given = {"build": build_id, "worker": worker_id}
        return self._claim(build_id) if self._session.execute(_CLAIM, given).first() else None

    def held(self, claim: Claim) -> HeldBuild | None:
        """Locks a running build, if this attempt still holds it."""
        return self._hold(*_held(claim))

    def lock(self, build_id: str) -> HeldBuild | None:
        """Locks a build, wherever it stands; None where there is no such build."""
        return self._hold(SQLBuild.id == build_id)

    def lost(self, silence: timedelta) -> list[HeldBuild]:
        """Locks running builds whose worker is lost or left.

        Args:
            silence: Time without a heartbeat after which a worker is lost.
        """
        living = select(SQLWorker.id).where(lives(silence))
        gone = or_(SQLBuild.worker_id.is_(None), SQLBuild.worker_id.not_in(living))
        return self._hold_free(SQLBuild.state == BuildState.RUNNING, gone)

    def unknown_to(self, worker_id: str, held: Iterable[str], silence: timedelta) -> list[HeldBuild]:
        """Locks running builds of a worker that it has not named, though it took them long ago.

        Args:
            worker_id: The worker.
            held: The builds that it named.
            silence: How long ago it must have taken them: a fresh claim's answer may still be under way.
        """
        return self._hold_free(
            SQLBuild.state == BuildState.RUNNING,
            SQLBuild.worker_id == worker_id,
            SQLBuild.id.not_in(list(held)),
            SQLBuild.started_at < func.now() - silence,
        )

    def finish(
        self,
        build: HeldBuild,
        state: BuildState,
        *,
        error: dict[str, Any] | None = None,
        failures: int | None = None,
    ) -> None:
        """Moves a locked build to a final state.

        Args:
            build: The build.
            state: The state.
            error: Why it failed, or who cancelled it.
            failures: Attempts that failed so far, where this one counts.
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
        """Moves a locked build to the end of its queue.

        Args:
            build: The build.
            failures: Attempts that failed so far.
            priority: Its priority from now on.
            pause: How long it must wait, None where it need not.

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

    def raise_priority(self, version_id: int, targets: Sequence[str], priority: int) -> list[str]:
        """Moves queued builds of a version further ahead; its measuring jobs stay where they are.

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
        """Locks those of these builds that are still queued."""
        return self._hold_free(SQLBuild.id.in_(list(build_ids)), SQLBuild.state == BuildState.QUEUED)

    def states(self, version_id: int) -> list[tuple[str, str]]:
        """Target and state of each of a version's builds, in the order submitted."""
        rows = self._session.execute(
            select(SQLBuild.target, SQLBuild.state)
            .where(SQLBuild.version_id == version_id, SQLBuild.kind == BuildKind.BUILD)
            .order_by(SQLBuild.position)
        )
        return [(target, state) for target, state in rows]

    def keep(self, claim: Claim) -> bool:
        """Keeps a running build from changing hands until the transaction ends.

        Returns:
            Whether this attempt still holds it.
        """
        statement = select(SQLBuild.id).where(*_held(claim)).with_for_update(read=True)
        return self._session.execute(statement).first() is not None

    def published(self, claim: Claim, digest: Digest) -> bool:
        """Whether this attempt has ended its build with this artifact."""
        statement = select(SQLArtifact.digest).where(
            SQLArtifact.build_id == claim.build,
            SQLArtifact.attempt == claim.attempt,
            SQLArtifact.digest == digest,
        )
        return self._session.execute(statement).first() is not None

    def running_on(self, worker_id: str) -> dict[str, int]:
        """The running builds of a worker, each with the number of its attempt."""
        rows = self._session.execute(
            select(SQLBuild.id, SQLBuild.attempt).where(
                SQLBuild.state == BuildState.RUNNING, SQLBuild.worker_id == worker_id
            )
        )
        return {build_id: attempt for build_id, attempt in rows}  # noqa: C416  # rows are not pairs to mypy

    def first_submitted(self, version_id: int) -> list[BuildState]:
        """States of the builds that count for a version's readiness."""
        rows = self._session.scalars(
            select(SQLBuild.state).where(SQLBuild.version_id == version_id, SQLBuild.first_submitted)
        )
        return [BuildState(state) for state in rows]

    def _hold(self, *conditions: ColumnElement[bool]) -> HeldBuild | None:
        statement = select(*_HELD).where(*conditions).with_for_update(key_share=True)
        row = self._session.execute(statement).first()
        return _held_build(row) if row else None

    def _hold_free(self, *conditions: ColumnElement[bool]) -> list[HeldBuild]:
        """Those that nobody moves right now: one that is being published is not lost."""
        statement = (
            select(*_HELD)
            .where(*conditions)
            .order_by(SQLBuild.id)
            .with_for_update(key_share=True, skip_locked=True)
        )
        return [_held_build(row) for row in self._session.execute(statement)]

    def _move(self, build: HeldBuild, **values: Any) -> datetime | None:  # noqa: ANN401  # columns' values
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
            spec={**version.spec, **version.settings},
            settings=version.settings,
            request=build.request,
            target=parse_target(build.target),
            pins=version.pins,
            weights=Digest(version.weights) if version.weights else None,
            golden=Digest(version.golden) if version.golden else None,
        )


def _held(claim: Claim) -> tuple[ColumnElement[bool], ...]:
    """What fences a late attempt off: another one has another number, or the build is not running."""
    return (
        SQLBuild.id == claim.build,
        SQLBuild.attempt == claim.attempt,
        SQLBuild.state == BuildState.RUNNING,
    )


def _held_build(row: Row[*tuple[Any, ...]]) -> HeldBuild:
    build_id, state, kind, *others = row
    return HeldBuild(build_id, BuildState(state), BuildKind(kind), *others)
