"""Whether the database has what its storage has: one that is new beside a storage that is not gives numbers again."""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog

from pt2hub.server.db.stores.operations.reindex_state import ReindexState
from pt2hub.server.db.stores.retention.policies import RetentionStore
from pt2hub.server.services.operations.journal_files import FOLDER
from pt2hub.server.services.reindexing import DUE

if TYPE_CHECKING:
    from pt2hub.server.blobs.ports import Storage
    from pt2hub.server.db.engine import Sessions

_log = structlog.get_logger(__name__)


class StorageAcquaintanceService:
    """Notices a database that lacks what its storage has."""

    def __init__(self, sessions: Sessions, storage: Storage) -> None:
        self._sessions = sessions
        self._storage = storage

    def check(self) -> None:
        """Require a reindex if the database is new and the storage is not.

        Raises:
            StorageUnavailable: The storage does not answer.
        """
        with self._sessions.begin() as session:
            if ReindexState(session).knows_storage():
                return
            is_new = RetentionStore(session).newest_version() == 0
        is_used = is_new and self._is_used()
        with self._sessions.begin() as session:
            if is_used:
                _log.warning("nothing can be published", reason=DUE, hint="pt2hub admin reindex")
                ReindexState(session).require()
            else:
                ReindexState(session).know_storage()

    def is_due(self) -> bool:
        """Return whether the database lacks what the storage has."""
        with self._sessions.begin() as session:
            return ReindexState(session).is_due()

    def _is_used(self) -> bool:
        return any(True for _ in self._storage.objects("manifests")) or any(
            True for _ in self._storage.list_objects(FOLDER)
        )
