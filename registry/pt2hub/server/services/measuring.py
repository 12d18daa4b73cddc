"""Measuring jobs: an artifact is timed again, and nothing is built."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from datetime import timedelta

    from pt2hub.server.db.engine import Sessions
    from pt2hub.server.db.queue import BuildQueue


class MeasuringService:
    """Queues measuring jobs, and keeps what they find."""

    def __init__(self, sessions: Sessions, queue: BuildQueue, *, silence: timedelta) -> None:
        """Is built by the container.

        Args:
            sessions: Opens transactions.
            queue: Takes the jobs.
            silence: Time without a heartbeat after which a worker is lost.
        """
        self._sessions = sessions
        self._queue = queue
        self._silence = silence
