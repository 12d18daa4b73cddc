"""Records the day on which a version was last pulled: at most one write per version, day and process."""

from __future__ import annotations

import threading
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import structlog

from pt2hub.errors import Pt2hubError
from pt2hub.server.db.stores.retention.policies import RetentionStore

if TYPE_CHECKING:
    from pt2hub.server.db.engine import Sessions

_MOST_KNOWN = 100_000
_log = structlog.get_logger(__name__)


class PullService:
    """Records pulls. A resolve and the download of a manifest count as a pull of the version."""

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions
        self._lock = threading.Lock()
        self._day = ""
        self._known: set[tuple[str, int]] = set()

    def record(self, model: str, number: int) -> None:
        """Record a pull; a failure is only logged, since the pull itself succeeded."""
        if not self._is_new((model, number)):
            return
        try:
            with self._sessions.begin() as session:
                RetentionStore(session).record_pull(model, number)
        except Pt2hubError as error:
            with self._lock:
                self._known.discard((model, number))  # the next pull tries again
            _log.warning("pull not recorded", model=model, number=number, error=str(error))

    def _is_new(self, version: tuple[str, int]) -> bool:
        """Return whether this process has not recorded the version yet today."""
        today = (
            datetime.now(UTC).date().isoformat()
        )  # only against repeated writes: the database dates the pull
        with self._lock:
            if today != self._day or len(self._known) >= _MOST_KNOWN:
                self._day, self._known = today, set()
            if version in self._known:
                return False
            self._known.add(version)
            return True
