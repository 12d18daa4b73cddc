"""How the application tells its server that a response waits, and the responses that do."""

from __future__ import annotations

import heapq
import time
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any

from pt2hub.server.waiters import do_nothing

if TYPE_CHECKING:
    from collections.abc import Callable

    from pt2hub.server.api.connections.ongoing_response import OngoingResponse
    from pt2hub.server.waiters import Pause, Waiter

SUSPENSION = "pt2hub.suspension"
"""Key of the `Suspension` in the WSGI environment; missing where the server holds a thread for every response."""


class Suspension:
    """Suspends one response.

    The application sets `pause` and gives its thread back: either in the middle of a response, by an empty piece of it, or by
    returning an empty response, and then it is asked anew after the pause.

    Attributes:
        pause: When to go on.
        waiter: The application's, kept over the pauses and closed with the response.
    """

    def __init__(self) -> None:
        self.pause: Pause | None = None
        self.waiter: Waiter | None = None

    def close(self) -> None:
        """Release what the application left."""
        if self.waiter:
            self.waiter.close()


class _Suspended:
    def __init__(self, connection: Any, response: OngoingResponse, pause: Pause) -> None:
        self.connection = connection
        self.response = response
        self.pause = pause
        self.due = 0.0


class SuspendedResponses:
    """The suspended responses of a process; only its event loop calls the methods.

    Args:
        defer: Runs a function with arguments in the event loop, from any thread.
    """

    def __init__(self, defer: Callable[..., object]) -> None:
        self._defer = defer
        self._suspended: dict[Any, _Suspended] = {}
        self._schedule: list[tuple[float, int, _Suspended]] = []
        self._numbers = count()

    def add(self, connection: Any, response: OngoingResponse, pause: Pause) -> None:
        """Add a response, to be taken when its pause is over."""
        suspended = self._suspended[connection] = _Suspended(connection, response, pause)
        pause.wake.call = partial(self._defer, self._on_wake, suspended)
        self._put(suspended, pause.earliest if pause.wake.is_set() else pause.latest)

    def seconds_left(self) -> float:
        """Return the seconds until the next response is due."""
        return self._schedule[0][0] - time.monotonic() if self._schedule else float("inf")

    def take_due(self) -> tuple[Any, OngoingResponse] | None:
        """Take a response that is due, and its connection; None if none is."""
        now = time.monotonic()
        while self._schedule and self._schedule[0][0] <= now:
            due, _, suspended = heapq.heappop(self._schedule)
            connection = suspended.connection
            if self._suspended.get(connection) is suspended and due == suspended.due:
                return connection, self.remove(connection)
        return None

    def remove(self, connection: Any) -> OngoingResponse:
        """Take the response of a connection."""
        suspended = self._suspended.pop(connection)
        suspended.pause.wake.call = do_nothing
        return suspended.response

    def wake_all(self) -> None:
        """Let all go on at once, since the process stops."""
        for suspended in self._suspended.values():
            self._put(suspended, time.monotonic())

    def _on_wake(self, suspended: _Suspended) -> None:
        if self._suspended.get(suspended.connection) is suspended:
            self._put(suspended, min(suspended.due, max(suspended.pause.earliest, time.monotonic())))

    def _put(self, suspended: _Suspended, due: float) -> None:
        if due != suspended.due:
            suspended.due = due
            heapq.heappush(self._schedule, (due, next(self._numbers), suspended))
