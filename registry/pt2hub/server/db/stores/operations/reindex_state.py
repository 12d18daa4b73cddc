"""Whether the last reindex left anything out, so that the collector must not take what it could not refer to."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pt2hub.server.db.stores.operations.settings import SettingStore

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

REINDEX_SETTING = "reindex_unfinished"
_RUNNING = "running"
REINDEX_DUE = "restored"
"""The state of a database that was restored from a backup, or is new beside a storage that is not: it lacks rows."""
RESTORED_MARKS_SETTING = "restored_marks"
"""Id of the last mark of the journal that came with a backup: it is older than what the journal has."""
_OTHER_WRITER = "other_writer"
"""The state of a database beside which another one writes to the storage."""
_STORAGE_KNOWN = "storage_known"
"""The setting of a database that has what its storage had when it was new."""


class ReindexState:
    """State of the last reindex; a setting, since it must outlive the process that dies in the middle."""

    def __init__(self, session: Session) -> None:
        self._settings = SettingStore(session)

    def begin(self) -> None:
        """Record that a reindex runs: blobs have rows and may lack references until it ends. What is due remains so."""
        if not self.is_due():
            self._settings.put(REINDEX_SETTING, _RUNNING)

    def require(self, *, other_writer: bool = False) -> None:
        """Record that one is due: the database lacks what the storage has.

        Args:
            other_writer: Whether another database wrote it.
        """
        self._settings.put(REINDEX_SETTING, _OTHER_WRITER if other_writer else REINDEX_DUE)

    def is_due(self) -> bool:
        """Return whether the database lacks what the storage has, until a reindex has ended."""
        return self._settings.get(REINDEX_SETTING) in (REINDEX_DUE, _OTHER_WRITER)

    def has_other_writer(self) -> bool:
        """Return whether a reindex is due because another database writes to the storage."""
        return self._settings.get(REINDEX_SETTING) == _OTHER_WRITER

    def knows_storage(self) -> bool:
        """Return whether the database is not new to its storage."""
        return self._settings.get(_STORAGE_KNOWN) is not None

    def know_storage(self) -> None:
        """Record that the database has what its storage has."""
        self._settings.put(_STORAGE_KNOWN, "yes")

    def restored_marks(self) -> int:
        """Return the id of the last mark that came with a backup; 0 without one."""
        return int(self._settings.get(RESTORED_MARKS_SETTING) or 0)

    def has_ended(self) -> bool:
        """Return whether one has ended since the last one began and since a backup was restored."""
        return self.losses() is not None

    def end(self, losses: int) -> None:
        """Record that it ended.

        Args:
            losses: How many documents it could not read; what they name has no references.
        """
        self.know_storage()
        if losses:
            self._settings.put(REINDEX_SETTING, str(losses))
        else:
            self._settings.remove(REINDEX_SETTING)

    def losses(self) -> int | None:
        """Return how many documents the last reindex could not read, None if it has not ended or is due after a restore."""
        value = self._settings.get(REINDEX_SETTING) or "0"
        return int(value) if value.isdecimal() else None
