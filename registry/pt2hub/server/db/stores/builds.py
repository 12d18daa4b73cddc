"""Builds and how they change hands. Every change compares the state it starts from."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Any

from sqlalchemy import func, or_, select, tuple_, update
from sqlalchemy.dialects.postgresql import insert

from pt2hub.domain.builds import BuildFilter, BuildState, Claim
from pt2hub.domain.digests import Digest
from pt2hub.domain.targets import parse_target
from pt2hub.server.db.schema import Artifact as SQLArtifact
from pt2hub.server.db.schema import Build as SQLBuild
from pt2hub.server.db.schema import Model as SQLModel
from pt2hub.server.db.schema import Version as SQLVersion
from pt2hub.server.db.schema import Worker as SQLWorker
from pt2hub.server.db.stores.progress import ProgressStore
from pt2hub.server.db.stores.values import optional_stamp, stamp, storable
from pt2hub.server.db.stores.workers import lives, offered
from pt2hub.wire.shapes import BuildView, StepView

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import datetime, timedelta

    from sqlalchemy import ColumnElement, Select
    from sqlalchemy.orm import Session

    from pt2hub.domain.specs import TargetSpec

_NO_WORKER = "no live worker offers this target"


def build_request(request: TargetSpec) -> dict[str, Any]:
    """The target and its overrides as a build keeps them."""
    return request.model_dump(mode="json", exclude_defaults=True)


class BuildStore:
    """Builds."""

    def __init__(self, session: Session) -> None:
        """Works in the caller's transaction."""
        self._session = session

    def requests(self, version_id: int) -> dict[str, dict[str, Any]]:
        """The targets a version has builds of, each with what was asked for."""
        rows = self._session.execute(
            select(SQLBuild.target, SQLBuild.request).where(SQLBuild.version_id == version_id)
        )
        return {target: request for target, request in rows}  # noqa: C416  # rows are not pairs to mypy

    def add(self, version_id: int, request: TargetSpec, *, position: int, first_submitted: bool) -> str:
        """Adds a queued build.

        Args:
            version_id: The version's row.
            request: The target, by name, and its overrides.
            position: Its place among the version's builds.
            first_submitted: Whether it counts for readiness.

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
                set_={"state": BuildState.SUCCEEDED, "error": None, **changed},
            ).returning(SQLBuild.id)
        ).scalar_one()

    def claim(self, build_id: str, worker_id: str) -> Claim | None:
        """Moves a queued build to running, as a new attempt of this worker.

        Returns:
            What the attempt needs, or None where the build is not queued.
        """
        taken = self._change(
            [SQLBuild.id == build_id, SQLBuild.state == BuildState.QUEUED],
            state=BuildState.RUNNING,
            attempt=SQLBuild.attempt + 1,
            worker_id=worker_id,
            started_at=func.now(),
        )
        return self._claim(build_id) if taken else None

    def finish(self, claim: Claim, state: BuildState, *, error: dict[str, Any] | None = None) -> bool:
        """Moves a running build to a final state, if this attempt still holds it.

        Returns:
            Whether it did.
        """
        return self._change(_held(claim), state=state, error=storable(error), finished_at=func.now())

    def requeue(self, claim: Claim) -> bool:
        """Moves a running build back to queued, if this attempt still holds it.

        Returns:
            Whether it did.
        """
        return self._change(_held(claim), state=BuildState.QUEUED, queued_at=func.now(), worker_id=None)

    def requeue_lost(self, silence: timedelta) -> list[tuple[str, str]]:
        """Moves running builds whose worker is lost or left back to queued.

        Args:
            silence: Time without a heartbeat after which a worker is lost.

        Returns:
            Each build's id and target.
        """
        living = select(SQLWorker.id).where(lives(silence))
        lost = (
            select(SQLBuild.id)
            .where(SQLBuild.state == BuildState.RUNNING)
            .where(or_(SQLBuild.worker_id.is_(None), SQLBuild.worker_id.not_in(living)))
            .with_for_update(skip_locked=True)  # one that is being published right now is not lost
        )
        rows = self._session.execute(
            update(SQLBuild)
            .where(SQLBuild.id.in_(lost.scalar_subquery()))
            .values(state=BuildState.QUEUED, queued_at=func.now(), worker_id=None)
            .returning(SQLBuild.id, SQLBuild.target)
        )
        return [(build_id, target) for build_id, target in rows]

    def targets(self, build_ids: Iterable[str]) -> list[tuple[str, str]]:
        """Each build's id and target."""
        rows = self._session.execute(select(SQLBuild.id, SQLBuild.target).where(SQLBuild.id.in_(build_ids)))
        return [(build_id, target) for build_id, target in rows]

    def states(self, version_id: int) -> list[tuple[str, str]]:
        """Target and state of each of a version's builds, in the order submitted."""
        rows = self._session.execute(
            select(SQLBuild.target, SQLBuild.state)
            .where(SQLBuild.version_id == version_id)
            .order_by(SQLBuild.position)
        )
        return [(target, state) for target, state in rows]

    def hold(self, claim: Claim) -> bool:
        """Keeps a running build from changing hands until the transaction ends.

        Returns:
            Whether this attempt still holds it.
        """
        statement = select(SQLBuild.id).where(*_held(claim)).with_for_update(read=True)
        return self._session.execute(statement).first() is not None

    def is_latest(self, claim: Claim) -> bool:
        """Whether this is the build's latest attempt, running or over, and no further one is due."""
        statement = select(SQLBuild.id).where(
            SQLBuild.id == claim.build,
            SQLBuild.attempt == claim.attempt,
            SQLBuild.state != BuildState.QUEUED,
        )
        return self._session.execute(statement).first() is not None

    def first_submitted(self, version_id: int) -> list[BuildState]:
        """States of the builds that count for a version's readiness."""
        rows = self._session.scalars(
            select(SQLBuild.state).where(SQLBuild.version_id == version_id, SQLBuild.first_submitted)
        )
        return [BuildState(state) for state in rows]

    def view(self, build_id: str, *, silence: timedelta) -> BuildView | None:
        """A build with its steps."""
        found = self._views(SQLBuild.id == build_id, silence)
        return found[0] if found else None

    def views(self, version_id: int, *, silence: timedelta) -> list[BuildView]:
        """The builds of a version with their steps, in the order submitted."""
        return self._views(SQLBuild.version_id == version_id, silence)

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
        statement = _viewed(silence).where(*_matching(wanted))
        if after is not None:
            statement = statement.where(tuple_(*place) < after)
        newest_first = [column.desc() for column in place]
        rows = self._session.execute(statement.order_by(*newest_first).limit(limit))
        return [_view(*row) for row in rows]

    def _change(self, conditions: list[ColumnElement[bool]], **values: Any) -> bool:  # noqa: ANN401  # columns' values
        statement = update(SQLBuild).where(*conditions).values(**values).returning(SQLBuild.id)
        options = {"synchronize_session": False}
        return self._session.execute(statement, execution_options=options).first() is not None

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
            attempt=build.attempt,
            worker=build.worker_id or "",
            version_id=version.id,
            model=model,
            number=version.number,
            identity=Digest(version.identity),
            spec=version.spec,
            request=build.request,
            target=parse_target(build.target),
            pins=version.pins,
            weights=Digest(version.weights) if version.weights else None,
            golden=Digest(version.golden) if version.golden else None,
        )

    def _views(self, condition: ColumnElement[bool], silence: timedelta) -> list[BuildView]:
        rows = self._session.execute(_viewed(silence).where(condition).order_by(SQLBuild.position)).all()
        steps = ProgressStore(self._session).steps([row[0].id for row in rows])
        return [_view(*row, steps=steps.get(row[0].id, [])) for row in rows]


def _viewed(silence: timedelta) -> Select[SQLBuild, str, int, str, bool]:
    """What views of builds are made of."""
    return (
        select(
            SQLBuild,
            SQLModel.name,
            SQLVersion.number,
            SQLArtifact.digest,
            offered(SQLBuild.target, silence),
        )
        .join(SQLVersion, SQLVersion.id == SQLBuild.version_id)
        .join(SQLModel, SQLModel.id == SQLVersion.model_id)
        .outerjoin(SQLArtifact, SQLArtifact.build_id == SQLBuild.id)
        .execution_options(populate_existing=True)
    )


def _matching(wanted: BuildFilter) -> list[ColumnElement[bool]]:
    given = {
        SQLModel.name: wanted.model,
        SQLVersion.number: wanted.number,
        SQLBuild.state: wanted.state,
        SQLBuild.target: wanted.target,
    }
    return [column == value for column, value in given.items() if value is not None]


def _held(claim: Claim) -> list[ColumnElement[bool]]:
    """What fences a late attempt off: another one has another number, or the build is not running."""
    return [
        SQLBuild.id == claim.build,
        SQLBuild.attempt == claim.attempt,
        SQLBuild.state == BuildState.RUNNING,
    ]


def _view(
    row: SQLBuild, model: str, number: int, digest: str | None, alive: bool, *, steps: Sequence[StepView] = ()
) -> BuildView:
    waits = row.state == BuildState.QUEUED and not alive
    return BuildView(
        id=row.id,
        model=model,
        number=number,
        target=row.target,
        state=row.state,
        attempt=row.attempt,
        created_at=stamp(row.created_at),
        started_at=optional_stamp(row.started_at),
        finished_at=optional_stamp(row.finished_at),
        steps=tuple(steps),
        error=row.error,
        artifact=Digest(digest) if digest else None,
        note=_NO_WORKER if waits else None,
    )
