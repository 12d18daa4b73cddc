"""State transitions of builds, in the caller's transaction and over a row that it has locked.

Each transition also closes the attempt, keeps the jobs in step and notifies listeners. Rows are locked in one order,
the build before its attempt and its jobs, so that transitions wait for each other and never deadlock.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog

from pt2hub.domain.builds import MAX_FAILURES, BuildState, Outcome, backoff
from pt2hub.domain.webhooks import EventType
from pt2hub.errors import StaleAttempt, WorkerLost
from pt2hub.server.db.notifications import notify, notify_progress
from pt2hub.server.db.stores.builds.attempts import AttemptStore
from pt2hub.server.db.stores.builds.builds import BuildStore
from pt2hub.server.db.stores.values import storable
from pt2hub.server.services.webhooks.events import record_build_end

if TYPE_CHECKING:
    from datetime import datetime

    from sqlalchemy.orm import Session

    from pt2hub.domain.builds import Claim
    from pt2hub.domain.principals import Principal
    from pt2hub.errors import Pt2hubError
    from pt2hub.server.db.queue import BuildQueue
    from pt2hub.server.db.stores.builds.builds import HeldBuild

_log = structlog.get_logger(__name__)


class Transitions:
    """State transitions of builds."""

    def __init__(self, session: Session, queue: BuildQueue) -> None:
        self._session = session
        self._queue = queue
        self._builds = BuildStore(session)
        self._attempts = AttemptStore(session)

    def succeed(self, build: HeldBuild, *, reused: bool | None) -> None:
        """End a running build as succeeded; the caller adds the result.

        Args:
            reused: Whether its code was reused from an earlier build; None for a measuring job.
        """
        self._builds.finish(build, BuildState.SUCCEEDED)
        self._attempts.close(build.id, build.attempt, Outcome.SUCCEEDED, reused=reused)
        record_build_end(self._session, build, EventType.BUILD_SUCCEEDED)
        notify_progress(self._session, build.id)  # its worker needs no notification

    def fail(self, build: HeldBuild, error: Pt2hubError) -> None:
        """End a running build as failed."""
        self._fail(build, error, failures=build.failures)

    def cancel(self, build: HeldBuild, *, by: Principal) -> None:
        """Cancel a queued or running build; a running attempt is stopped by the notification."""
        reason = {"message": f"cancelled by {by}"}
        self._builds.finish(build, BuildState.CANCELLED, error=reason)
        self._builds.record_cancellation(build.id, by)
        if build.state is BuildState.RUNNING:
            self._attempts.close(build.id, build.attempt, Outcome.CANCELLED, error=reason)
        self._queue.withdraw(self._session, build.id)
        record_build_end(self._session, build, EventType.BUILD_CANCELLED)
        notify(self._session, build.id)

    def retry_later(self, build: HeldBuild, error: Pt2hubError) -> None:
        """Count a transient failure: queue the build again after a delay, or fail it after too many."""
        failures = build.failures + 1
        if failures >= MAX_FAILURES:
            self._fail(build, error, failures=failures)
            return
        self._attempts.close(build.id, build.attempt, Outcome.RETRIED, error=storable(error.as_dict()))
        pause = backoff(failures)
        not_before = self._builds.queue(build, failures=failures, priority=build.priority, pause=pause)
        self._deliver(build, priority=build.priority, not_before=not_before)

    def lose(self, build: HeldBuild) -> None:
        """Count a lost attempt: queue the build for another worker, or fail it after too many."""
        _log.warning("attempt lost", build=build.id, attempt=build.attempt, worker=build.worker)
        lost = _lost(f"Attempt {build.attempt} lost its worker {build.worker or ''}".rstrip(), build)
        self._attempts.close(build.id, build.attempt, Outcome.LOST, error=lost.as_dict())
        failures = build.failures + 1
        if failures >= MAX_FAILURES:
            error = self._attempts_exhausted(build, failures).as_dict()
            self._builds.finish(build, BuildState.FAILED, error=error, failures=failures)
            record_build_end(self._session, build, EventType.BUILD_FAILED, error)
            notify(self._session, build.id)
        else:
            self.requeue(build, failures=failures)

    def hand_back(
        self, build: HeldBuild, *, by: Principal | None = None, outcome: Outcome = Outcome.HANDED_BACK
    ) -> None:
        """End a running attempt and queue its build again, without counting a failure.

        Args:
            by: Who requested it, None for the worker itself.
        """
        reason = {"message": f"queued again by {by}"} if by else None
        self._attempts.close(build.id, build.attempt, outcome, error=reason)
        self.requeue(build, failures=build.failures, by=by)

    def requeue(
        self,
        build: HeldBuild,
        *,
        failures: int,
        priority: int | None = None,
        by: Principal | None = None,
    ) -> None:
        """Put a build without a current attempt at the end of its queue.

        Args:
            priority: Its new priority; unchanged where omitted.
            by: Who requested it, None where nobody did.
        """
        priority = build.priority if priority is None else priority
        self._builds.queue(build, failures=failures, priority=priority)
        if by is not None:
            self._builds.record_retry(build.id, by)
        self._deliver(build, priority=priority)

    def deliver_again(self, build: HeldBuild) -> None:
        """Create a job for a queued build that has none; it keeps its position in the queue."""
        self._deliver(build, priority=build.priority)

    def _deliver(self, build: HeldBuild, *, priority: int, not_before: datetime | None = None) -> None:
        self._queue.withdraw(self._session, build.id)  # a leftover job would jump the queue
        self._queue.defer(
            self._session, build.id, queue=build.target, priority=priority, not_before=not_before
        )
        notify(self._session, build.id)

    def _fail(self, build: HeldBuild, error: Pt2hubError, *, failures: int) -> None:
        fields = storable(error.as_dict())
        self._builds.finish(build, BuildState.FAILED, error=fields, failures=failures)
        self._attempts.close(build.id, build.attempt, Outcome.FAILED, error=fields)
        record_build_end(self._session, build, EventType.BUILD_FAILED, fields)
        notify(self._session, build.id)

    def _attempts_exhausted(self, build: HeldBuild, failures: int) -> WorkerLost:
        """Return the error of a build with too many lost or failed attempts, which it lists with their workers."""
        attempts = self._attempts.of(build.id)[-failures:]
        listed = ", ".join(f"attempt {item.number} ({item.worker}: {item.outcome})" for item in attempts)
        return _lost(f"{failures} attempts were lost or failed for a transient reason: {listed}", build)


def overtaken(claim: Claim) -> StaleAttempt:
    """Return the error of an attempt that is no longer current."""
    return StaleAttempt(
        f"Attempt {claim.attempt} of build {claim.build} was overtaken or has ended",
        where=claim.build,
        hint="Nothing was written. The worker was considered lost, or the build was ended elsewhere.",
        context={"attempt": claim.attempt, "worker": claim.worker},
    )


def _lost(message: str, build: HeldBuild) -> WorkerLost:
    return WorkerLost(
        message,
        where=build.id,
        hint=f"Builds that kill their worker usually exhaust its memory: see the last lines of each attempt with "
        f"pt2hub logs {build.id}, then run pt2hub retry {build.id}.",
        context={"attempt": build.attempt, "worker": build.worker},
    )
