"""Cancellation tokens: stop signals of running attempts."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

Reason = Literal["stopping", "overtaken", "cancelled", "postponed"]
"""`stopping`: the worker ends and hands the build back. `postponed`: a measuring job makes way for a waiting build.
`overtaken`: another attempt has the build. `cancelled`: the build was cancelled. The last two leave nothing to record."""


class Cancelled(Exception):  # handled by the runner; it never leaves the worker
    """The attempt must stop."""

    def __init__(self, reason: Reason) -> None:
        self.reason = reason
        super().__init__(reason)


class CancellationToken:
    """Stop signal of an attempt, set once, for a reason, from any thread."""

    def __init__(self) -> None:
        self._event = threading.Event()
        self._lock = threading.Lock()
        self._callbacks: dict[object, Callable[[], None]] = {}
        self._reason: Reason | None = None

    @property
    def reason(self) -> Reason | None:
        """Why the attempt must stop; None while it may continue."""
        return self._reason

    def set(self, reason: Reason) -> None:
        """Cancel the attempt. The first reason stays."""
        with self._lock:
            if self._reason is not None:
                return
            self._reason = reason
            callbacks = list(self._callbacks.values())
        self._event.set()
        for callback in callbacks:
            callback()

    def is_set(self) -> bool:
        """Return whether the attempt must stop."""
        return self._event.is_set()

    def wait(self, seconds: float) -> bool:
        """Wait for the cancellation or the timeout; return whether the attempt must stop."""
        return self._event.wait(seconds)

    def check(self) -> None:
        """Return if the attempt may continue.

        Raises:
            Cancelled: The attempt must stop.
        """
        if self._reason is not None:
            raise Cancelled(self._reason)

    @contextmanager
    def calling(self, callback: Callable[[], None]) -> Iterator[None]:
        """Call a function as soon as the attempt must stop while in the block, at once if it must already.

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
