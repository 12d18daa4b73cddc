"""Runs of the blob collector."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from sqlalchemy import text, update

from pt2hub.server.db.retention_schema import Collection as SQLCollection

if TYPE_CHECKING:
    from datetime import timedelta

    from sqlalchemy import Table
    from sqlalchemy.orm import Session

_KEPT = 1000
"""Newest runs that are kept."""
_COLLECTIONS = cast("Table", SQLCollection.__table__)
_LOCK = text("SELECT pg_advisory_xact_lock(84000006)")
_DUE = """NOT EXISTS (
    SELECT FROM collections WHERE started_at > now() - CAST(:every AS interval) AND started_at <= now())"""
_IS_DUE = text(f"SELECT {_DUE}")
_BEGIN = text(f"INSERT INTO collections (trigger) SELECT :trigger WHERE {_DUE} RETURNING id")
_FORGET = text("DELETE FROM collections WHERE id <= :newest - :kept")
# A long run must not end at the usual time-out of a statement.
PATIENT = text("SET LOCAL statement_timeout = '15min'")


class CollectionStore:
    """Runs of the blob collector."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def is_due(self, *, every: timedelta) -> bool:
        """Return whether no run began within this time."""
        return bool(self._session.scalar(_IS_DUE, {"every": every}))

    def begin(self, trigger: str, *, every: timedelta) -> int | None:
        """Begin a run; of several processes that try, one succeeds.

        Args:
            every: Least time between two runs, by the database's clock; a run in the future is none.

        Returns:
            The run's id; None where another one began less than `every` ago.
        """
        self._session.execute(_LOCK)
        run: int | None = self._session.scalar(_BEGIN, {"trigger": trigger, "every": every})
        if run is not None:
            self._session.execute(_FORGET, {"newest": run, "kept": _KEPT})
        return run

    def end(self, run: int, counts: dict[str, Any]) -> None:
        """Record the end of a run."""
        done = update(_COLLECTIONS).where(_COLLECTIONS.c.id == run)
        self._session.execute(done.values(ended_at=text("clock_timestamp()"), counts=counts))
