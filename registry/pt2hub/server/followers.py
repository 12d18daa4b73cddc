"""Those who follow builds in one process: woken by one listener, however many they are, and not too many."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

from pt2hub.errors import Busy
from pt2hub.server.db.notifications import Listener

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator


class Followers:
    """Wakes followers when a build of theirs changes. Nobody waits on a connection of the database."""

    def __init__(self, database_url: str, *, most: int) -> None:
        """Opens nothing before somebody follows.

        Args:
            database_url: `postgresql://...`.
            most: How many may follow at a time; each holds a thread.
        """
        self._listener = Listener(database_url, self._changed, progress=True)
        self._places = threading.BoundedSemaphore(most)
        self._most = most
        self._lock = threading.Lock()
        self._waiting: dict[str, set[threading.Event]] = {}
        self._listens = False

    def close(self) -> None:
        """Stops listening; who still follows is woken no more."""
        with self._lock:
            listens, self._listens = self._listens, False
        if listens:
            self._listener.stop()

    def take_place(self) -> Callable[[], None]:
        """Takes one of the places.

        Returns:
            What gives it back; calling it again does nothing.

        Raises:
            Busy: Every place is taken.
        """
        if not self._places.acquire(blocking=False):
            raise Busy(
                f"This process of the server follows {self._most} builds already, as many as it may.",
                hint="Ask again now and then: GET /api/v1/builds/{id} and its logs answer at any time.",
            )
        once = threading.Lock()

        def give_back() -> None:
            if once.acquire(blocking=False):
                self._places.release()

        return give_back

    @contextmanager
    def following(self, build_ids: Collection[str]) -> Iterator[threading.Event]:
        """Within the block, the event is set at each change of one of these builds, or where one may have been missed.

        Args:
            build_ids: The builds.
        """
        self._listen()
        wake = threading.Event()
        with self._lock:
            for build_id in build_ids:
                self._waiting.setdefault(build_id, set()).add(wake)
        try:
            yield wake
        finally:
            with self._lock:
                for build_id in build_ids:
                    self._waiting[build_id].discard(wake)
                    if not self._waiting[build_id]:
                        del self._waiting[build_id]

    def _listen(self) -> None:
        with self._lock:
            if not self._listens:
                self._listens = True
                self._listener.start()

    def _changed(self, build_id: str | None) -> None:
        with self._lock:
            if build_id is None:
                woken = set().union(*self._waiting.values())
            else:
                woken = set(self._waiting.get(build_id, ()))
        for wake in woken:
            wake.set()
