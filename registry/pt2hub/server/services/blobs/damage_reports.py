"""Reports of clients that received other bytes than a blob's digest says.

A report proves nothing: the server reads the blob itself, a few times a minute at most. Large blobs are left to the scrub and
its rate: it takes them first, but so few of them at a time that reports never keep it from the others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pt2hub.errors import NotFound
from pt2hub.server.services.blobs.scrub import MIN_INTERVAL
from pt2hub.wire.artifacts import BlobCheck

if TYPE_CHECKING:
    from pt2hub.server.blobs.keys import StorageKey
    from pt2hub.server.services.access.rate_limits import RateLimitService
    from pt2hub.server.services.blobs.damage import DamageService

MAX_IMMEDIATE_BYTES = 64 << 20
"""A larger blob is read by the scrub: reading it would keep a request for too long."""


class DamageReportService:
    """Checks blobs that clients found damaged."""

    def __init__(self, damage: DamageService, rate_limits: RateLimitService) -> None:
        self._damage = damage
        self._rate_limits = rate_limits

    def check(self, key: StorageKey, address: str) -> BlobCheck:
        """Read a blob again, or let the scrub do it if it is large.

        Args:
            address: Of the client that reports it.

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
        self._rate_limits.count_blob_check(address)
        if row.size > MAX_IMMEDIATE_BYTES:
            self._damage.request_check(row.key, age=MIN_INTERVAL)
            return BlobCheck(key.digest, "queued")
        return BlobCheck(key.digest, "damaged" if self._damage.check(row, by="report") else "intact")
