"""Followers of builds in one process, notified by a single listener and limited in number."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

from pt2hub.errors import Busy
from pt2hub.server.db.notifications import Listener

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


class Followers:
    """Wakes followers when one of their builds changes, without a database connection per follower.

    Args:
        database_url: `postgresql://...`.
        most: How many may follow at a time; each holds a thread.
    """

    def __init__(self, database_url: str, *, most: int) -> None:
        self._listener = Listener(database_url, self._on_change, progress=True)
        self._places = threading.BoundedSemaphore(most)
        self._most = most
        self._lock = threading.Lock()
        self._waiting: dict[str, set[threading.Event]] = {}
        self._listens = False

    def close(self) -> None:
        """Stop listening; remaining followers are not notified any more."""
        with self._lock:
            listens, self._listens = self._listens, False
        if listens:
            self._listener.stop()

    def acquire(self) -> Callable[[], None]:
        """Reserve a slot for a follower.

        Returns:
            A function that releases the slot; further calls do nothing.

        Raises:
            Busy: All slots are in use.
        """
        if not self._places.acquire(blocking=False):
            raise Busy(
                f"This server process already follows {self._most} builds, its maximum.",
                hint="Poll instead: GET /api/v1/builds/{id} and its logs are always available.",
            )
        once = threading.Lock()

        def give_back() -> None:
            if once.acquire(blocking=False):
                self._places.release()

        return give_back

    @contextmanager
    def following(self, build_id: str) -> Iterator[threading.Event]:
        """Within the block, the event is set at each change of the build, or where one may have been missed."""
        self._listen()
        wake = threading.Event()
        with self._lock:
            self._waiting.setdefault(build_id, set()).add(wake)
        try:
            yield wake
        finally:
            with self._lock:
                self._waiting[build_id].discard(wake)
                if not self._waiting[build_id]:
                    del self._waiting[build_id]

    def _listen(self) -> None:
        with self._lock:
            if not self._listens:
                self._listens = True
                self._listener.start()

    def _on_change(self, build_id: str | None) -> None:
        with self._lock:
            if build_id is None:
                woken = set().union(*self._waiting.values())
            else:
                woken = set(self._waiting.get(build_id, ()))
        for wake in woken:
            wake.set()
