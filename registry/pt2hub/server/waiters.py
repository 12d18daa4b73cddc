"""Waiters of one process: requests that wait for changes, woken by a single listener and limited in number."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pt2hub.errors import Busy, QuotaExceeded
from pt2hub.server.db.notifications import ALIASES, BUILDS, PROGRESS, Listener

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

MAX_WAITERS = 500
"""Waiters of a process; half of the connections that it accepts (gunicorn's `worker_connections`)."""
_MIN_RECHECK_S = 2.0
"""Longest time without a look while few wait: a lost notification costs so much."""
_RECHECKS_PER_S = 20
"""Looks without a notification that all waiters of a process take together."""
_MIN_GAP_S = 0.1
"""Shortest time between two looks of a waiter while few wait."""
_LOOKS_PER_S = 400
"""Looks after notifications that all waiters of a process take together; more changes are seen in one look."""
_RETRY_S = 5
"""Seconds after which a sender with too many waiters may ask again."""


class Wake:
    """A flag that a change sets.

    Attributes:
        call: Called whenever the flag is set, from any thread; it must neither block nor raise.
    """

    def __init__(self) -> None:
        self._flag = threading.Event()
        self.call: Callable[[], object] = do_nothing

    def set(self) -> None:
        """Set the flag."""
        self._flag.set()
        self.call()

    def clear(self) -> None:
        """Clear the flag, before a look at what may have changed."""
        self._flag.clear()

    def is_set(self) -> bool:
        """Return whether there was a change."""
        return self._flag.is_set()

    def wait(self, seconds: float) -> bool:
        """Wait in this thread; return whether there was a change."""
        return self._flag.wait(seconds)


@dataclass(frozen=True, slots=True)
class Pause:
    """When a waiter looks again: at `latest`, and from `earliest` on as soon as it is woken.

    Attributes:
        earliest: By the monotonic clock.
        latest: Likewise.
    """

    wake: Wake
    earliest: float
    latest: float


class Waiter:
    """A request that waits for changes.

    Attributes:
        wake: Set at each change of a watched topic, and where one may have been missed.
        ends: When to wait no longer, by the monotonic clock.
        is_open: Whether it counts among the process's waiters.
    """

    def __init__(self, waiters: Waiters, sender: str, ends: float) -> None:
        self.wake = Wake()
        self.ends = ends
        self._waiters = waiters
        self._sender = sender
        self._topics: set[str] = set()
        self.is_open = True

    def watch(self, topics: Iterable[str]) -> bool:
        """Watch topics: ids of builds and names of aliases (`notifications.alias_topic`).

        Returns:
            Whether some were not watched yet, so that another look is needed.
        """
        new = set(topics) - self._topics
        self._topics |= new
        self._waiters.add(self, new)
        return bool(new)

    def pause(self, *, until: float) -> Pause:
        """Return the pause until the next look.

        Args:
            until: The latest time, by the monotonic clock.
        """
        now = time.monotonic()
        return Pause(
            self.wake, now + self._waiters.gap_seconds, min(until, now + self._waiters.recheck_seconds)
        )

    def close(self) -> None:
        """Stop waiting; further calls do nothing."""
        self._waiters.discard(self, self._sender, self._topics)


class Waiters:
    """All waiters of a process. They share one database connection, which listens for changes.

    Args:
        database_url: `postgresql://...`.
        most_per_sender: How many may wait at a time for one token or address; 0 for no limit.
        most: How many may wait at a time.
    """

    def __init__(self, database_url: str, *, most_per_sender: int, most: int = MAX_WAITERS) -> None:
        self._listener = Listener(database_url, self._on_change, channels=(BUILDS, PROGRESS, ALIASES))
        self._most, self._most_per_sender = most, most_per_sender
        self._lock = threading.Lock()
        self._watching: dict[str, set[Waiter]] = {}
        self._senders: dict[str, int] = {}
        self._count = 0
        self._listens = False

    @property
    def recheck_seconds(self) -> float:
        """Longest time between two looks of a waiter."""
        return max(_MIN_RECHECK_S, self._count / _RECHECKS_PER_S)

    @property
    def gap_seconds(self) -> float:
        """Shortest time between two looks of a waiter."""
        return max(_MIN_GAP_S, self._count / _LOOKS_PER_S)

    def close(self) -> None:
        """Stop listening; remaining waiters are not woken any more."""
        with self._lock:
            listens, self._listens = self._listens, False
        if listens:
            self._listener.stop()

    def open(self, sender: str, *, seconds: float) -> Waiter:
        """Admit a waiter.

        Args:
            sender: Whose it is, for the limit of one sender's.
            seconds: How long it waits.

        Raises:
            Busy: The process has its maximum of waiters.
            QuotaExceeded: The sender has its maximum.
        """
        with self._lock:
            mine = self._senders.get(sender, 0)
            if self._count >= self._most:
                raise Busy(
                    f"{self._most} requests already wait in this server process, its maximum.",
                    hint="Try again in a moment, or poll: requests that do not wait are always answered.",
                )
            if 0 < self._most_per_sender <= mine:
                raise QuotaExceeded(
                    f"{mine} of your requests already wait in this server process, the maximum.",
                    where="wait",
                    hint=f"Try again in {_RETRY_S} s, or poll: requests that do not wait are always answered. "
                    "The server's operator sets the limit, PT2HUB_MAX_WAITS.",
                    context={"retry_after": _RETRY_S},
                )
            self._count += 1
            self._senders[sender] = mine + 1
            if not self._listens:
                self._listens = True
                self._listener.start()
        return Waiter(self, sender, time.monotonic() + seconds)

    def add(self, waiter: Waiter, topics: Iterable[str]) -> None:
        """Wake a waiter at changes of further topics."""
        with self._lock:
            for topic in topics:
                self._watching.setdefault(topic, set()).add(waiter)

    def discard(self, waiter: Waiter, sender: str, topics: Iterable[str]) -> None:
        """Remove a waiter, unless that is done."""
        with self._lock:
            if not waiter.is_open:
                return
            waiter.is_open = False
            self._count -= 1
            self._senders[sender] -= 1
            if not self._senders[sender]:
                del self._senders[sender]
            for topic in topics:
                self._watching[topic].discard(waiter)
                if not self._watching[topic]:
                    del self._watching[topic]

    def _on_change(self, topic: str | None) -> None:
        """Wake the waiters for a topic; all of them after a pause in which changes may have been missed."""
        with self._lock:
            if topic is None:
                woken = set().union(*self._watching.values())
            else:
                woken = set(self._watching.get(topic, ()))
        for waiter in woken:
            waiter.wake.set()


def do_nothing() -> None:
    """Wake nobody: whoever waits is in a thread of its own."""
