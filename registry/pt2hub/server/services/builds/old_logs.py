"""The age limit of build logs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog

from pt2hub.server.db.stores.builds.old_logs import OldLogStore

if TYPE_CHECKING:
    from datetime import timedelta

    from pt2hub.server.db.engine import Sessions

_BATCH = 200
_log = structlog.get_logger(__name__)


class OldLogService:
    """Removes logs of builds that ended long ago.

    Args:
        keep: How long a log stays after the end of its attempt; zero for ever.
    """

    def __init__(self, sessions: Sessions, *, keep: timedelta) -> None:
        self._sessions = sessions
        self._keep = keep

    def remove(self) -> int:
        """Remove archived logs whose time is over, batch by batch; return how many."""
        removed = 0
        while self._keep:
            with self._sessions.begin() as session:
                count = OldLogStore(session).remove(self._keep, _BATCH)
            removed += count
            if count < _BATCH:
                break
        if removed:
            _log.info("old logs removed", logs=removed, keep_days=self._keep.days)
        return removed
