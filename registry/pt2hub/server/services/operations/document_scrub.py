"""The scrub of what has no rows of blobs: files of the journal, and documents of tombstones."""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog

from pt2hub.server.services.blobs.tombstone_documents import TombstoneDocuments
from pt2hub.server.services.operations.journal import JournalService

if TYPE_CHECKING:
    from pt2hub.server.blobs.ports import Storage
    from pt2hub.server.db.engine import Sessions

_log = structlog.get_logger(__name__)


class DocumentScrub:
    """Reads these files again: a lost database would come back from them."""

    def __init__(self, sessions: Sessions, storage: Storage) -> None:
        self._storage = storage
        self._journal = JournalService(sessions, storage)
        self._tombstones = TombstoneDocuments(sessions, storage)

    def check(self) -> dict[str, str]:
        """Return paths of damaged and missing files, with what is wrong; tombstones of the database are written again.

        Files of the journal are only named: the database may lack what they say was removed.

        Raises:
            StorageUnavailable: The storage does not answer.
        """
        if self._is_empty():
            return {}  # a directory that is not mounted, as the scrub of blobs says: nothing is written into it
        found = self._journal.find_damage() | self._tombstones.check()
        for path, problem in found.items():
            _log.error("a file in storage is damaged", path=path, problem=problem, hint="pt2hub admin fsck")
        return found

    def _is_empty(self) -> bool:
        return not any(True for kind in ("blobs", "manifests") for _ in self._storage.keys(kind))
