"""Shares a process's slots for sending among teams: the receivers of one, if they hang, hold up only its own deliveries."""

from __future__ import annotations

import threading
from collections import Counter, defaultdict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

MAX_SENDS_PER_TEAM = 3
"""Receivers of a team that a process sends to at once."""


class FairSending:
    """Sends the deliveries of webhooks, of each team's at most a few at once.

    Args:
        send: Sends a webhook's due deliveries.
        team: Returns a webhook's team; None where the webhook is gone.
    """

    def __init__(self, send: Callable[[int], object], team: Callable[[int], str | None]) -> None:
        self._send = send
        self._team = team
        self._lock = threading.Lock()
        self._running: Counter[str] = Counter()
        self._stopped = False
        # In memory alone: maintenance wakes the due webhooks of a process that ends.
        self._waiting: defaultdict[str, dict[int, None]] = defaultdict(dict)

    def send(self, webhook_id: int) -> None:
        """Send a webhook's due deliveries, or leave that to the first send of its team that ends."""
        team = self._team(webhook_id)
        if team is None:
            return
        with self._lock:
            if self._stopped:
                return
            if self._running[team] >= MAX_SENDS_PER_TEAM:
                self._waiting[team][webhook_id] = None
                return
            self._running[team] += 1
        turn: int | None = webhook_id
        while turn is not None:
            try:
                self._send(turn)
            except BaseException:
                with self._lock:
                    self._running[team] -= 1
                raise
            turn = self._next(team)

    def stop(self) -> None:
        """Begin no further sends."""
        with self._lock:
            self._stopped = True
            self._waiting.clear()

    def _next(self, team: str) -> int | None:
        with self._lock:
            waiting = self._waiting[team]
            if not waiting:
                del self._waiting[team]
                self._running[team] -= 1
                return None
            turn = next(iter(waiting))
            del waiting[turn]
            return turn
