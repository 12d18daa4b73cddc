"""A supervised child: started, watched, started again after a while, stopped."""

from __future__ import annotations

import signal
import time
from typing import TYPE_CHECKING

import structlog

from pt2hub.errors import InternalError
from pt2hub.server.processes import tail

if TYPE_CHECKING:
    from collections.abc import Callable

    from pt2hub.server.processes import Child

_FIRST_PAUSE = 0.5
_LONGEST_PAUSE = 30.0
_HEALTHY_SECONDS = 60.0
"""Having lived this long, a child's next end counts as its first."""
_log = structlog.get_logger(__name__)


class Service:
    """A child that should always run.

    Attributes:
        name: What users call it.
    """

    def __init__(
        self, name: str, launch: Callable[[], Child], *, patience: float, report: Callable[[str], None]
    ) -> None:
        """Describes the service; `start` starts it.

        Args:
            name: What users call it.
            launch: Starts the process.
            patience: Seconds it gets to stop in an orderly way.
            report: Takes a line for the user when it had to be started again.
        """
        self.name = name
        self._launch = launch
        self._patience = patience
        self._report = report
        self._child: Child | None = None
        self._pause = _FIRST_PAUSE
        self._began = self._due = 0.0

    def start(self) -> None:
        """Starts the process."""
        self._child = self._launch()
        self._began = time.monotonic()

    def tend(self) -> None:
        """Starts the process again when it ended, each time after a longer pause."""
        now = time.monotonic()
        if self._child is None:
            if now >= self._due:
                self.start()
        elif (code := self._child.exit_code()) is not None:
            self._pause = _FIRST_PAUSE if now - self._began > _HEALTHY_SECONDS else self._pause
            self._report(
                f"The {self.name} ended with {describe_exit(code)}; it starts again in {self._pause:g} s "
                f"(log: {self._child.log})."
            )
            self._stop_rest()
            self._due = now + self._pause
            self._pause = min(self._pause * 2, _LONGEST_PAUSE)

    def require_running(self) -> None:
        """Refuses to wait for a process that ended.

        Raises:
            InternalError: It ended; the error carries the tail of its log.
        """
        if self._child and (code := self._child.exit_code()) is not None:
            raise self.failure(f"ended with {describe_exit(code)}")

    def failure(self, what: str) -> InternalError:
        """An error about this service, with the tail of its log."""
        log = self._child.log if self._child else None
        ending = tail(log) if log else ""
        return InternalError(
            f"The {self.name} {what}; its log ends with:\n{ending}",
            where=str(log),
            hint="Correct what the log says and start pt2hub again.",
        )

    def stop(self) -> None:
        """Stops the process, by force when its time is over."""
        if self._child:
            self._child.stop((signal.SIGTERM, self._patience))
            self._child = None

    def _stop_rest(self) -> None:
        if self._child:
            self._child.stop()
            self._child = None


def describe_exit(code: int) -> str:
    """An exit code in words."""
    return f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
