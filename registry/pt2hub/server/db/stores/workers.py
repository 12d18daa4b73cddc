"""Where builds run: targets, environments and workers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy import ColumnElement, and_, exists, func, select, update
from sqlalchemy.dialects.postgresql import insert

from pt2hub.domain.codec import encode
from pt2hub.domain.digests import Digest, digest_json
from pt2hub.server.db.schema import Environment as SQLEnvironment
from pt2hub.server.db.schema import Target as SQLTarget
from pt2hub.server.db.schema import Worker as SQLWorker
from pt2hub.wire.shapes import TargetView

if TYPE_CHECKING:
    from datetime import timedelta

    from sqlalchemy.orm import InstrumentedAttribute, Session

    from pt2hub.domain.artifacts import Environment, Toolchain
    from pt2hub.domain.targets import Target


def lives(silence: timedelta) -> ColumnElement[bool]:
    """Whether a worker lives, by the database's clock: those of the workers may be wrong.

    Args:
        silence: Time without a heartbeat after which a worker is lost.
    """
    return and_(SQLWorker.left_at.is_(None), SQLWorker.last_seen >= func.now() - silence)


def offered(target: InstrumentedAttribute[str], silence: timedelta) -> ColumnElement[bool]:
    """Whether a live worker offers the target in a column."""
    return exists().where(SQLWorker.target == target, lives(silence))


class WorkerStore:
    """Targets, environments and workers."""

    def __init__(self, session: Session) -> None:
        """Works in the caller's transaction."""
        self._session = session

    def add_target(self, target: Target) -> None:
        """Makes a target known."""
        row = {"name": target.name, **encode(target)}
        self._session.execute(insert(SQLTarget).values(row).on_conflict_do_nothing())

    def add_environment(self, environment: Environment) -> Digest:
        """Makes an environment known.

        Returns:
            Its digest.
        """
        fields = encode(environment)
        digest = digest_json(fields)
        self._session.execute(insert(SQLEnvironment).values(digest=digest, **fields).on_conflict_do_nothing())
        return digest

    def register(
        self,
        worker_id: str,
        *,
        target: Target,
        toolchain: Toolchain,
        environment: Environment,
        packages: dict[str, str],
    ) -> None:
        """Adds a worker, or renews what it says about itself."""
        self.add_target(target)
        said = {
            "target": target.name,
            "environment": self.add_environment(environment),
            "toolchain": encode(toolchain),
            "packages": packages,
            "started_at": func.now(),
            "last_seen": func.now(),
            "left_at": None,
        }
        statement = insert(SQLWorker).values(id=worker_id, **said)
        self._session.execute(statement.on_conflict_do_update(index_elements=["id"], set_=said))

    def beat(self, worker_id: str) -> bool:
        """Renews a worker's life; False where there is no such worker."""
        changed = self._session.execute(
            update(SQLWorker)
            .where(SQLWorker.id == worker_id)
            .values(last_seen=func.now())
            .returning(SQLWorker.id)
        )
        return changed.first() is not None

    def leave(self, worker_id: str) -> None:
        """Notes that a worker ended on purpose."""
        self._session.execute(update(SQLWorker).where(SQLWorker.id == worker_id).values(left_at=func.now()))

    def live_packages(self, silence: timedelta) -> dict[str, dict[str, Any]]:
        """Each live target with the package versions of its newest worker, by target's name."""
        rows = self._session.execute(
            select(SQLWorker.target, SQLWorker.packages)
            .where(lives(silence))
            .order_by(SQLWorker.started_at, SQLWorker.id)
        )
        return {target: packages for target, packages in rows}  # noqa: C416  # the last of a target is its newest

    def targets(self, silence: timedelta) -> list[TargetView]:
        """Every target that a worker ever offered, with its live workers."""
        rows = self._session.execute(
            select(SQLWorker.target, func.count().filter(lives(silence)))
            .group_by(SQLWorker.target)
            .order_by(SQLWorker.target)
        )
        return [TargetView(name=name, live_workers=count) for name, count in rows]
