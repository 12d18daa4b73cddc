"""Runner: takes builds and measuring jobs from the queue and runs one in each slot."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import structlog
from structlog.contextvars import bound_contextvars

from pt2hub.domain.builds import BuildKind
from pt2hub.errors import (
    BadConfiguration,
    FatalError,
    InternalError,
    Pt2hubError,
    StaleAttempt,
    TransientError,
    WorkerLost,
)
from pt2hub.wire.problems import from_dict
from pt2hub_workers.builds.attempt import Attempt
from pt2hub_workers.builds.journal import CLOSE_SECONDS, Journal
from pt2hub_workers.builds.rebuild import Rebuild
from pt2hub_workers.inside.builds.shortage import find_shortage
from pt2hub_workers.operations.cancellation import Cancelled
from pt2hub_workers.operations.retries import retry_outage
from pt2hub_workers.performance.measuring_job import Benchmark

if TYPE_CHECKING:
    from pt2hub.domain.builds import Claim
    from pt2hub.server.services.builds.build_service import BuildService
    from pt2hub.system.redaction import Redactor
    from pt2hub_workers.builds.job import Job, WorkerContext
    from pt2hub_workers.operations.cancellation import CancellationToken
    from pt2hub_workers.operations.heartbeat import HeartbeatMonitor

KINDS: dict[BuildKind, type[Job]] = {
    BuildKind.BUILD: Attempt,
    BuildKind.MEASURE: Benchmark,
    BuildKind.REBUILD: Rebuild,
}
"""Job classes by kind of build."""
RETRY_SECONDS = 2.0
"""Pause before an outcome is recorded again while the database is unavailable."""
SHUTDOWN_SECONDS = 5.0
"""How long a stopping worker waits for the database; afterwards its missing heartbeat ends its builds."""
_log = structlog.get_logger()


class BuildRunner:
    """Runs the builds of this worker."""

    def __init__(self, context: WorkerContext, monitor: HeartbeatMonitor) -> None:
        self._context = context
        self._monitor = monitor
        self._builds = context.container.builds

    def run(self, build_id: str) -> None:
        """Run a build if it is still queued; its outcome goes to the database, never into an exception."""
        with bound_contextvars(build=build_id):
            claim = self._claim(build_id)
            if claim is None:
                return
            with bound_contextvars(attempt=claim.attempt), self._monitor.track(claim) as token:
                self._run(claim, token)
        if not self._monitor.draining:
            self._context.toolchain.refill()

    def _claim(self, build_id: str) -> Claim | None:
        def claim() -> Claim | None:
            return self._builds.claim(build_id, self._monitor.worker_id)

        try:
            claimed = retry_outage(claim, self._monitor.ending)
        except (Cancelled, TransientError) as error:
            _log.warning("build not claimed; it is delivered again while it stays queued", reason=str(error))
            return None
        if claimed is None:
            _log.info("build is no longer queued")
        return claimed

    def _run(self, claim: Claim, token: CancellationToken) -> None:
        journal = Journal(
            self._builds,
            claim,
            redactor=self._context.redactor,
            offset=self._monitor.offset,
            on_stale=lambda: token.set("overtaken"),
        )
        try:
            KINDS[claim.kind](claim, self._context, journal, token).run()
            _log.info("build succeeded")
        except Exception as error:  # noqa: BLE001  # a build always ends in a state its owner can read
            if isinstance(error, StaleAttempt):
                self._monitor.lose(claim, token)
            _Outcome(self._builds, claim, journal, token, self._context.redactor).settle(error)
        finally:
            journal.close(SHUTDOWN_SECONDS if token.is_set() else CLOSE_SECONDS)


class _Outcome:
    """Outcome of an attempt that did not succeed."""

    def __init__(
        self,
        builds: BuildService,
        claim: Claim,
        journal: Journal,
        token: CancellationToken,
        redactor: Redactor,
    ) -> None:
        self._builds = builds
        self._claim = claim
        self._journal = journal
        self._token = token
        self._redactor = redactor

    def settle(self, error: Exception) -> None:
        """Record the outcome, retrying through database outages; skip it when another attempt has the build."""
        reported = self._report(error)
        self._journal.fail_step()
        deadline: float | None = None
        while not self._record(reported):
            if self._token.reason == "stopping":
                deadline = deadline or time.monotonic() + SHUTDOWN_SECONDS
                if time.monotonic() > deadline:
                    return  # the worker leaves: its builds count as lost and are queued again
                time.sleep(RETRY_SECONDS / 4)
            else:
                # Without an outcome the build would stay `running` on a live worker.
                self._token.wait(RETRY_SECONDS)

    def _report(self, error: Exception) -> Pt2hubError:
        """Log the end of the attempt; return the error as a `Pt2hubError`."""
        reported = _to_pt2hub_error(error)
        reported = from_dict(
            self._redactor.clean_value(reported.as_dict())
        )  # it may quote what the model printed
        if self._token.reason:
            _log.info("build cancelled", reason=self._token.reason)
            self._journal.line(_CANCELLATION_LINES[self._token.reason], "warning")
            return reported
        # Errors of the model are for its owner; only defects of pt2hub need a traceback here.
        trace = error if isinstance(reported, FatalError) else None
        _log.warning("build failed", code=reported.code, exc_info=trace)
        for line in str(reported).splitlines():
            self._journal.line(line, "error")
        return reported

    def _record(self, error: Pt2hubError) -> bool:
        """Write the outcome; return False if the database did not answer."""
        if self._token.reason in ("cancelled", "overtaken"):
            return True  # already recorded with the cancellation or the new attempt
        self._journal.flush()  # before the attempt ends: later lines are refused
        try:
            if self._token.reason == "stopping":
                self._builds.hand_back(self._claim)
            elif self._token.reason == "postponed":
                self._builds.postpone(self._claim)
            elif isinstance(error, TransientError):
                self._builds.retry_later(self._claim, error)
            else:
                self._builds.fail(self._claim, error)
        except StaleAttempt:
            _log.info("another attempt has taken over")
        except TransientError as second:
            _log.warning("outcome not recorded yet", error=str(second))
            return False
        return True


def _to_pt2hub_error(error: Exception) -> Pt2hubError:
    if isinstance(error, BadConfiguration):  # the worker's own, such as a scratch directory that disappeared
        return WorkerLost(f"the worker is misconfigured: {error.message}", where=error.where, hint=error.hint)
    if isinstance(error, Pt2hubError):
        return error
    return find_shortage(error) or InternalError(f"{type(error).__name__}: {error}")


_CANCELLATION_LINES = {
    "cancelled": "The build was cancelled; all its processes were killed.",
    "overtaken": "Another attempt took over; all processes of this one were killed.",
    "postponed": "A build is waiting; all processes of this job were killed, and the job was queued again behind it.",
    "stopping": "The worker is stopping; all processes of the build were killed, and the build was queued again.",
}
