"""Whether the last reindex left anything out, so that the collector must not take what it could not refer to."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pt2hub.server.db.stores.operations.settings import SettingStore

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

REINDEX_SETTING = "reindex_unfinished"
_RUNNING = "running"
REINDEX_DUE = "restored"
"""The state of a database that was restored from a backup: what was added since then has no references."""


class ReindexState:
    """State of the last reindex; a setting, since it must outlive the process that dies in the middle."""

    def __init__(self, session: Session) -> None:
        self._settings = SettingStore(session)

    def begin(self) -> None:
        """Record that a reindex runs: blobs have rows and may lack references until it ends."""
        self._settings.put(REINDEX_SETTING, _RUNNING)

    def has_ended(self) -> bool:
        """Return whether one has ended since the last one began and since a backup was restored."""
        return self.losses() is not None

    def end(self, losses: int) -> None:
        """Record that it ended.

        Args:
            losses: How many documents it could not read; what they name has no references.
        """
        if losses:
            self._settings.put(REINDEX_SETTING, str(losses))
        else:
            self._settings.remove(REINDEX_SETTING)

    def losses(self) -> int | None:
        """Return how many documents the last reindex could not read, None if it has not ended or is due after a restore."""
        value = self._settings.get(REINDEX_SETTING) or "0"
        return int(value) if value.isdecimal() else None
