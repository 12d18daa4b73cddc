"""Reports of clients that received other bytes than a blob's digest says.

A report proves nothing: the server reads the blob itself. Clients can cause a few such readings a minute, whoever reports;
large blobs are left to the scrub and its rate.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from pt2hub.errors import NotFound
from pt2hub.wire.artifacts import BlobCheck

if TYPE_CHECKING:
    from pt2hub.server.blobs.keys import StorageKey
    from pt2hub.server.services.access.rate_limits import RateLimitService
    from pt2hub.server.services.blobs.damage import DamageService

MAX_IMMEDIATE_BYTES = 64 << 20
"""A larger blob is read by the scrub: reading it would keep a request for too long."""
MIN_AGE = timedelta(hours=1)
"""The scrub reads a large blob again because of reports at most this often."""


class DamageReportService:
    """Checks blobs that clients found damaged."""

    def __init__(self, damage: DamageService, rate_limits: RateLimitService) -> None:
        self._damage = damage
        self._rate_limits = rate_limits

    def check(self, key: StorageKey) -> BlobCheck:
        """Read a blob again, or let the scrub do it if it is large.

        Raises:
            NotFound: It is not stored.
            Deleted: A forced deletion removed it.
            BlobDamaged: It is already known to be damaged.
            RateLimited: There were too many reports within a minute.
            StorageUnavailable: The storage does not answer.
        """
        row = self._damage.find_readable(key)
        if row is None or row.state != "stored":
            raise NotFound(f"Blob {key.digest} not found.", where=key.digest)
        self._rate_limits.count_blob_check()
        if row.size > MAX_IMMEDIATE_BYTES:
            self._damage.request_check(row.key, age=MIN_AGE)
            return BlobCheck(key.digest, "queued")
        return BlobCheck(key.digest, "damaged" if self._damage.check(row, by="report") else "intact")
