"""Counters of rate limits, shared by all processes of a server."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import text

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

_ADD = text("""
    INSERT INTO rate_counters AS own (key, count, expires_at)
    VALUES (:key, :amount, clock_timestamp() + make_interval(secs => :seconds))
    ON CONFLICT (key) DO UPDATE SET
        count = CASE WHEN own.expires_at > clock_timestamp() THEN own.count + excluded.count ELSE excluded.count END,
        expires_at = CASE WHEN own.expires_at > clock_timestamp() THEN own.expires_at ELSE excluded.expires_at END
    RETURNING count, CAST(extract(epoch FROM expires_at - clock_timestamp()) AS float8)
""")
_SWEEP = text("DELETE FROM rate_counters WHERE expires_at < now()")


class RateCounterStore:
    """Counters that begin again after some time."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def add(self, key: str, amount: int, *, seconds: float) -> tuple[int, float]:
        """Add to a counter.

        Args:
            seconds: How long it counts if it begins now.

        Returns:
            Its value, and in how many seconds it begins again.
        """
        count, left = self._session.execute(_ADD, {"key": key, "amount": amount, "seconds": seconds}).one()
        return count, left

    def sweep(self) -> None:
        """Delete the counters that would begin again."""
        self._session.execute(_SWEEP)
