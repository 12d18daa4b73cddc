"""How builds change hands, in the caller's transaction and over a row that it has locked.

Whatever moves a build also closes its attempt, keeps its jobs in step and tells whoever listens. Rows are locked in
one order, the build before its attempt and its jobs, so that transitions wait for each other and never deadlock.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog

from pt2hub.domain.builds import MAX_FAILURES, BuildState, Outcome, backoff
from pt2hub.errors import StaleAttempt, WorkerLost
from pt2hub.server.db.notifications import notify, notify_progress
from pt2hub.server.db.stores.attempts import AttemptStore
from pt2hub.server.db.stores.builds import BuildStore
from pt2hub.server.db.stores.values import storable

if TYPE_CHECKING:
    from datetime import datetime

    from sqlalchemy.orm import Session

    from pt2hub.domain.builds import Claim
    from pt2hub.errors import Pt2hubError
    from pt2hub.server.db.queue import BuildQueue
    from pt2hub.server.db.stores.builds import HeldBuild

_log = structlog.get_logger(__name__)


class Transitions:
    """Moves builds."""

    def __init__(self, session: Session, queue: BuildQueue) -> None:
        """Works in the caller's transaction.

        Args:
            session: The transaction; it holds the lock of every build that is moved.
            queue: Takes the builds that wait again.
        """
        self._session = session
        self._queue = queue
        self._builds = BuildStore(session)
        self._attempts = AttemptStore(session)

    def succeed(self, build: HeldBuild, *, reused: bool | None) -> None:
        """Ends a running build with its result, which the caller adds.

        Args:
            build: The build.
            reused: Whether its code is an earlier build's; None of a measuring job.
        """
        self._builds.finish(build, BuildState.SUCCEEDED)
        self._attempts.close(build.id, build.attempt, Outcome.SUCCEEDED, reused=reused)
        notify_progress(self._session, build.id)  # its worker knows

    def fail(self, build: HeldBuild, error: Pt2hubError) -> None:
        """Ends a running build with an error."""
        self._fail(build, error, failures=build.failures)

    def cancel(self, build: HeldBuild, *, by: str) -> None:
        """Ends a queued or running build without a result; a running attempt learns it from the notification."""
        said = {"message": f"cancelled by {by}"}
        self._builds.finish(build, BuildState.CANCELLED, error=said)
        if build.state is BuildState.RUNNING:
            self._attempts.close(build.id, build.attempt, Outcome.CANCELLED, error=said)
        self._queue.withdraw(self._session, build.id)
        notify(self._session, build.id)

    def retry_later(self, build: HeldBuild, error: Pt2hubError) -> None:
        """Counts a transient failure: the build waits a while for its next attempt, or ends after too many."""
        failures = build.failures + 1
        if failures >= MAX_FAILURES:
            self._fail(build, error, failures=failures)
            return
        self._attempts.close(build.id, build.attempt, Outcome.RETRIED, error=storable(error.as_dict()))
        pause = backoff(failures)
        not_before = self._builds.queue(build, failures=failures, priority=build.priority, pause=pause)
        self._deliver(build, priority=build.priority, not_before=not_before)

    def lose(self, build: HeldBuild) -> None:
        """Counts a lost attempt: the build waits for another worker, or ends after too many."""
        _log.warning("attempt lost", build=build.id, attempt=build.attempt, worker=build.worker)
        lost = _lost(f"Attempt {build.attempt} lost its worker {build.worker or ''}".rstrip(), build)
        self._attempts.close(build.id, build.attempt, Outcome.LOST, error=lost.as_dict())
        failures = build.failures + 1
        if failures >= MAX_FAILURES:
            error = self._hopeless(build, failures).as_dict()
            self._builds.finish(build, BuildState.FAILED, error=error, failures=failures)
            notify(self._session, build.id)
        else:
            self.requeue(build, failures=failures)

    def hand_back(
        self, build: HeldBuild, *, by: str | None = None, outcome: Outcome = Outcome.HANDED_BACK
    ) -> None:
        """Ends a running attempt, not its build, which waits for another worker; nothing is counted.

        Args:
            build: The build.
            by: Who asked for it, None for its worker itself.
            outcome: What the attempt's end is called.
        """
        said = {"message": f"queued again by {by}"} if by else None
        self._attempts.close(build.id, build.attempt, outcome, error=said)
        self.requeue(build, failures=build.failures)

    def requeue(self, build: HeldBuild, *, failures: int, priority: int | None = None) -> None:
        """Puts a build that no attempt has at the end of its queue.

        Args:
            build: The build.
            failures: Attempts that failed so far.
            priority: Its priority from now on; as before where omitted.
        """
        priority = build.priority if priority is None else priority
        self._builds.queue(build, failures=failures, priority=priority)
        self._deliver(build, priority=priority)

    def deliver_again(self, build: HeldBuild) -> None:
        """Makes a job for a queued build that none leads to; its place in the queue stays."""
        self._deliver(build, priority=build.priority)

    def _deliver(self, build: HeldBuild, *, priority: int, not_before: datetime | None = None) -> None:
        self._queue.withdraw(self._session, build.id)  # one that was overlooked would jump the queue
        self._queue.defer(
            self._session, build.id, queue=build.target, priority=priority, not_before=not_before
        )
        notify(self._session, build.id)

    def _fail(self, build: HeldBuild, error: Pt2hubError, *, failures: int) -> None:
        fields = storable(error.as_dict())
        self._builds.finish(build, BuildState.FAILED, error=fields, failures=failures)
        self._attempts.close(build.id, build.attempt, Outcome.FAILED, error=fields)
        notify(self._session, build.id)

    def _hopeless(self, build: HeldBuild, failures: int) -> WorkerLost:
        """The error of a build that lost or failed too many attempts: which they were and who had them."""
        attempts = self._attempts.of(build.id)[-failures:]
        told = ", ".join(f"attempt {item.number} ({item.worker}: {item.outcome})" for item in attempts)
        return _lost(f"{failures} attempts were lost or failed for a passing reason: {told}", build)


def overtaken(claim: Claim) -> StaleAttempt:
    """The error of an attempt that may change nothing any more."""
    return StaleAttempt(
        f"Attempt {claim.attempt} at build {claim.build} was overtaken or is over",
        where=claim.build,
        hint="Nothing was written. The worker was taken for lost, or the build was ended elsewhere.",
        context={"attempt": claim.attempt, "worker": claim.worker},
    )


def _lost(message: str, build: HeldBuild) -> WorkerLost:
    return WorkerLost(
        message,
        where=build.id,
        hint=f"What takes a worker down with it mostly takes its memory: see the last lines of each attempt with "
        f"pt2hub logs {build.id}, then run pt2hub retry {build.id}.",
        context={"attempt": build.attempt, "worker": build.worker},
    )
