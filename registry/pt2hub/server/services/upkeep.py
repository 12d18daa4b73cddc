"""Upkeep: what lost workers leave behind, and what nobody needs any more."""

from __future__ import annotations

import time
from datetime import timedelta
from typing import TYPE_CHECKING

import structlog
from sqlalchemy import text

from pt2hub.errors import Pt2hubError, TransientError
from pt2hub.server.db.stores.attempts import AttemptStore
from pt2hub.server.db.stores.builds import BuildStore
from pt2hub.server.db.stores.workers import WorkerStore
from pt2hub.server.services.transitions import Transitions

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pt2hub.server.db.engine import Sessions
    from pt2hub.server.db.queue import BuildQueue

_LOCK = text("SELECT pg_try_advisory_xact_lock(84000002)")
_CONTACT = text("SELECT CAST(extract(epoch FROM clock_timestamp()) AS float8)")
_REST = timedelta(seconds=10)
"""How long an attempt is over before its log is put away: its last lines come after the deed."""
_ARCHIVE_SECONDS = 20.0
"""How long one pass puts logs away: the lock's transaction stays open meanwhile."""
_ARCHIVE_AT_MOST = 100
LEFT_SECONDS = 86400.0
"""What nobody wrote to for a day, its writer has left half-written."""
_HOUR = 3600.0
_REMEMBERED = timedelta(days=7)
_FORGET_AT_MOST = 10
_log = structlog.get_logger(__name__)


class UpkeepService:
    """Upkeep of builds, their logs and their jobs, by whoever has time."""

    def __init__(
        self,
        sessions: Sessions,
        queue: BuildQueue,
        *,
        silence: timedelta,
        archive: Callable[[str, int], object | None],
        chores: Sequence[Callable[[], object]],
    ) -> None:
        """Is built by the container.

        Args:
            sessions: Opens transactions.
            queue: Takes the builds of lost workers.
            silence: Time without a heartbeat after which a worker is lost.
            archive: Puts the log of a build's attempt away, if it left one.
            chores: What else is to be done now and then; several processes may do it at once.
        """
        self._sessions = sessions
        self._queue = queue
        self._silence = silence
        self._archive = archive
        self._chores = chores

    def contact(self) -> float:
        """Asks the database for a sign of life.

        Returns:
            What its clock says, in seconds.

        Raises:
            DatabaseUnavailable: It gives none.
        """
        with self._sessions.begin() as session:
            told: float = session.execute(_CONTACT).scalar_one()
        return told

    def requeue_lost(self) -> list[str]:
        """Takes running builds from lost workers, and delivers queued ones whose job went astray.

        Each lost attempt counts as a failure: what takes down every worker it meets must end some time. The lost
        attempt may still be alive somewhere; it can publish no more.

        Returns:
            The builds' ids.
        """
        with self._sessions.begin() as session:
            builds, transitions = BuildStore(session), Transitions(session, self._queue)
            lost = builds.lost(self._silence)
            for build in lost:
                transitions.lose(build)
            astray = builds.astray(self._queue.undeliverable(session, silence=self._silence))
            for build in astray:
                transitions.deliver_again(build)
                _log.warning("queued build delivered again", build=build.id)
            return [build.id for build in (*lost, *astray)]

    def tidy(self) -> None:
        """Closes attempts that nothing closed, puts their logs away, drops what is over, does the chores.

        One process at a time does it; others have nothing to do then.

        Raises:
            DatabaseUnavailable: The database did not answer.
        """
        with self._sessions.begin() as session:
            if not session.scalar(_LOCK):
                return
            attempts = AttemptStore(session)
            attempts.close_abandoned()
            self._queue.sweep(session)
            WorkerStore(session).forget(gone_for=_REMEMBERED, limit=_FORGET_AT_MOST)
        for chore in self._chores:
            _attempted(chore)
        with self._sessions.begin() as session:
            if session.scalar(_LOCK):
                self._archive_logs(AttemptStore(session).unarchived(rest=_REST, limit=_ARCHIVE_AT_MOST))

    def _archive_logs(self, attempts: Sequence[tuple[str, int]]) -> None:
        """Puts logs away, each in a transaction of its own; the caller's keeps others from doing the same."""
        until = time.monotonic() + _ARCHIVE_SECONDS
        for build_id, attempt in attempts:
            if time.monotonic() > until:
                break
            try:
                self._archive(build_id, attempt)
            except Pt2hubError as error:
                _log.warning("log not put away", build=build_id, attempt=attempt, error=str(error))
                if isinstance(error, TransientError):  # the storage is away: another pass comes soon
                    break


class Hourly:
    """A chore that is done at most once an hour by this process."""

    def __init__(self, chore: Callable[[], object], clock: Callable[[], float] = time.monotonic) -> None:
        """Is due at once.

        Args:
            chore: What to do.
            clock: Seconds that only ever grow.
        """
        self._chore = chore
        self._clock = clock
        self._due = float("-inf")

    def __call__(self) -> None:
        """Does it where it is due; after an error not sooner than otherwise."""
        now = self._clock()
        if now >= self._due:
            self._due = now + _HOUR
            self._chore()


def _attempted(chore: Callable[[], object]) -> None:
    """Does a chore; one that fails keeps no other from being done."""
    try:
        chore()
    except Pt2hubError as error:
        _log.warning("a chore was not done", error=str(error))
