"""Whether a process can do its work: the database, its schema and the storage."""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog
from sqlalchemy import text

from pt2hub.domain.digests import digest_bytes
from pt2hub.errors import StorageFull
from pt2hub.server.blobs.keys import StorageKey
from pt2hub.server.db import migrating

if TYPE_CHECKING:
    from pt2hub.server.blobs.ports import Storage
    from pt2hub.server.db.engine import Sessions

_PROBE = StorageKey.blob(digest_bytes(b""))
_log = structlog.get_logger(__name__)


class HealthService:
    """Readiness."""

    def __init__(self, sessions: Sessions, storage: Storage, *, database_url: str) -> None:
        """Is built by the container.

        Args:
            sessions: Opens transactions.
            storage: Holds blobs.
            database_url: `postgresql://...`.
        """
        self._sessions = sessions
        self._storage = storage
        self._database_url = database_url
        self._schema_fits = False
        self._storage_fits = False

    def check(self) -> None:
        """Asks everything that requests need.

        Once the schema was right it is not asked again: a newer release that upgrades it beside us keeps it so
        that ours goes on working, and must not take every process out of service at once.

        Raises:
            DatabaseUnavailable: The database did not answer.
            SchemaOlder: It must be upgraded first.
            SchemaNewer: A newer pt2hub wrote it.
            StorageUnavailable: The storage did not answer.
            BadConfiguration, StorageUnsafe: As for `check_storage`, where it was not tried out before.
        """
        if self._schema_fits:
            with self._sessions.begin() as session:
                session.execute(text("SELECT 1"))
        else:
            migrating.require(self._database_url)
            self._schema_fits = True
        if not self._storage_fits:
            self.check_storage()
        self._storage.size(_PROBE)

    def check_storage(self) -> None:
        """Tries the storage out, which also learns what it can do: before a process serves anybody.

        A full one is no reason not to: what is there can be read. It is tried again at the next `check`.

        Raises:
            BadConfiguration: The settings name a bucket that is not there, or credentials that may not write.
            StorageUnsafe: It does not keep a promise that we rely on.
            StorageUnavailable: It does not answer.
        """
        try:
            self._storage.check()
        except StorageFull as error:
            _log.warning("nothing can be stored", code=error.code, error=str(error))
        else:
            self._storage_fits = True
