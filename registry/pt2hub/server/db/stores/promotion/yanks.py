"""Yanks of versions and their history."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from sqlalchemy import select, update

from pt2hub.errors import Deleted
from pt2hub.server.db.schema import Version as SQLVersion
from pt2hub.server.db.schema import VersionYank as SQLVersionYank
from pt2hub.server.db.stores.values import stamp, yank_of
from pt2hub.wire.responses import YankChange

if TYPE_CHECKING:
    from sqlalchemy import Table
    from sqlalchemy.orm import Session

    from pt2hub.wire.resolution import Yank

_VERSIONS = cast("Table", SQLVersion.__table__)


class YankStore:
    """Yanks of versions."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def hold(self, version_id: int) -> Yank | None:
        """Lock a version against yanks and alias moves until the transaction ends, and return its yank."""
        return self._locked(version_id, shared=False)

    def share(self, version_id: int) -> Yank | None:
        """Lock a version against yanks until the transaction ends, and return its yank."""
        return self._locked(version_id, shared=True)

    def changes(self, version_id: int) -> tuple[YankChange, ...]:
        """Return all yanks of a version and their ends, newest first."""
        row = SQLVersionYank
        rows = self._session.scalars(
            select(row).where(row.version_id == version_id).order_by(row.sequence.desc())
        )
        return tuple(
            YankChange(item.sequence, item.yanked, item.reason, item.by, stamp(item.at)) for item in rows
        )

    def add(self, version_id: int, *, yanked: bool, reason: str, by: str) -> None:
        """Yank a version that `hold` locked, or end its yank."""
        row = SQLVersionYank(
            version_id=version_id,
            sequence=len(self.changes(version_id)) + 1,
            yanked=yanked,
            reason=reason,
            by=by,
        )
        self._session.add(row)
        self._session.flush()  # the database dates the row
        document = {"reason": reason, "by": by, "at": stamp(row.at)} if yanked else None
        self._session.execute(update(_VERSIONS).where(_VERSIONS.c.id == version_id).values(yanked=document))

    def _locked(self, version_id: int, *, shared: bool) -> Yank | None:
        # A yank takes the lock of an update, which waits for moves that share the row; foreign keys do neither.
        statement = select(_VERSIONS.c.yanked).where(_VERSIONS.c.id == version_id)
        statement = statement.with_for_update(read=shared, key_share=not shared)
        row = self._session.execute(statement).first()
        if row is None:
            raise Deleted(
                "The version was deleted a moment ago",
                where="version",
                hint="Choose another version; its number is not used again.",
            )
        return yank_of(row[0])
