"""Removes from the database what the journal says was removed, as after the restore of an older backup."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import text

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

    from pt2hub.server.db.stores.operations.journal import JournalEntry

# By the parts of the entry's key. What was set again later than it was removed stays.
_STATEMENTS = {
    "label": text("""
        DELETE FROM labels USING models WHERE models.id = labels.model_id AND models.name = :first
        AND labels.key = :third AND labels.at <= :removed_at
        AND (SELECT number FROM versions WHERE versions.id = labels.version_id) IS NOT DISTINCT FROM CAST(:second AS integer)
        RETURNING 1"""),
    # pt2hub records one by itself at publication alone, and a reindex does it again: somebody removed it since.
    "derivation": text("""
        DELETE FROM derivations USING versions, models
        WHERE versions.id = derivations.version_id AND models.id = versions.model_id AND models.name = :first
        AND versions.number = CAST(:second AS integer) AND derivations.parent = :third
        AND (derivations.automatic OR derivations.at <= :removed_at)
        RETURNING 1"""),
    "role": text("""
        DELETE FROM role_assignments WHERE (group_name, role, pattern) = (:first, :second, :third)
        AND created_at <= :removed_at
        RETURNING 1"""),
    "trust_rule": text("DELETE FROM trust_rules WHERE created_at = CAST(:first AS timestamptz) RETURNING 1"),
    "retention_policy": text(
        "DELETE FROM retention_policies WHERE scope = :first AND at <= :removed_at RETURNING 1"
    ),
}
_PARTS = ("first", "second", "third")


class JournalRemovals:
    """Removes rows of entries of what is gone."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def apply(self, entry: JournalEntry) -> int:
        """Remove what an entry names, unless it was set again later; return how many rows there were."""
        if (statement := _STATEMENTS.get(entry.kind)) is None:
            return 0
        given = dict(zip(_PARTS, entry.key, strict=False)) | {"removed_at": entry.removed_at}
        return len(self._session.execute(statement, given).all())
