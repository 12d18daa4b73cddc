"""The scrub's claim, which one process of all servers has, and its sums."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from sqlalchemy import text

from pt2hub.domain.statistics import ScrubStatistics

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

CLAIM = timedelta(seconds=60)
# A claim that lasts longer than any can was made before the clock was set back.
_CLAIM = text("""
    INSERT INTO scrub_position AS own (id, holder, claimed_until)
    VALUES (1, :holder, now() + CAST(:claim AS interval))
    ON CONFLICT (id) DO UPDATE SET holder = excluded.holder, claimed_until = excluded.claimed_until
    WHERE own.holder = excluded.holder OR own.claimed_until < now()
    OR own.claimed_until > now() + 2 * CAST(:claim AS interval) RETURNING holder""")
_RELEASE = text("UPDATE scrub_position SET claimed_until = now() WHERE holder = :holder")
_ADD = text("""
    INSERT INTO scrub_position AS own (id, holder, claimed_until, blobs, bytes)
    VALUES (1, '', '-infinity', :blobs, :bytes)
    ON CONFLICT (id) DO UPDATE SET blobs = own.blobs + excluded.blobs, bytes = own.bytes + excluded.bytes""")
_STATISTICS = text("""
    SELECT coalesce((SELECT blobs FROM scrub_position), 0), coalesce((SELECT bytes FROM scrub_position), 0),
        (SELECT count(*) FROM blobs WHERE state = 'damaged'),
        (SELECT CAST(extract(epoch FROM now() - min(checked_at)) AS float8) FROM blobs
            WHERE state = 'stored' AND checked_at > '-infinity')""")


class ScrubStore:
    """Claim and sums of the scrub."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def claim(self, holder: str) -> bool:
        """Claim the scrub for a minute, or prolong the claim; return whether the holder has it."""
        return self._session.execute(_CLAIM, {"holder": holder, "claim": CLAIM}).first() is not None

    def release(self, holder: str) -> None:
        """Let another process go on at once."""
        self._session.execute(_RELEASE, {"holder": holder})

    def add(self, blobs: int, count: int) -> None:
        """Add to the numbers of checked blobs and bytes."""
        self._session.execute(_ADD, {"blobs": blobs, "bytes": count})

    def statistics(self) -> ScrubStatistics:
        """Return what was checked and what is damaged."""
        blobs, count, damaged, oldest = self._session.execute(_STATISTICS).one()
        return ScrubStatistics(blobs, count, damaged, max(0.0, oldest or 0.0))
