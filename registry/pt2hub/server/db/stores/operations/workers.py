"""Targets, environments and workers."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

from sqlalchemy import ColumnElement, and_, delete, exists, func, or_, select, true, update
from sqlalchemy.dialects.postgresql import insert

from pt2hub.domain.builds import UNFINISHED, BuildState
from pt2hub.domain.codec import encode
from pt2hub.domain.digests import Digest, digest_json
from pt2hub.domain.performance.measurements import environment_class
from pt2hub.server.db.reading import only_readable
from pt2hub.server.db.schema import Build as SQLBuild
from pt2hub.server.db.schema import BuildStep as SQLBuildStep
from pt2hub.server.db.schema import Environment as SQLEnvironment
from pt2hub.server.db.schema import Model as SQLModel
from pt2hub.server.db.schema import Target as SQLTarget
from pt2hub.server.db.schema import Version as SQLVersion
from pt2hub.server.db.schema import Worker as SQLWorker
from pt2hub.server.db.stores.values import optional_stamp, stamp
from pt2hub.wire.responses import TargetView
from pt2hub.wire.workers import WorkerBuild, WorkerView

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence
    from datetime import datetime, timedelta

    from sqlalchemy import ScalarSelect, Select, Table
    from sqlalchemy.orm import InstrumentedAttribute, Session

    from pt2hub.domain.artifacts import Environment
    from pt2hub.domain.targets import Target
    from pt2hub.domain.workers import Isolation, Registration


# Compiled once: every submission and every publication runs them.
_ADD_TARGET = insert(cast("Table", SQLTarget.__table__)).on_conflict_do_nothing()
_ADD_ENVIRONMENT = insert(cast("Table", SQLEnvironment.__table__)).on_conflict_do_nothing()


def lives(heartbeat_timeout: timedelta) -> ColumnElement[bool]:
    """Return the condition for live workers, by the database's clock, since the workers' clocks may be wrong.

    A heartbeat in the future is from before that clock was set back, and is as invalid as an old one.
    """
    recently = SQLWorker.last_seen.between(func.now() - heartbeat_timeout, func.now() + heartbeat_timeout)
    return and_(SQLWorker.left_at.is_(None), recently)


def is_offered(target: InstrumentedAttribute[str], heartbeat_timeout: timedelta) -> ColumnElement[bool]:
    """Return the condition that a live worker that accepts builds offers the target in a column."""
    return exists().where(
        SQLWorker.target == target, lives(heartbeat_timeout), SQLWorker.draining_at.is_(None)
    )


def last_seen(target: InstrumentedAttribute[str]) -> ScalarSelect[datetime]:
    """Select the last heartbeat of a worker for the target in a column; null where none ever offered it."""
    return select(func.max(SQLWorker.last_seen)).where(SQLWorker.target == target).scalar_subquery()


class WorkerStore:
    """Targets, environments and workers, with the builds they run."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def add_target(self, target: Target) -> None:
        """Add a target unless it exists."""
        self._session.execute(_ADD_TARGET, {"name": target.name, **encode(target)})

    def add_environment(self, environment: Environment) -> Digest:
        """Add an environment unless it exists.

        Returns:
            Its digest.
        """
        fields = {name: value for name, value in encode(environment).items() if value is not None}
        digest = digest_json(fields)
        row = {"digest": digest, "class_digest": environment_class(environment), "fields": fields}
        self._session.execute(_ADD_ENVIRONMENT, row)
        return digest

    def environments(self, digests: Collection[Digest]) -> dict[Digest, dict[str, Any]]:
        """Return the fields of environments, by digest."""
        rows = self._session.execute(
            select(SQLEnvironment.digest, SQLEnvironment.fields).where(SQLEnvironment.digest.in_(digests))
        )
        return {Digest(digest): fields for digest, fields in rows}

    def register(self, registration: Registration) -> float:
        """Add a worker, or update its registration.

        Returns:
            Seconds that the database's clock is ahead of the worker's.
        """
        now = float(self._session.scalars(select(func.extract("epoch", func.clock_timestamp()))).one())
        ahead = now - registration.clock
        self.add_target(registration.target)
        said = {
            "target": registration.target.name,
            "environment": self.add_environment(registration.environment),
            "toolchain": encode(registration.toolchain),
            "packages": registration.packages,
            "host": registration.host,
            "version": registration.version,
            "concurrency": registration.concurrency,
            "clock_skew": -ahead,
            "isolation": registration.isolation,
            "isolation_profile": registration.isolation_profile,
            "started_at": func.now(),
            "last_seen": func.now(),
            "draining_at": None,
            "left_at": None,
        }
        statement = insert(SQLWorker).values(id=registration.worker_id, **said)
        self._session.execute(statement.on_conflict_do_update(index_elements=["id"], set_=said))
        return ahead

    def beat(self, worker_id: str) -> Isolation | None:
        """Record a worker's heartbeat; return its isolation, None where the worker does not exist."""
        renewed = update(SQLWorker).where(SQLWorker.id == worker_id).values(last_seen=func.now())
        return cast(
            "Isolation | None", self._session.scalars(renewed.returning(SQLWorker.isolation)).one_or_none()
        )

    def drain(self, worker_id: str) -> bool:
        """Mark a worker as draining; return False where it does not exist."""
        return self._note(worker_id, draining_at=func.coalesce(SQLWorker.draining_at, func.now()))

    def leave(self, worker_id: str) -> bool:
        """Mark a worker as having left; return False where it does not exist."""
        return self._note(worker_id, left_at=func.coalesce(SQLWorker.left_at, func.now()))

    def live_packages(self, heartbeat_timeout: timedelta) -> dict[str, dict[str, Any]]:
        """Return the package versions of each live target's newest worker, by target.

        Draining workers count if no other worker offers the target: a worker that is being replaced must not make its
        target unknown.
        """
        rows = self._session.execute(
            select(SQLWorker.target, SQLWorker.packages)
            .where(lives(heartbeat_timeout))
            .order_by(SQLWorker.draining_at.is_(None), SQLWorker.started_at, SQLWorker.id)
        )
        return {target: packages for target, packages in rows}  # noqa: C416  # a target's last row is its newest worker

    def gpu_targets(self, gpus: Collection[str]) -> dict[str, set[str]]:
        """Return the targets that workers with GPUs of these names ever offered, by name of the GPU."""
        found: dict[str, set[str]] = {}
        if gpus:
            gpu = SQLEnvironment.fields["gpu"].astext
            rows = self._session.execute(
                select(gpu, SQLWorker.target)
                .join(SQLEnvironment, SQLEnvironment.digest == SQLWorker.environment)
                .where(gpu.in_(gpus))
                .distinct()
            )
            for name, target in rows:
                found.setdefault(name, set()).add(target)
        return found

    def list_known(self) -> list[str]:
        """Return all targets that a worker ever offered."""
        return list(self._session.scalars(select(SQLWorker.target).distinct().order_by(SQLWorker.target)))

    def targets(self, heartbeat_timeout: timedelta) -> list[TargetView]:
        """Return every target that a worker ever offered or that a queued build has, by name."""
        live = lives(heartbeat_timeout)
        takes = SQLWorker.draining_at.is_(None)
        offers = self._session.execute(
            select(
                SQLWorker.target,
                func.count().filter(live),
                func.coalesce(func.sum(SQLWorker.concurrency).filter(live, takes), 0),
                func.max(SQLWorker.last_seen),
            ).group_by(SQLWorker.target)
        )
        found = {
            name: TargetView(name, live_workers=count, slots=int(slots), last_seen=stamp(seen))
            for name, count, slots, seen in offers
        }
        for name, queued, running, oldest in self._session.execute(_demand()):
            offer = found.get(name, TargetView(name, live_workers=0))
            found[name] = replace(offer, queued=queued, running=running, oldest=optional_stamp(oldest))
        return [found[name] for name in sorted(found)]

    def views(
        self,
        heartbeat_timeout: timedelta,
        *,
        gone_within: timedelta | None = None,
        target: str | None = None,
        limit: int | None = None,
    ) -> list[WorkerView]:
        """Return the workers and what each is doing: live ones first, newest first.

        Args:
            gone_within: Include workers that were lost or left within this time; None for live ones only.
            target: Only those of this target.
            limit: Maximum number; None for all.
        """
        live = lives(heartbeat_timeout)
        wanted = live if gone_within is None else or_(live, SQLWorker.last_seen >= func.now() - gone_within)
        rows = self._session.execute(
            select(SQLWorker, live)
            .where(wanted, *([SQLWorker.target == target] if target else []))
            .limit(limit)
            .order_by(live.desc(), SQLWorker.started_at.desc(), SQLWorker.id)
            .execution_options(populate_existing=True)
        ).all()
        builds = self._builds([worker.id for worker, _ in rows])
        return [_view(worker, alive=alive, builds=builds.get(worker.id, ())) for worker, alive in rows]

    def forget(self, *, gone_for: timedelta, limit: int) -> int:
        """Delete workers that left long ago and that no build refers to.

        Returns:
            Their number.
        """
        gone = select(SQLWorker.id).where(SQLWorker.last_seen < func.now() - gone_for).limit(limit)
        ids = self._session.scalars(gone).all()
        if not ids:  # nearly always; the next statement reads every build
            return 0
        named = exists().where(SQLBuild.worker_id == SQLWorker.id)
        dropped = self._session.execute(
            delete(SQLWorker).where(SQLWorker.id.in_(ids), ~named).returning(SQLWorker.id)
        )
        return len(dropped.all())

    def _note(self, worker_id: str, **values: object) -> bool:
        changed = self._session.execute(
            update(SQLWorker).where(SQLWorker.id == worker_id).values(**values).returning(SQLWorker.id)
        )
        return changed.first() is not None

    def _builds(self, workers: Sequence[str]) -> dict[str, list[WorkerBuild]]:
        """Return the builds that each of the workers is running and that may be read, with their latest step."""
        step = (
            select(SQLBuildStep.name, SQLBuildStep.detail)
            .where(SQLBuildStep.build_id == SQLBuild.id, SQLBuildStep.attempt == SQLBuild.attempt)
            .where(SQLBuildStep.state == "running")
            .order_by(SQLBuildStep.started_at.desc())
            .limit(1)
            .lateral("step")
        )
        rows = self._session.execute(
            select(
                SQLBuild.worker_id,
                SQLBuild.id,
                SQLModel.name,
                SQLVersion.number,
                SQLBuild.attempt,
                step.c.name,
                step.c.detail,
                SQLBuild.kind,
            )
            .join(SQLVersion, SQLVersion.id == SQLBuild.version_id)
            .join(SQLModel, SQLModel.id == SQLVersion.model_id)
            .outerjoin(step, true())
            .where(SQLBuild.state == BuildState.RUNNING, SQLBuild.worker_id.in_(workers))
            .where(*only_readable(SQLModel.name))
            .order_by(SQLBuild.started_at, SQLBuild.id)
        )
        found: dict[str, list[WorkerBuild]] = {}
        for worker, *build in rows:
            found.setdefault(worker, []).append(WorkerBuild(*build))
        return found


def _demand() -> Select[str, int, int, datetime | None]:
    """Select the number of queued and running builds per target, and since when the first one waits."""
    queued = SQLBuild.state == BuildState.QUEUED
    return (
        select(
            SQLBuild.target,
            func.count().filter(queued),
            func.count().filter(~queued),
            func.min(SQLBuild.queued_at).filter(queued),
        )
        .where(SQLBuild.state.in_(UNFINISHED))
        .group_by(SQLBuild.target)
    )


def _view(worker: SQLWorker, *, alive: bool, builds: Sequence[WorkerBuild]) -> WorkerView:
    return WorkerView(
        id=worker.id,
        target=worker.target,
        state=_state(worker, alive=alive, busy=bool(builds)),
        host=worker.host,
        version=worker.version,
        concurrency=worker.concurrency,
        started_at=stamp(worker.started_at),
        last_seen=stamp(worker.last_seen),
        builds=tuple(builds),
        toolchain=worker.toolchain,
        environment=Digest(worker.environment),
        clock_skew=worker.clock_skew,
        isolation=worker.isolation,
        isolation_profile=worker.isolation_profile,
    )


def _state(worker: SQLWorker, *, alive: bool, busy: bool) -> str:
    if not alive:
        return "left" if worker.left_at else "lost"
    if worker.draining_at:
        return "draining"
    return "busy" if busy else "idle"
