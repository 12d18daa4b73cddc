"""Readiness checks: the database, its schema, its disk and the storage."""

from __future__ import annotations

import shutil
import threading
import time
from typing import TYPE_CHECKING

import structlog
from sqlalchemy import text

from pt2hub.domain.digests import digest_bytes
from pt2hub.errors import Pt2hubError, StorageFull
from pt2hub.rendering.quantities import format_bytes
from pt2hub.server.blobs.keys import StorageKey
from pt2hub.server.blobs.ports import RESERVE_BYTES
from pt2hub.server.db import engine as engines
from pt2hub.server.db import migrations

if TYPE_CHECKING:
    from collections.abc import Callable

    from pt2hub.server.blobs.ports import Storage
    from pt2hub.server.db.engine import Sessions

_PROBE = StorageKey.blob(digest_bytes(b""))
_PROBE_INTERVAL_S = 10.0
"""How long a process believes the result of a write; load balancers ask every second or two."""
_MODE = text("SELECT pg_is_in_recovery(), current_setting('transaction_read_only') = 'on'")
# One row, which is updated in place. Its size is constant, and the write goes through PostgreSQL's log as all others do.
_WRITE = text("""
    INSERT INTO server_settings (name, value) VALUES ('write_probe', now()::text)
    ON CONFLICT (name) DO UPDATE SET value = excluded.value, set_at = now()""")
# Only a superuser is told, as with the embedded database; over TCP the disk may be another machine's.
_FOLDER = text("SELECT setting FROM pg_settings WHERE name = 'data_directory' AND inet_server_addr() IS NULL")
_log = structlog.get_logger(__name__)


class HealthService:
    """Readiness of this process to serve requests.

    Args:
        clock: Monotonic seconds.
    """

    def __init__(
        self,
        sessions: Sessions,
        storage: Storage,
        *,
        database_url: str,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._sessions = sessions
        self._storage = storage
        self._database_url = database_url
        self._clock = clock
        self._schema_fits = False
        self._storage_fits = False
        self._probing = threading.Lock()
        self._probed_at = float("-inf")
        self._refusal: Pt2hubError | None = None

    def check(self, *, writing: bool = True) -> None:
        """Check everything that requests need.

        The schema is checked only until it fits once: a newer release that upgrades it keeps it compatible with this
        one, and an upgrade must not take every process out of service at once.

        Args:
            writing: Whether writes must succeed too; without them, artifacts can be resolved and downloaded.

        Raises:
            SchemaOlder: The schema must be upgraded first.
            SchemaNewer: A newer pt2hub wrote it.
            DatabaseReadOnly: The database accepts no writes.
            DatabaseFull: Its disk is full.
            StorageFull: The storage is full.
            StorageUnavailable: The storage did not answer, or refuses writes.
            BadConfiguration, StorageUnsafe: See `check_storage`, which runs until it succeeds once.
        """
        if not self._schema_fits:
            migrations.require(self._database_url)
            self._schema_fits = True
        self._check_mode(writing=writing)
        if not self._storage_fits:
            self.check_storage()
        self._storage.size(_PROBE)
        if writing:
            self._check_writes()

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

    def _check_mode(self, *, writing: bool) -> None:
        with self._sessions.begin() as session:
            recovering, read_only = session.execute(_MODE).one()
        if writing and recovering:
            raise engines.read_only("it is a standby in recovery")
        if writing and read_only:
            raise engines.read_only("default_transaction_read_only is on")

    def _check_writes(self) -> None:
        """Try whether writes succeed; within some seconds, the result of the last try counts."""
        with self._probing:
            if self._clock() - self._probed_at >= _PROBE_INTERVAL_S:
                self._refusal = self._probe()
                self._probed_at = self._clock()
            refusal = self._refusal
        if refusal:
            raise refusal

    def _probe(self) -> Pt2hubError | None:
        try:
            self._probe_storage()
            self._probe_database()
        except Pt2hubError as error:
            return error
        return None

    def _probe_storage(self) -> None:
        free = self._storage.free()
        if free is not None and free < RESERVE_BYTES:
            raise StorageFull(
                f"The storage has only {format_bytes(free)} left, less than the {format_bytes(RESERVE_BYTES)} that are kept free.",
                where="PT2HUB_STORAGE",
                hint="Free space on its disk, or move the storage; reading and downloads still work.",
                context={"free": free, "reserve": RESERVE_BYTES},
            )
        self._storage.probe()

    def _probe_database(self) -> None:
        with self._sessions.begin() as session:
            session.execute(_WRITE)
            folder = session.scalar(_FOLDER)
        if not folder:
            return
        try:
            free = shutil.disk_usage(folder).free
        except OSError:  # in another container, whose disks are not seen from here
            return
        if free < RESERVE_BYTES:
            raise engines.database_full(f"{format_bytes(free)} are left in {folder}")
