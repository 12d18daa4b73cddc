"""The embedded PostgreSQL under supervision: started again when it dies, given up when it dies again and again."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from pt2hub.errors import DatabaseUnavailable
from pt2hub.server.processes import shorten
from pt2hub.server.up.services import describe_exit

if TYPE_CHECKING:
    from collections.abc import Callable

    from pt2hub.server.db.embedded import EmbeddedPostgres

_MOST_DEATHS = 5
_COUNTED_SECONDS = 60.0
"""So many deaths within so many seconds are no accident: the data or the machine are broken."""
_PAUSE_SECONDS = 0.5


class Database:
    """The embedded PostgreSQL, kept running under the same address."""

    def __init__(
        self, server: EmbeddedPostgres, *, report: Callable[[str], None], pause: Callable[[float], None]
    ) -> None:
        """Looks after a server that its owner starts and stops.

        Args:
            server: The server.
            report: Takes a line for the user when it had to be started again.
            pause: Waits some seconds, or raises where a signal has come.
        """
        self._server = server
        self._report = report
        self._wait = pause
        self._deaths: list[float] = []

    def tend(self) -> None:
        """Starts the server again when it ended; it recovers what was committed. Who uses it connects again.

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
                f"The embedded PostgreSQL {ended}, {_MOST_DEATHS} times in {_COUNTED_SECONDS:g} s, so everything "
                "was stopped.",
                where=str(self._server.log),
                hint="Read the log, then start pt2hub again; what was committed is kept.",
            )
        self._report(f"PostgreSQL {ended}; it starts again (log: {self._server.log}).")
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
        return len(self._deaths) >= _MOST_DEATHS
