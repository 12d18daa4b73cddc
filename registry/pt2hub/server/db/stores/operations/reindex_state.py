"""Whether the last reindex left anything out, so that the collector must not take what it could not refer to."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pt2hub.server.db.stores.operations.settings import SettingStore

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

_SETTING = "reindex_unfinished"
_RUNNING, _RESTORED = "running", "restored"


class ReindexState:
    """State of the last reindex; a setting, since it must outlive the process that dies in the middle."""

    def __init__(self, session: Session) -> None:
        self._settings = SettingStore(session)

    def begin(self) -> None:
        """Record that a reindex runs: blobs have rows and may lack references until it ends."""
        self._settings.put(_SETTING, _RUNNING)

    def require(self) -> None:
        """Record that a backup was restored: what refers to blobs, and aliases, may be older than the storage."""
        self._settings.put(_SETTING, _RESTORED)

    def end(self, losses: int) -> None:
        """Record that it ended.

        Args:
            losses: How many documents it could not read; what they name has no references.
        """
        if losses:
            self._settings.put(_SETTING, str(losses))
        else:
            self._settings.remove(_SETTING)

    def losses(self) -> int | None:
        """Return how many documents the last reindex could not read, None if it has not ended, or a restore needs one."""
        value = self._settings.get(_SETTING) or "0"
        return int(value) if value.isdecimal() else None
