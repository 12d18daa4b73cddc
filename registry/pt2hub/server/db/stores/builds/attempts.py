"""Attempts of builds: begun by a claim, closed by whatever ends them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from sqlalchemy import func, literal, select, text, update
from sqlalchemy.dialects.postgresql import insert

from pt2hub.domain.builds import BuildState, Outcome
from pt2hub.domain.digests import Digest
from pt2hub.server.db.schema import Build as SQLBuild
from pt2hub.server.db.schema import BuildAttempt as SQLBuildAttempt
from pt2hub.server.db.schema import BuildStep as SQLBuildStep
from pt2hub.server.db.stores.values import optional_stamp, stamp
from pt2hub.wire.responses import AttemptView

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import timedelta

    from sqlalchemy import Table
    from sqlalchemy.orm import Session


# Updates use the table and not its class: otherwise SQLAlchemy also updates objects in memory.
_ATTEMPTS = cast("Table", SQLBuildAttempt.__table__)
_STEPS = cast("Table", SQLBuildStep.__table__)
_BEGIN = text("INSERT INTO build_attempts (build_id, attempt, worker_id) VALUES (:build, :attempt, :worker)")
# In plain SQL, like `ProgressStore`: every running attempt runs it several times a second.
_TAKES_REPORTS = text("""
    SELECT 1 FROM build_attempts JOIN builds ON builds.id = build_attempts.build_id
    WHERE build_attempts.build_id = :build AND build_attempts.attempt = :attempt
    AND builds.attempt = :attempt AND builds.state <> :queued
    AND build_attempts.log_lines IS NULL
    FOR KEY SHARE OF build_attempts
""")


class AttemptStore:
    """Attempts of builds."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def begin(self, build_id: str, attempt: int, worker_id: str) -> None:
        """Add the attempt of a worker that claimed a build."""
        self._session.execute(_BEGIN, {"build": build_id, "attempt": attempt, "worker": worker_id})

    def close(
        self,
        build_id: str,
        attempt: int,
        outcome: Outcome,
        *,
        error: dict[str, Any] | None = None,
        reused: bool | None = None,
    ) -> None:
        """Record how an attempt ended, and end its running steps.

        Args:
            error: An error's fields, or only a `message` where something else ended it.
        """
        self._session.execute(
            update(_ATTEMPTS)
            .where(_ATTEMPTS.c.build_id == build_id, _ATTEMPTS.c.attempt == attempt)
            .values(ended_at=func.clock_timestamp(), outcome=outcome, error=error, reused=reused)
        )
        # The worker reports the last step's end afterwards, or never.
        ended: dict[str, Any] = {"state": "failed"}
        if outcome is Outcome.SUCCEEDED:
            took = func.extract("epoch", func.clock_timestamp() - _STEPS.c.started_at)
            ended = {"state": "done", "seconds": func.greatest(took, literal(0.0))}
        self._session.execute(
            update(_STEPS)
            .where(_STEPS.c.build_id == build_id, _STEPS.c.attempt == attempt)
            .where(_STEPS.c.state == "running")
            .values(**ended)
        )

    def restore(self, row: dict[str, Any]) -> None:
        """Add the attempt that made an artifact, or complete the existing one."""
        changed = {
            key: value for key, value in row.items() if key not in ("build_id", "attempt", "worker_id")
        }
        self._session.execute(
            insert(SQLBuildAttempt)
            .values(outcome=Outcome.SUCCEEDED, error=None, **row)
            .on_conflict_do_update(
                index_elements=["build_id", "attempt"],
                set_={"outcome": Outcome.SUCCEEDED, "error": None, **changed},
            )
        )

    def takes_reports(self, build_id: str, attempt: int) -> bool:
        """Return whether an attempt is its build's latest and its log is not archived yet.

        The log cannot be archived before the transaction ends. A requeued build accepts no more reports.
        """
        given = {"build": build_id, "attempt": attempt, "queued": BuildState.QUEUED.value}
        return self._session.execute(_TAKES_REPORTS, given).first() is not None

    def of(self, build_id: str) -> list[AttemptView]:
        """Return the attempts of a build, first to last."""
        return self.of_each([build_id]).get(build_id, [])

    def of_each(self, build_ids: Sequence[str]) -> dict[str, list[AttemptView]]:
        """Return the attempts of each build, first to last."""
        rows = self._session.scalars(
            select(SQLBuildAttempt)
            .where(SQLBuildAttempt.build_id.in_(build_ids))
            .order_by(SQLBuildAttempt.attempt)
            .execution_options(populate_existing=True)
        )
        found: dict[str, list[AttemptView]] = {}
        for row in rows:
            found.setdefault(row.build_id, []).append(_view(row))
        return found

    def close_abandoned(self) -> int:
        """Close open attempts that their build is not running.

        They are left by an older pt2hub or by a reindex.

        Returns:
            Their number.
        """
        running = (
            select(SQLBuild.id)
            .where(SQLBuild.id == SQLBuildAttempt.build_id, SQLBuild.attempt == SQLBuildAttempt.attempt)
            .where(SQLBuild.state == BuildState.RUNNING)
        )
        closed = self._session.execute(
            update(SQLBuildAttempt)
            .where(SQLBuildAttempt.ended_at.is_(None), SQLBuildAttempt.log_lines.is_(None), ~running.exists())
            .values(ended_at=func.now(), outcome=func.coalesce(SQLBuildAttempt.outcome, Outcome.LOST))
            .returning(SQLBuildAttempt.build_id)
            .execution_options(synchronize_session=False)
        )
        return len(closed.all())

    def list_unarchived(self, *, rest: timedelta, limit: int) -> Sequence[tuple[str, int]]:
        """Return build id and number of the attempts whose logs can be archived, oldest first.

        Args:
            rest: Minimum time since their end, since their last lines come late.
        """
        rows = self._session.execute(
            select(SQLBuildAttempt.build_id, SQLBuildAttempt.attempt)
            .where(SQLBuildAttempt.log_lines.is_(None), SQLBuildAttempt.ended_at < func.now() - rest)
            .order_by(SQLBuildAttempt.ended_at)
            .limit(limit)
        )
        return [(build_id, attempt) for build_id, attempt in rows]


def _view(row: SQLBuildAttempt) -> AttemptView:
    error = row.error or {}
    return AttemptView(
        number=row.attempt,
        worker=row.worker_id,
        started_at=stamp(row.started_at),
        ended_at=optional_stamp(row.ended_at),
        outcome=row.outcome,
        code=error.get("code"),
        message=error.get("message"),
        log=Digest(row.log) if row.log else None,
        log_removed_after_days=(row.log_removed_at - row.ended_at).days
        if row.log_removed_at and row.ended_at
        else None,
    )
