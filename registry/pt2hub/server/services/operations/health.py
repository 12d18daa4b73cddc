"""Readiness checks: the database, its schema and the storage."""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog
from sqlalchemy import text

from pt2hub.domain.digests import digest_bytes
from pt2hub.errors import StorageFull
from pt2hub.server.blobs.keys import StorageKey
from pt2hub.server.db import migrations

if TYPE_CHECKING:
    from pt2hub.server.blobs.ports import Storage
    from pt2hub.server.db.engine import Sessions

_PROBE = StorageKey.blob(digest_bytes(b""))
_log = structlog.get_logger(__name__)


class HealthService:
    """Readiness of this process to serve requests."""

    def __init__(self, sessions: Sessions, storage: Storage, *, database_url: str) -> None:
        self._sessions = sessions
        self._storage = storage
        self._database_url = database_url
        self._schema_fits = False
        self._storage_fits = False

    def check(self) -> None:
        """Check everything that requests need.

        The schema is checked only until it fits once: a newer release that upgrades it keeps it compatible with this
        one, and an upgrade must not take every process out of service at once.

        Raises:
            SchemaOlder: The schema must be upgraded first.
            SchemaNewer: A newer pt2hub wrote it.
            StorageUnavailable: The storage did not answer.
            BadConfiguration, StorageUnsafe: See `check_storage`, which runs until it succeeds once.
        """
        if self._schema_fits:
            with self._sessions.begin() as session:
                session.execute(text("SELECT 1"))
        else:
            migrations.require(self._database_url)
            self._schema_fits = True
        if not self._storage_fits:
            self.check_storage()
        self._storage.size(_PROBE)

    def check_storage(self) -> None:
        """Test the storage and detect its capabilities, before the process serves requests.

        A full storage does not prevent serving, since it can be read; the next `check` tests it again.

        Raises:
            BadConfiguration: The bucket does not exist, or the credentials cannot write.
            StorageUnsafe: It lacks a guarantee that pt2hub relies on.
            StorageUnavailable: It does not answer.
        """
        try:
            self._storage.check()
        except StorageFull as error:
            _log.warning("storage is full", code=error.code, error=str(error))
        else:
            self._storage_fits = True
