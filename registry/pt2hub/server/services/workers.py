"""Workers: who lives, what they offer, what they do, and which builds they still have."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import structlog

from pt2hub.domain.workers import NOTABLE_SKEW
from pt2hub.errors import NotFound
from pt2hub.server.db.stores.builds import BuildStore
from pt2hub.server.db.stores.workers import WorkerStore
from pt2hub.server.services.isolation import is_enough, require_isolation
from pt2hub.server.services.transitions import Transitions
from pt2hub.wire.workers import WorkerList

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from typing import Any

    from pt2hub.domain.digests import Digest
    from pt2hub.domain.workers import Registration
    from pt2hub.server.db.engine import Sessions
    from pt2hub.server.db.queue import BuildQueue
    from pt2hub.wire.shapes import TargetView

_GONE_WITHIN = timedelta(days=1)
_log = structlog.get_logger(__name__)


class WorkerService:
    """Workers."""

    def __init__(self, sessions: Sessions, queue: BuildQueue, *, silence: timedelta) -> None:
        """Is built by the container.

        Args:
            sessions: Opens transactions.
            queue: Takes builds that a worker does not know of.
            silence: Time without a heartbeat after which a worker is lost.
        """
        self._sessions = sessions
        self._queue = queue
        self._silence = silence

    def register(self, registration: Registration) -> float:
        """Adds a worker, alive from now on, or renews what it says about itself.

        Returns:
            Seconds to add to the worker's clock to get the database's, by which it reports its times.

        Raises:
            IsolationRefused: It confines models' code less than the server demands.
        """
        with self._sessions.begin() as session:
            require_isolation(session, registration.isolation)
            ahead = WorkerStore(session).register(registration)
        if abs(ahead) > NOTABLE_SKEW:
            _log.warning(
                "the worker's clock is off; the times it reports are corrected",
                worker=registration.worker_id,
                host=registration.host,
                seconds_ahead=round(-ahead, 1),
            )
        return ahead

    def beat(self, worker_id: str, held: Mapping[str, int]) -> tuple[str, ...]:
        """Keeps a worker alive and compares what it does with what it should.

        A claim whose answer was lost leaves a build that runs nowhere: one that the worker took long ago and does
        not name goes to another one.

        Args:
            worker_id: The worker.
            held: Every build that it has, with the number of its attempt.

        Returns:
            The builds among them that it has no more: it must stop doing them.

        Raises:
            NotFound: There is no such worker, or it confines what it runs too little by now: it must register.
        """
        with self._sessions.begin() as session:
            isolation = WorkerStore(session).beat(worker_id)
            if isolation is None or not is_enough(session, isolation):
                raise _unknown(worker_id)
            builds = BuildStore(session)
            running = builds.running_on(worker_id)
            known = [build for build, attempt in running.items() if held.get(build) == attempt]
            if len(known) < len(running):
                for build in builds.unknown_to(worker_id, known, self._silence):
                    Transitions(session, self._queue).lose(build)
            return tuple(build for build in held if build not in known)

    def drain(self, worker_id: str) -> None:
        """Notes that a worker only finishes what it has."""
        with self._sessions.begin() as session:
            WorkerStore(session).drain(worker_id)

    def leave(self, worker_id: str) -> None:
        """Ends a worker: its target counts one worker less at once, and builds it still holds are requeued."""
        with self._sessions.begin() as session:
            WorkerStore(session).leave(worker_id)

    def workers(
        self, *, gone: bool = False, target: str | None = None, limit: int | None = None
    ) -> WorkerList:
        """Workers that live, and what each is doing.

        Args:
            gone: Also those that were lost or left within a day.
            target: Only those of this target.
            limit: At most so many; None for all.
        """
        with self._sessions.begin() as session:
            within = _GONE_WITHIN if gone else None
            views = WorkerStore(session).views(self._silence, gone_within=within, target=target, limit=limit)
            return WorkerList(tuple(views))

    def machines(self, environments: Collection[Digest]) -> dict[Digest, dict[str, Any]]:
        """The fields of the fingerprints that workers name as their `environment`, by digest."""
        with self._sessions.begin() as session:
            return WorkerStore(session).environments(environments)

    def targets(self) -> list[TargetView]:
        """Every target that a worker ever offered or that a build waits for, by name."""
        with self._sessions.begin() as session:
            return WorkerStore(session).targets(self._silence)


def _unknown(worker_id: str) -> NotFound:
    return NotFound(f"There is no worker {worker_id[:80]!r}", where="worker", hint="Register it first.")
