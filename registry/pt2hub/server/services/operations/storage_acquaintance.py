"""Whether the database has what its storage has: one that lacks versions gives their numbers again."""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog

from pt2hub.server.db.stores.operations.reindex_state import ReindexState
from pt2hub.server.db.stores.retention.policies import RetentionStore
from pt2hub.server.services.operations.journal_files import FOLDER
from pt2hub.server.services.reindexing import explain_reindex_due

if TYPE_CHECKING:
    from pt2hub.server.blobs.ports import Storage
    from pt2hub.server.db.engine import Sessions
    from pt2hub.server.services.operations.journal import JournalService

_log = structlog.get_logger(__name__)


class StorageAcquaintanceService:
    """Notices a database that lacks what its storage has."""

    def __init__(self, sessions: Sessions, storage: Storage, journal: JournalService) -> None:
        self._sessions = sessions
        self._storage = storage
        self._journal = journal

    def check(self) -> None:
        """Require a reindex if another database writes to the storage, or this one is new and the storage is not.

        Raises:
            StorageUnavailable: The storage does not answer.
        """
        self._journal.check_writer()
        with self._sessions.begin() as session:
            if ReindexState(session).knows_storage():
                return
            is_new = RetentionStore(session).newest_version() == 0
        is_used = is_new and self._is_used()
        with self._sessions.begin() as session:
            if is_used:
                _log.warning("the database lacks versions of its storage", hint="pt2hub admin reindex")
                ReindexState(session).require()
            else:
                ReindexState(session).know_storage()

    def explain_reindex_due(self) -> tuple[str, str] | None:
        """Return why a reindex is due and what the operator does; None where none is."""
        with self._sessions.begin() as session:
            return explain_reindex_due(session)

    def _is_used(self) -> bool:
        return any(True for _ in self._storage.objects("manifests")) or any(
            True for _ in self._storage.list_objects(FOLDER)
        )
