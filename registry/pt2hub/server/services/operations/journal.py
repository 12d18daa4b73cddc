"""The journal in storage: what a lost database would take along. See docs/architecture/storage.md."""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog

from pt2hub.errors import BadResponse
from pt2hub.server.db.stores.operations.journal import JournalStore
from pt2hub.server.services.operations.journal_files import MAX_FILES, JournalFiles

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pt2hub.server.blobs.ports import NamedObjects
    from pt2hub.server.db.engine import Sessions

_BATCH = 500
_log = structlog.get_logger(__name__)


class JournalService:
    """Writes the journal. Triggers mark what changes, in the transaction that changes it."""

    def __init__(self, sessions: Sessions, storage: NamedObjects) -> None:
        self._sessions = sessions
        self._files = JournalFiles(storage)

    def write(self) -> int:
        """Write what is marked, and merge files where there are many.

        One process at a time writes. If it dies between the storage and its commit, the next one writes the same again.

        Returns:
            The number of entries written.

        Raises:
            DatabaseUnavailable: The database does not answer.
            StorageUnavailable: The storage does not answer; the marks wait.
        """
        written = 0
        while batch := self._write_batch():
            entries, files = batch
            written += entries
            if files > MAX_FILES:
                self._merge()
        return written

    def mark_missing(self) -> None:
        """Mark everything, if the storage has no journal: after a backup was restored next to another storage."""
        if self._files.is_empty():
            with self._sessions.begin() as session:
                JournalStore(session).mark_everything()

    def replace_lost(self, paths: Iterable[str]) -> None:
        """Give up damaged and missing files, and have everything written again that the database has.

        Args:
            paths: As `JournalFiles.read` names them.
        """
        self._files.give_up(paths)
        with self._sessions.begin() as session:
            JournalStore(session).mark_everything()

    def _merge(self) -> None:
        """Merge files, unless one is damaged or missing: then all stay, for a reindex to name it.

        Nobody writes meanwhile: a list of files that is read during a merge may lack both the old ones and the new one, and
        the next batch would get the number of an old one.
        """
        with self._sessions.begin() as session:
            if not JournalStore(session).hold():
                return
            try:
                self._files.merge()
            except BadResponse as error:
                _log.warning("the journal is not merged", error=str(error))

    def _write_batch(self) -> tuple[int, int] | None:
        """Write some of what is marked; return the numbers of entries and of files, None where there is nothing."""
        with self._sessions.begin() as session:
            store = JournalStore(session)
            marks = store.marks(_BATCH) if store.hold() else []
            if not marks:
                return None
            entries = store.read({(kind, key) for _, kind, key in marks})
            files = self._files.add(entries, confirm=store.confirm)
            store.drop([mark for mark, _, _ in marks])
            return len(entries), files
