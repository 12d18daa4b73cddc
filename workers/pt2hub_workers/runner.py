"""Takes builds and measuring jobs off the queue and runs them, one in each slot."""

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
from pt2hub_workers.attempt import Attempt
from pt2hub_workers.benchmark import Benchmark
from pt2hub_workers.halting import Halted
from pt2hub_workers.inside.shortage import shortage
from pt2hub_workers.journal import CLOSE_SECONDS, Journal
from pt2hub_workers.outages import persisting

if TYPE_CHECKING:
    from pt2hub.domain.builds import Claim
    from pt2hub.server.redaction import Redactor
    from pt2hub.server.services.builds import BuildService
    from pt2hub_workers.attempt import Tools
    from pt2hub_workers.halting import Halt
    from pt2hub_workers.overseer import Overseer

KINDS: dict[BuildKind, type[Attempt | Benchmark]] = {
    BuildKind.BUILD: Attempt,
    BuildKind.MEASURE: Benchmark,
}
"""What an attempt does, by what its build is for."""
RETRY_SECONDS = 2.0
"""Pause before an outcome is recorded again where the database is away."""
LAST_SECONDS = 5.0
"""Patience with such a database when the worker ends: its silence tells the others."""
_log = structlog.get_logger()


class BuildRunner:
    """Runs builds on this worker."""

    def __init__(self, tools: Tools, overseer: Overseer) -> None:
        """Creates the runner.

        Args:
            tools: Services, machine, toolchain.
            overseer: Watches over the attempts.
        """
        self._tools = tools
        self._overseer = overseer
        self._builds = tools.container.builds

    def run(self, build_id: str) -> None:
        """Runs a build, if it is still queued; its outcome is in the database, never an exception."""
        with bound_contextvars(build=build_id):
            claim = self._claim(build_id)
            if claim is None:
                return
            with bound_contextvars(attempt=claim.attempt), self._overseer.holding(claim) as halt:
                self._run(claim, halt)
        if not self._overseer.draining:
            self._tools.toolchain.refill()

    def _claim(self, build_id: str) -> Claim | None:
        def claim() -> Claim | None:
            return self._builds.claim(build_id, self._overseer.worker_id)

        try:
            claimed = persisting(claim, self._overseer.ending)
        except (Halted, TransientError) as error:
            _log.warning("not claimed; a build that stays queued is delivered again", reason=str(error))
            return None
        if claimed is None:
            _log.info("build is no longer queued")
        return claimed

    def _run(self, claim: Claim, halt: Halt) -> None:
        journal = Journal(
            self._builds,
            claim,
            redactor=self._tools.redactor,
            offset=self._overseer.offset,
            on_stale=lambda: halt.set("overtaken"),
        )
        try:
            KINDS[claim.kind](claim, self._tools, journal, halt).run()
            _log.info("build succeeded")
        except Exception as error:  # noqa: BLE001  # a build always ends in a state that its owner can read
            if isinstance(error, StaleAttempt):
                self._overseer.lose(claim, halt)
            _Ending(self._builds, claim, journal, halt, self._tools.redactor).settle(error)
        finally:
            journal.close(LAST_SECONDS if halt.is_set() else CLOSE_SECONDS)


class _Ending:
    """What becomes of an attempt that did not succeed."""

    def __init__(
        self, builds: BuildService, claim: Claim, journal: Journal, halt: Halt, redactor: Redactor
    ) -> None:
        self._builds = builds
        self._claim = claim
        self._journal = journal
        self._halt = halt
        self._redactor = redactor

    def settle(self, error: Exception) -> None:
        """Records the outcome, however long the database is away, unless the build is someone else's by now."""
        known = self._told(error)
        self._journal.fail_step()
        deadline: float | None = None
        while not self._recorded(known):
            if self._halt.reason == "stopping":
                deadline = deadline or time.monotonic() + LAST_SECONDS
                if time.monotonic() > deadline:
                    return  # leaving makes this worker's builds lost, and another takes them
                time.sleep(RETRY_SECONDS / 4)
            else:
                # Without an outcome the build would stay `running` under a living worker.
                self._halt.wait(RETRY_SECONDS)

    def _told(self, error: Exception) -> Pt2hubError:
        """Says in both logs how it ended; our own error for it."""
        known = _ours(error)
        known = from_dict(self._redactor.clean_value(known.as_dict()))  # it may quote what the model printed
        if self._halt.reason:
            _log.info("build halted", reason=self._halt.reason)
            self._journal.line(_HALTED[self._halt.reason], "warning")
            return known
        # A model's own fault is the submitter's to read; only defects need a traceback here.
        trace = error if isinstance(known, FatalError) else None
        _log.warning("build failed", code=known.code, exc_info=trace)
        for line in str(known).splitlines():
            self._journal.line(line, "error")
        return known

    def _recorded(self, error: Pt2hubError) -> bool:
        """Writes the outcome; False where the database did not answer."""
        if self._halt.reason in ("cancelled", "overtaken"):
            return True  # by whoever did that
        self._journal.flush()  # while the attempt may still speak
        try:
            if self._halt.reason == "stopping":
                self._builds.hand_back(self._claim)
            elif self._halt.reason == "postponed":
                self._builds.postpone(self._claim)
            elif isinstance(error, TransientError):
                self._builds.retry_later(self._claim, error)
            else:
                self._builds.fail(self._claim, error)
        except StaleAttempt:
            _log.info("another attempt took over")
        except TransientError as second:
            _log.warning("outcome not recorded yet", error=str(second))
            return False
        return True


def _ours(error: Exception) -> Pt2hubError:
    if isinstance(error, BadConfiguration):  # the worker's, such as a scratch directory that went away
        return WorkerLost(f"the worker cannot work: {error.message}", where=error.where, hint=error.hint)
    if isinstance(error, Pt2hubError):
        return error
    return shortage(error) or InternalError(f"{type(error).__name__}: {error}")


_HALTED = {
    "cancelled": "cancelled: every process of the build was killed",
    "overtaken": "another attempt took over: every process of this one was killed",
    "postponed": "a build waits: every process of the job was killed, and the job goes back to the queue, behind it",
    "stopping": "the worker stops: every process of the build was killed, and the build goes back to the queue",
}
