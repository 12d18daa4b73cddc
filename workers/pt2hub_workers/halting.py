"""How a running attempt is told to stop: at once, and without anyone asking again and again."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

Reason = Literal["stopping", "overtaken", "cancelled", "postponed"]
"""`stopping`: this worker ends, the build is handed back. `postponed`: a measuring job gives way to a build that waits. `overtaken`: the build is someone else's by now.
`cancelled`: someone cancelled it. After these two nothing is left to record."""


class Halted(Exception):  # the runner settles it, by its reason; it never leaves the worker
    """The attempt was told to stop.

    Attributes:
        reason: Why.
    """

    def __init__(self, reason: Reason) -> None:
        self.reason = reason
        super().__init__(reason)


class Halt:
    """An attempt's stop signal: set once, for a reason, from any thread."""

    def __init__(self) -> None:
        self._event = threading.Event()
        self._lock = threading.Lock()
        self._callbacks: dict[object, Callable[[], None]] = {}
        self._reason: Reason | None = None

    @property
    def reason(self) -> Reason | None:
        """Why the attempt must stop; None while it may go on."""
        return self._reason

    def set(self, reason: Reason) -> None:
        """Tells the attempt to stop. The first reason stays."""
        with self._lock:
            if self._reason is not None:
                return
            self._reason = reason
            callbacks = list(self._callbacks.values())
        self._event.set()
        for callback in callbacks:
            callback()

    def is_set(self) -> bool:
        """Whether the attempt must stop."""
        return self._event.is_set()

    def wait(self, seconds: float) -> bool:
        """Waits until the attempt must stop, or the time is over; returns whether it must."""
        return self._event.wait(seconds)

    def check(self) -> None:
        """Goes on only if the attempt may.

        Raises:
            Halted: It was told to stop.
        """
        if self._reason is not None:
            raise Halted(self._reason)

    @contextmanager
    def calling(self, callback: Callable[[], None]) -> Iterator[None]:
        """Within the block, calls back as soon as the attempt must stop; at once where it must already.

        Args:
            callback: Runs in the thread that sets the signal, so it must not block, nor raise.
        """
        key = object()
        with self._lock:
            self._callbacks[key] = callback
            late = self._reason is not None
        if late:
            callback()
        try:
            yield
        finally:
            with self._lock:
                del self._callbacks[key]
