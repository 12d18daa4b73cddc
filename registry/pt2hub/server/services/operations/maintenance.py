"""Maintenance: recovers builds of lost workers, archives logs and removes expired data."""

from __future__ import annotations

import time
from datetime import timedelta
from typing import TYPE_CHECKING

import structlog
from sqlalchemy import text

from pt2hub.errors import Pt2hubError, TransientError
from pt2hub.server.db.stores.builds.attempts import AttemptStore
from pt2hub.server.db.stores.builds.builds import BuildStore
from pt2hub.server.db.stores.operations.workers import WorkerStore
from pt2hub.server.services.builds.transitions import Transitions

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pt2hub.server.db.engine import Sessions
    from pt2hub.server.db.queue import BuildQueue

_LOCK = text("SELECT pg_try_advisory_xact_lock(84000002)")
_CONTACT = text("SELECT CAST(extract(epoch FROM clock_timestamp()) AS float8)")
_ARCHIVE_DELAY = timedelta(seconds=10)
"""Time from an attempt's end until its log is archived: its last lines arrive after the end."""
_ARCHIVE_PASS_S = 20.0
"""Maximum time of one archiving pass: the lock's transaction stays open meanwhile."""
_ARCHIVE_BATCH = 100
ABANDONED_AFTER_S = 86400.0
"""A partial file that was not written to for a day is abandoned."""
_HOUR_S = 3600.0
_WORKER_RETENTION = timedelta(days=7)
_FORGET_BATCH = 10
_log = structlog.get_logger(__name__)


class MaintenanceService:
    """Maintenance of builds, their logs and their jobs; any process may run it.

    Args:
        archive: Archives the log of a build's attempt, if it has one.
        chores: Further periodic tasks; several processes may run them at once.
    """

    def __init__(
        self,
        sessions: Sessions,
        queue: BuildQueue,
        *,
        heartbeat_timeout: timedelta,
        archive: Callable[[str, int], object | None],
        chores: Sequence[Callable[[], object]],
    ) -> None:
        self._sessions = sessions
        self._queue = queue
        self._heartbeat_timeout = heartbeat_timeout
        self._archive = archive
        self._chores = chores

    def contact(self) -> float:
        """Check that the database answers.

        Returns:
            The time of its clock, in seconds.

        Raises:
            DatabaseUnavailable: It does not answer.
        """
        with self._sessions.begin() as session:
            now: float = session.execute(_CONTACT).scalar_one()
        return now

    def requeue_lost(self) -> list[str]:
        """Requeue running builds of lost workers, and create jobs for queued builds that lost theirs.

        Each lost attempt counts as a failure, so that a build that kills its workers fails in the end. A lost attempt
        may still be running somewhere, but it can no longer publish.

        Returns:
            The builds' ids.
        """
        with self._sessions.begin() as session:
            builds, transitions = BuildStore(session), Transitions(session, self._queue)
            lost = builds.lost(self._heartbeat_timeout)
            for build in lost:
                transitions.lose(build)
            astray = builds.astray(
                self._queue.undeliverable(session, heartbeat_timeout=self._heartbeat_timeout)
            )
            for build in astray:
                transitions.deliver_again(build)
                _log.warning("queued build delivered again", build=build.id)
            return [build.id for build in (*lost, *astray)]

    def tidy(self) -> None:
        """Close abandoned attempts, archive logs, remove expired rows and run the chores.

        Only one process at a time does it; for the others it is a no-op.
        """
        with self._sessions.begin() as session:
            if not session.scalar(_LOCK):
                return
            attempts = AttemptStore(session)
            attempts.close_abandoned()
            self._queue.sweep(session)
            WorkerStore(session).forget(gone_for=_WORKER_RETENTION, limit=_FORGET_BATCH)
        for chore in self._chores:
            _attempt(chore)
        with self._sessions.begin() as session:
            if session.scalar(_LOCK):
                self._archive_logs(
                    AttemptStore(session).list_unarchived(rest=_ARCHIVE_DELAY, limit=_ARCHIVE_BATCH)
                )

    def _archive_logs(self, attempts: Sequence[tuple[str, int]]) -> None:
        """Archive logs, each in a transaction of its own; the caller's transaction holds the lock."""
        until = time.monotonic() + _ARCHIVE_PASS_S
        for build_id, attempt in attempts:
            if time.monotonic() > until:
                break
            try:
                self._archive(build_id, attempt)
            except Pt2hubError as error:
                _log.warning("log not archived", build=build_id, attempt=attempt, error=str(error))
                if isinstance(error, TransientError):  # the storage is unavailable: the next pass comes soon
                    break


class HourlyTask:
    """A task that this process runs at most once an hour.

    Args:
        clock: Monotonic seconds.
    """

    def __init__(self, chore: Callable[[], object], clock: Callable[[], float] = time.monotonic) -> None:
        self._chore = chore
        self._clock = clock
        self._due = float("-inf")

    def __call__(self) -> None:
        """Run the task if it is due; an error does not make it due earlier."""
        now = self._clock()
        if now >= self._due:
            self._due = now + _HOUR_S
            self._chore()


def _attempt(chore: Callable[[], object]) -> None:
    """Run a chore, logging its error so that the others still run."""
    try:
        chore()
    except Pt2hubError as error:
        _log.warning("maintenance task failed", error=str(error))
