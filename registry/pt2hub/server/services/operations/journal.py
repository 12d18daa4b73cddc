"""The journal in storage: what a lost database would take along. See docs/architecture/storage.md."""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog

from pt2hub.errors import BadResponse, StorageUnavailable
from pt2hub.rendering.quantities import format_count
from pt2hub.server.db.stores.operations.journal import JournalStore
from pt2hub.server.db.stores.operations.journal_position import (
    BEGINNING,
    JournalPosition,
    JournalPositionStore,
)
from pt2hub.server.db.stores.operations.reindex_state import ReindexState
from pt2hub.server.services.operations.journal_files import FOLDER, MAX_FILES, JournalFiles

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

    def write(self, *, by_reindex: bool = False) -> int:
        """Write what is marked, and merge files where there are many.

        One process at a time writes. If it dies between the storage and its commit, the next one writes the same again.

        Args:
            by_reindex: Write although a reindex is due, for which everything else waits; but not what came with a backup.

        Returns:
            The number of entries written.

        Raises:
            DatabaseUnavailable: The database does not answer.
            StorageUnavailable: The storage does not answer; the marks wait.
        """
        written = 0
        while entries := self._write_batch(by_reindex=by_reindex):
            written += entries
            if self._files.count() > MAX_FILES:
                self._merge()
        return written

    def check_writer(self) -> bool:
        """Return whether this database may write; require a reindex if another one wrote to the storage.

        While a reindex is due it may not, be it for that or since it is new or was restored from a backup: it may be a trial on the
        storage of a server that goes on, and what it writes there keeps that one from publishing.

        Raises:
            StorageUnavailable: The storage does not answer.
        """
        with self._sessions.begin() as session:
            if ReindexState(session).is_due():
                return False
        last, position = self._files.last(), self._position()
        if position is None:  # new, or of a release before
            with self._sessions.begin() as session:
                JournalPositionStore(session).accept(last)
        elif position.number and not last:
            raise StorageUnavailable(
                f"The storage has no journal, but this database wrote {format_count(position.number, 'file')} of it",
                where=FOLDER,
                hint="If the storage is a directory that is not mounted, mount it. If the journal is lost: "
                "pt2hub admin reindex --accept-losses",
            )
        foreign = self._files.find_foreign(self._position)
        if foreign is None:
            return True
        with self._sessions.begin() as session:
            ReindexState(session).require(other_writer=True)
        _log.error("another database writes to this storage", file=foreign.path, hint="pt2hub admin reindex")
        return False

    def find_damage(self) -> dict[str, str]:
        """Return paths of damaged and missing files, with what is wrong.

        Raises:
            StorageUnavailable: The storage does not answer.
        """
        found: dict[str, str] = {}
        self._files.read(found)
        return found | self.find_lost_end()

    def find_lost_end(self) -> dict[str, str]:
        """Return the path of the newest batches if they are missing, with what is wrong."""
        return self._files.find_lost_end(self._position)

    def mark_missing(self) -> None:
        """Mark everything, if the storage has no journal: after a backup was restored next to another storage."""
        if self._files.is_empty():
            with self._sessions.begin() as session:
                JournalPositionStore(session).forget()
                JournalStore(session).mark_everything()

    def replace_lost(self, paths: Iterable[str]) -> None:
        """Give up damaged and missing files, and have everything written again that the database has.

        Args:
            paths: As `JournalFiles.read` names them.
        """
        with self._sessions.begin() as session:  # first: a process that dies in between must not leave less
            JournalStore(session).mark_everything()
        self._files.give_up(paths)

    def _merge(self) -> None:
        """Merge files, unless one is damaged or missing: then all stay, for a reindex to name it.

        Nobody writes meanwhile: a list of files that is read during a merge may lack both the old ones and the new one, and
        the next batch would get the number of an old one.
        """
        with self._sessions.begin() as session:
            if not JournalStore(session).hold():
                return
            position = JournalPositionStore(session).get() or BEGINNING
            if self._files.find_foreign(lambda: position):
                return  # another database's, noticed by the next batch: a merged file would count as this one's
            try:
                self._files.merge(nonce=position.nonce)
            except BadResponse as error:
                _log.warning("the journal is not merged", error=str(error))

    def _write_batch(self, *, by_reindex: bool) -> int:
        """Write some of what is marked; return the number of entries, 0 where there is nothing to write."""
        if not self._has_marks() or not (by_reindex or self.check_writer()):
            return 0
        with self._sessions.begin() as session:
            store, end = JournalStore(session), JournalPositionStore(session)
            after = ReindexState(session).restored_marks() if by_reindex else 0
            marks = store.marks(_BATCH, after=after) if store.hold() else []
            position = end.get(lock=True)
            if not marks or position is None:
                return 0
            entries = store.read({(kind, key) for _, kind, key in marks})
            file = self._files.add(entries, position=position, confirm=store.confirm)
            store.drop([mark for mark, _, _ in marks])
            end.advance(file.last)
            return len(entries)

    def _has_marks(self) -> bool:
        with self._sessions.begin() as session:
            return bool(JournalStore(session).marks(1))

    def _position(self) -> JournalPosition | None:
        with self._sessions.begin() as session:
            return JournalPositionStore(session).get()
