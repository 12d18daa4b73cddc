"""Supervised services: started, restarted with increasing delays, stopped."""

from __future__ import annotations

import signal
import time
from typing import TYPE_CHECKING, NoReturn

from pt2hub.errors import InternalError
from pt2hub.system.processes import shorten, tail

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pt2hub.system.processes import Child

TICK_SECONDS = 0.1
_FIRST_PAUSE = 0.5
_MAX_PAUSE_S = 30.0
_HEALTHY_SECONDS = 60.0
"""Uptime in seconds after which a child's failure count is reset."""


class Service:
    """A supervised child process.

    Args:
        patience: Seconds it gets to stop in an orderly way.
        report: Takes a line for the user when it had to be started again.
    """

    def __init__(
        self, name: str, launch: Callable[[], Child], *, patience: float, report: Callable[[str], None]
    ) -> None:
        self.name = name
        self._launch = launch
        self._patience = patience
        self._report = report
        self._child: Child | None = None
        self._pause = _FIRST_PAUSE
        self._began = self._due = 0.0
        self._until: float | None = None

    @property
    def pid(self) -> int:
        """Process id; 0 if there is none."""
        return self._child.pid if self._child else 0

    def start(self) -> None:
        """Start the process."""
        self._child = self._launch()
        self._began = time.monotonic()

    def tend(self) -> None:
        """Restart the process if it ended, after increasing pauses, and truncate its log."""
        now = time.monotonic()
        if self._child is None:
            if now >= self._due:
                self.start()
        elif (code := self._child.exit_code()) is not None:
            self._pause = _FIRST_PAUSE if now - self._began > _HEALTHY_SECONDS else self._pause
            log = _log_of(self._child)
            self._kill_rest()  # before reporting: connections accepted by an orphan would be cut
            self._report(
                f"The {self.name} ended with {describe_exit(code)}; restarting in {self._pause:g} s{log}."
            )
            self._due = now + self._pause
            self._pause = min(self._pause * 2, _MAX_PAUSE_S)
        elif self._child.log:
            shorten(self._child.log)

    def require_running(self) -> None:
        """Raise an error if the process ended.

        Raises:
            InternalError: It ended; the error carries the tail of its log.
        """
        if self._child and (code := self._child.exit_code()) is not None:
            raise self.failure(f"ended with {describe_exit(code)}")

    def failure(self, what: str) -> InternalError:
        """Return an error about this service, with the tail of its log."""
        log = self._child.log if self._child else None
        start = self._child.log_start if self._child else 0
        return InternalError(
            f"The {self.name} {what}; its log ends with:\n{tail(log, start=start)}"
            if log
            else f"The {self.name} {what}.",
            where=str(log) if log else None,
            hint="Fix the problem in the log and start pt2hub again.",
        )

    def ask_to_stop(self) -> None:
        """Send the process SIGTERM, once; its shutdown time starts now."""
        if self._child and self._until is None:
            self._until = time.monotonic() + self._patience
            self._child.send(signal.SIGTERM)

    def stop(self) -> None:
        """Stop the process, with SIGKILL after its shutdown time."""
        self.ask_to_stop()
        if self._child:
            self._child.wait((self._until or 0.0) - time.monotonic())
        self._kill_rest()
        self._until = None

    def _kill_rest(self) -> None:
        if self._child:
            self._child.stop()
            self._child = None


def tend_all(
    services: Sequence[Service], *others: Callable[[], None], pause: Callable[[float], None]
) -> NoReturn:
    """Tend services until an exception ends it.

    Args:
        *others: Further things to look after each time.
        pause: Waits some seconds, or raises where a signal has come.
    """
    while True:
        for look in others:
            look()
        for service in services:
            service.tend()
        pause(TICK_SECONDS)


def stop_all(services: Sequence[Service]) -> None:
    """Stop services in parallel."""
    for service in services:
        service.ask_to_stop()
    for service in services:
        service.stop()


def describe_exit(code: int) -> str:
    """Format an exit code."""
    return f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"


def _log_of(child: Child) -> str:
    return f" (log: {child.log})" if child.log else ""
