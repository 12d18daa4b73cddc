"""Supervision of the embedded PostgreSQL: restarted after a crash, up to a limit."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from pt2hub.errors import DatabaseUnavailable
from pt2hub.server.up.supervised_services import describe_exit
from pt2hub.system.processes import shorten

if TYPE_CHECKING:
    from collections.abc import Callable

    from pt2hub.server.db.embedded import EmbeddedPostgres

_MAX_DEATHS = 5
_COUNTED_SECONDS = 60.0
"""Number of crashes within the period after which pt2hub stops."""
_PAUSE_SECONDS = 0.5


class Database:
    """The supervised embedded PostgreSQL, restarted at the same address.

    Args:
        report: Takes a line for the user when it had to be started again.
        pause: Waits some seconds, or raises where a signal has come.
    """

    def __init__(
        self, server: EmbeddedPostgres, *, report: Callable[[str], None], pause: Callable[[float], None]
    ) -> None:
        self._server = server
        self._report = report
        self._wait = pause
        self._deaths: list[float] = []

    def tend(self) -> None:
        """Restart the server if it ended. It recovers committed data, and clients reconnect.

        Raises:
            DatabaseUnavailable: It ended several times in a short time, or does not start.
        """
        code = self._server.exit_code()
        if code is None:
            shorten(self._server.log)
            return
        ended = f"ended with {describe_exit(code)}"
        if self._died_too_often():
            raise DatabaseUnavailable(
                f"The embedded PostgreSQL {ended}, {_MAX_DEATHS} times in {_COUNTED_SECONDS:g} s; pt2hub has "
                "stopped.",
                where=str(self._server.log),
                hint="Check the log, then start pt2hub again; committed data is kept.",
            )
        self._report(f"PostgreSQL {ended}; restarting (log: {self._server.log}).")
        self._start_again()

    def _start_again(self) -> None:
        while True:
            try:
                self._server.restart()
            except DatabaseUnavailable:
                if self._died_too_often():
                    raise
                self._wait(_PAUSE_SECONDS)  # it may have been hit again while it recovered
            else:
                return

    def _died_too_often(self) -> bool:
        now = time.monotonic()
        self._deaths = [*(when for when in self._deaths if now - when < _COUNTED_SECONDS), now]
        return len(self._deaths) >= _MAX_DEATHS
