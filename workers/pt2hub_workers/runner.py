"""Takes builds off the queue and runs them, one after another."""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog

from pt2hub.errors import FatalError, InternalError, Pt2hubError, StaleAttempt, TransientError
from pt2hub_workers.attempt import Attempt
from pt2hub_workers.journal import Journal
from pt2hub_workers.workspace import workspace

if TYPE_CHECKING:
    from pathlib import Path

    from pt2hub.domain.builds import Claim
    from pt2hub_workers.attempt import Tools

MAX_ATTEMPTS = 3
"""Attempts at a build whose failures were all transient; then the error is the build's."""

RETRY_SECONDS = 5.0
"""Pause after a transient failure, times the attempt: storage and database come back in seconds, not at once."""

_log = structlog.get_logger()


class BuildRunner:
    """Runs builds on this worker."""

    def __init__(self, tools: Tools, *, worker_id: str, scratch: Path) -> None:
        """Creates the runner.

        Args:
            tools: Services, machine, children.
            worker_id: This worker.
            scratch: Parent of the workspaces.
        """
        self._tools = tools
        self._worker_id = worker_id
        self._scratch = scratch

    def run(self, build_id: str) -> None:
        """Runs a build, if it is still queued; its outcome is in the database, never an exception."""
        claim = self._tools.container.builds.claim(build_id, self._worker_id)
        if claim is None:
            _log.info("build is no longer queued", build=build_id)
            return
        journal = Journal(self._tools.container.builds, claim)
        try:
            with workspace(self._scratch) as directory:
                Attempt(claim, self._tools, journal, directory).run()
            _log.info("build succeeded", build=build_id, attempt=claim.attempt)
        except Exception as error:  # noqa: BLE001  # a build always ends in a state that its owner can read
            self._settle(claim, journal, error)
        finally:
            journal.close()
            if not self._tools.stop.is_set():
                self._tools.pool.refill()

    def _settle(self, claim: Claim, journal: Journal, error: Exception) -> None:
        known = error if isinstance(error, Pt2hubError) else InternalError(f"{type(error).__name__}: {error}")
        # A model's own fault is the submitter's to read; only defects need a traceback here.
        trace = error if isinstance(known, FatalError) else None
        _log.warning(
            "build failed", build=claim.build, attempt=claim.attempt, code=known.code, exc_info=trace
        )
        while not self._recorded(claim, journal, known):
            # The database is away: without an outcome the build would stay `running` under a living worker.
            if self._tools.stop.wait(RETRY_SECONDS):
                break  # leaving makes this worker's builds lost, and another takes them

    def _recorded(self, claim: Claim, journal: Journal, error: Pt2hubError) -> bool:
        """Writes the outcome; False where the database did not answer."""
        again = isinstance(error, TransientError) and claim.attempt < MAX_ATTEMPTS
        try:
            journal.line(str(error), "error")
            journal.fail_step()
            if again or self._tools.stop.is_set():
                self._tools.stop.wait(RETRY_SECONDS * claim.attempt)
                self._tools.container.builds.hand_back(claim)
            else:
                self._tools.container.builds.fail(claim, error)
        except StaleAttempt:
            _log.info("another attempt took over", build=claim.build, attempt=claim.attempt)
        except TransientError as second:
            _log.warning("outcome not recorded yet", build=claim.build, error=str(second))
            return False
        return True
