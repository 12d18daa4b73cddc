"""Blobs that nothing needs: the rows of the blob collector.

A collection has three steps, each with transactions of its own, so that a crash between two of them loses nothing:

1. `mark` makes rows `deleting` that have neither references nor live leases and did not change within a grace. It locks
   the rows first and looks again in a second statement, since one that waited for a lock still sees what was there
   before. A publish locks the same rows FOR SHARE, so either its reference is seen here, or it is refused.
2. The caller removes the objects of exactly the generations that `marked` returns.
3. `finish` makes the rows `deleted` that are still `deleting` and of that generation.

An object is dead for good where its row has a later generation that is stored or deleted, or is `deleting` or `deleted`
in its own: what a crash, or a writer that outlived its lease, left behind is found by listing the storage (`dead`). While
a later generation is only being written, the earlier one stays: it may be the only good copy. Of an object without a row
nothing is known: it stays. Ages are compared by the database's clock alone; one in the future is no age.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from sqlalchemy import text

from pt2hub.domain.digests import Digest
from pt2hub.domain.storage import FIRST, Kind
from pt2hub.server.blobs.keys import StorageKey

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import timedelta

    from sqlalchemy.orm import Session

_UNNEEDED = """
    blobs.state IN ('pending', 'stored', 'damaged') AND blobs.changed_at <= now() - CAST(:grace AS interval)
    AND NOT EXISTS (
        SELECT FROM blob_references AS held WHERE (held.kind, held.digest) = (blobs.kind, blobs.digest))
    AND NOT EXISTS (
        SELECT FROM blob_leases AS held
        WHERE (held.kind, held.digest) = (blobs.kind, blobs.digest) AND held.pending_until > now())"""
_ASKED = """
    unnest(CAST(:kinds AS text[]), CAST(:digests AS text[]), CAST(:generations AS integer[]))
        AS asked (kind, digest, generation)"""
_CANDIDATES = text(f"""
    SELECT kind, digest FROM blobs
    WHERE (kind, digest) > (:after_kind, :after_digest) AND {_UNNEEDED}
    ORDER BY kind, digest LIMIT :most""")  # noqa: S608  # of constants
# Rows that somebody else has locked are in use: the next collection looks at them again.
_LOCK = text(f"""
    SELECT blobs.kind, blobs.digest FROM blobs JOIN {_ASKED} USING (kind, digest)
    ORDER BY blobs.kind, blobs.digest FOR UPDATE OF blobs SKIP LOCKED""")  # noqa: S608
_MARK = text(f"""
    UPDATE blobs SET state = 'deleting', changed_at = now() FROM {_ASKED}
    WHERE (blobs.kind, blobs.digest) = (asked.kind, asked.digest) AND {_UNNEEDED}
    RETURNING blobs.kind, blobs.digest, blobs.generation, blobs.size""")  # noqa: S608
_MARKED = text("""
    SELECT kind, digest, generation, size FROM blobs
    WHERE state = 'deleting' AND (kind, digest) > (:after_kind, :after_digest)
    AND changed_at <= now() - CAST(:readable AS interval)
    ORDER BY kind, digest LIMIT :most""")
_FINISH = text(f"""
    WITH held AS MATERIALIZED (
        SELECT blobs.kind, blobs.digest FROM blobs JOIN {_ASKED} USING (kind, digest, generation)
        WHERE blobs.state = 'deleting' ORDER BY blobs.kind, blobs.digest FOR UPDATE OF blobs)
    UPDATE blobs SET state = 'deleted', changed_at = now() FROM held
    WHERE (blobs.kind, blobs.digest) = (held.kind, held.digest)
    RETURNING blobs.size""")  # noqa: S608
_DEAD = text(f"""
    SELECT asked.kind, asked.digest, asked.generation, blobs.kind IS NULL AS unknown FROM {_ASKED}
    LEFT JOIN blobs USING (kind, digest)
    WHERE blobs.kind IS NULL OR (blobs.changed_at <= now() - CAST(:readable AS interval) AND (
        blobs.generation > asked.generation AND blobs.state IN ('stored', 'deleting', 'deleted')
        OR blobs.generation = asked.generation AND blobs.state = 'deleted'))""")  # noqa: S608
_SUMMARY = text(f"""
    SELECT count(*), coalesce(sum(size), 0)::bigint FROM blobs WHERE {_UNNEEDED}""")  # noqa: S608
_WAITING = text("SELECT count(*), coalesce(sum(size), 0)::bigint FROM blobs WHERE state = 'deleting'")
# Everything that an artifact or a version cannot do without must be referenced, else nothing is collected at all.
_UNPROTECTED = text("""
    SELECT owner, digest FROM (
        SELECT 'artifact:' || artifacts.digest AS owner, needed.kind, needed.digest FROM artifacts
        CROSS JOIN LATERAL (VALUES ('manifests', artifacts.digest), ('blobs', artifacts.config),
            ('blobs', artifacts.code), ('blobs', artifacts.weights)) AS needed (kind, digest)
        UNION ALL
        SELECT 'version:' || versions.id, 'blobs', needed.digest FROM versions
        CROSS JOIN LATERAL (VALUES (versions.weights), (versions.golden)) AS needed (digest)
        WHERE needed.digest IS NOT NULL
    ) AS needed
    WHERE NOT EXISTS (
        SELECT FROM blob_references AS held
        WHERE (held.kind, held.digest) = (needed.kind, needed.digest)
    ) AND EXISTS (
        SELECT FROM blobs WHERE (blobs.kind, blobs.digest) = (needed.kind, needed.digest) AND state = 'stored')
    LIMIT 1""")
_SHARING = text("""
    SELECT
        (SELECT coalesce(sum(size), 0)::bigint FROM blobs WHERE state = 'stored') AS stored,
        (SELECT coalesce(sum(blobs.size), 0)::bigint FROM blob_references AS held
            JOIN blobs USING (kind, digest) WHERE held.owner LIKE 'artifact:%') AS referenced""")


@dataclass(frozen=True, slots=True)
class Garbage:
    """A blob that is being deleted.

    Attributes:
        key: Its key with the generation to remove.
    """

    key: StorageKey
    size: int


@dataclass(frozen=True, slots=True)
class DeadObjects:
    """Objects of a listing.

    Attributes:
        dead: Those that nobody can refer to again.
        unknown: Those without a row.
    """

    dead: list[StorageKey]
    unknown: list[StorageKey]


class GarbageStore:
    """Rows of blobs that nothing needs."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def candidates(self, after: StorageKey | None, *, grace: timedelta, limit: int) -> list[StorageKey]:
        """Return blobs that nothing needed a moment ago, in the order of kind and digest."""
        given = {**_after(after), "grace": grace, "most": limit}
        return [_key(*row) for row in self._session.execute(_CANDIDATES, given)]

    def mark(self, keys: Sequence[StorageKey], *, grace: timedelta) -> list[Garbage]:
        """Make those of the blobs `deleting` that nothing needs; see the module's step 1."""
        locked = [_key(*row) for row in self._session.execute(_LOCK, _arguments(keys))]
        rows = self._session.execute(_MARK, _arguments(locked) | {"grace": grace})
        return [Garbage(_key(kind, digest).at(generation), size) for kind, digest, generation, size in rows]

    def marked(self, after: StorageKey | None, *, readable: timedelta, limit: int) -> list[Garbage]:
        """Return blobs that are being deleted and can no longer be read by presigned URLs.

        Args:
            readable: How long a presigned URL is valid.
        """
        rows = self._session.execute(_MARKED, {**_after(after), "readable": readable, "most": limit})
        return [Garbage(_key(kind, digest).at(generation), size) for kind, digest, generation, size in rows]

    def finish(self, keys: Sequence[StorageKey]) -> list[int]:
        """Make the rows `deleted` that are still `deleting` in these generations; return their sizes."""
        return list(self._session.scalars(_FINISH, _arguments(keys)))

    def dead(self, keys: Sequence[StorageKey], *, readable: timedelta) -> DeadObjects:
        """Return which objects of a listing are dead for good, and which have no row."""
        found = DeadObjects([], [])
        rows = self._session.execute(_DEAD, _arguments(keys) | {"readable": readable})
        for kind, digest, generation, unknown in rows:
            (found.unknown if unknown else found.dead).append(_key(kind, digest).at(generation))
        return found

    def summary(self, *, grace: timedelta) -> tuple[int, int]:
        """Return number and bytes of the blobs that `mark` would take."""
        count, size = self._session.execute(_SUMMARY, {"grace": grace}).one()
        return count, size

    def waiting(self) -> tuple[int, int]:
        """Return number and bytes of the blobs that are being deleted."""
        count, size = self._session.execute(_WAITING).one()
        return count, size

    def unprotected(self) -> tuple[str, Digest] | None:
        """Return an artifact or version that needs a stored blob to which nothing refers; None where there is none."""
        row = self._session.execute(_UNPROTECTED).first()
        return (row[0], Digest(row[1])) if row else None

    def sharing(self) -> tuple[int, int]:
        """Return the bytes stored, and the bytes that artifacts refer to, each counted for each artifact."""
        stored, referenced = self._session.execute(_SHARING).one()
        return stored, referenced


def _after(key: StorageKey | None) -> dict[str, str]:
    return {"after_kind": key.kind if key else "", "after_digest": key.digest if key else ""}


def _arguments(keys: Sequence[StorageKey]) -> dict[str, Any]:
    return {
        "kinds": [key.kind for key in keys],
        "digests": [key.digest for key in keys],
        "generations": [key.generation or FIRST for key in keys],
    }


def _key(kind: str, digest: str) -> StorageKey:
    return StorageKey(cast("Kind", kind), Digest(digest))
