"""Workers: registration, heartbeats, offered targets and the builds that they run."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import structlog

from pt2hub.domain.workers import NOTABLE_SKEW
from pt2hub.errors import NotFound
from pt2hub.server.db.stores.builds.builds import BuildStore
from pt2hub.server.db.stores.operations.workers import WorkerStore
from pt2hub.server.services.builds.transitions import Transitions
from pt2hub.server.services.operations.isolation import is_enough, require_isolation
from pt2hub.wire.workers import WorkerList

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from typing import Any

    from pt2hub.domain.digests import Digest
    from pt2hub.domain.workers import Registration
    from pt2hub.server.db.engine import Sessions
    from pt2hub.server.db.queue import BuildQueue
    from pt2hub.wire.responses import TargetView

_GONE_WORKERS_SHOWN_FOR = timedelta(days=1)
_log = structlog.get_logger(__name__)


class WorkerService:
    """Registration, heartbeats and lists of workers."""

    def __init__(self, sessions: Sessions, queue: BuildQueue, *, heartbeat_timeout: timedelta) -> None:
        self._sessions = sessions
        self._queue = queue
        self._heartbeat_timeout = heartbeat_timeout

    def register(self, registration: Registration) -> float:
        """Register a worker as live, or update its registration.

        Returns:
            Seconds to add to the worker's clock to get the database's, on which it reports its times.

        Raises:
            IsolationRefused: It is below the required isolation level.
        """
        with self._sessions.begin() as session:
            require_isolation(session, registration.isolation)
            ahead = WorkerStore(session).register(registration)
        if abs(ahead) > NOTABLE_SKEW:
            _log.warning(
                "the worker's clock is off; its reported times are corrected",
                worker=registration.worker_id,
                host=registration.host,
                seconds_ahead=round(-ahead, 1),
            )
        return ahead

    def beat(self, worker_id: str, held: Mapping[str, int]) -> tuple[str, ...]:
        """Record a worker's heartbeat, and compare its builds with the database's.

        A claim whose response was lost leaves a build that runs nowhere: one that the worker claimed long ago and
        does not name is given to another worker.

        Args:
            held: The attempt number of each build that the worker is running.

        Returns:
            The builds that it no longer has and must stop.

        Raises:
            NotFound: The worker is not registered, or is now below the required isolation: it must register.
        """
        with self._sessions.begin() as session:
            isolation = WorkerStore(session).beat(worker_id)
            if isolation is None or not is_enough(session, isolation):
                raise _unknown(worker_id)
            builds = BuildStore(session)
            running = builds.running_on(worker_id)
            known = [build for build, attempt in running.items() if held.get(build) == attempt]
            if len(known) < len(running):
                for build in builds.unknown_to(worker_id, known, self._heartbeat_timeout):
                    Transitions(session, self._queue).lose(build)
            return tuple(build for build in held if build not in known)

    def drain(self, worker_id: str) -> None:
        """Mark a worker as draining: it finishes its builds and takes no new ones."""
        with self._sessions.begin() as session:
            WorkerStore(session).drain(worker_id)

    def leave(self, worker_id: str) -> None:
        """Remove a worker from its target at once; builds it still has are requeued."""
        with self._sessions.begin() as session:
            WorkerStore(session).leave(worker_id)

    def workers(
        self, *, gone: bool = False, target: str | None = None, limit: int | None = None
    ) -> WorkerList:
        """Return the live workers, and what each is doing.

        Args:
            gone: Include those that were lost or left within a day.
            target: Only those of this target.
            limit: Maximum number; None for all.
        """
        with self._sessions.begin() as session:
            within = _GONE_WORKERS_SHOWN_FOR if gone else None
            views = WorkerStore(session).views(
                self._heartbeat_timeout, gone_within=within, target=target, limit=limit
            )
            return WorkerList(tuple(views))

    def machines(self, environments: Collection[Digest]) -> dict[Digest, dict[str, Any]]:
        """Return the fields of workers' environments, by digest."""
        with self._sessions.begin() as session:
            return WorkerStore(session).environments(environments)

    def targets(self) -> list[TargetView]:
        """Return every target that a worker ever offered or that a queued build has, by name."""
        with self._sessions.begin() as session:
            return WorkerStore(session).targets(self._heartbeat_timeout)


def _unknown(worker_id: str) -> NotFound:
    return NotFound(f"Worker {worker_id[:80]!r} not found", where="worker", hint="Register it first.")
