"""Rows, leases and references of stored blobs.

The collector's part is in `garbage`: a row without references and live leases becomes `deleting`, its object is removed, and
the row becomes `deleted`. A push that meets either takes the next generation (docs/facts/storage.md).

A `damaged` row stays so until right bytes are confirmed. It names the generation that is damaged, or the later one that
writers write: that has no damage of its own. So a writer that fails hides nothing.

Rows are locked in the order of kind and digest, and after everything else that a transaction locks.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, cast

from sqlalchemy import text

from pt2hub.domain.digests import Digest
from pt2hub.domain.storage import FIRST, Kind
from pt2hub.errors import BlobGone
from pt2hub.server.blobs.keys import StorageKey

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from sqlalchemy.orm import Session

LEASE = timedelta(hours=6)
"""Long enough for the upload of a slow client; a collector waits as long for writers that died."""
_RENEW_BELOW = timedelta(hours=5)
"""A lease is renewed when less than this is left, so that a blob that is pushed often is not rewritten each time."""
_DROP_BATCH = 10_000

_ASKED = """
    asked AS MATERIALIZED (
        SELECT kind, digest, generation, size FROM unnest(CAST(:kinds AS text[]), CAST(:digests AS text[]),
            CAST(:generations AS integer[]), CAST(:sizes AS bigint[])) AS asked (kind, digest, generation, size)
        ORDER BY kind, digest)"""
_LEASED = """
    INSERT INTO blob_leases (kind, digest, holder, pending_until)
    SELECT kind, digest, :holder, now() + CAST(:lease AS interval) FROM {source} ORDER BY kind, digest
    ON CONFLICT (kind, digest, holder) DO UPDATE SET pending_until = excluded.pending_until
    WHERE blob_leases.pending_until < now() + CAST(:stale AS interval)"""
# Rows that another transaction is inserting are in neither part: this statement cannot see them yet.
_LEASE = text(f"""
    WITH {_ASKED}, known AS MATERIALIZED (
        SELECT blobs.kind, blobs.digest, blobs.generation, blobs.state FROM blobs JOIN asked USING (kind, digest)
        ORDER BY blobs.kind, blobs.digest FOR SHARE OF blobs),
    fresh AS (
        INSERT INTO blobs (kind, digest, generation, state, size)
        SELECT kind, digest, {FIRST}, 'pending', size FROM asked
        WHERE NOT EXISTS (SELECT FROM known WHERE (known.kind, known.digest) = (asked.kind, asked.digest))
        ORDER BY kind, digest ON CONFLICT DO NOTHING RETURNING kind, digest, generation, state),
    found AS MATERIALIZED (
        SELECT * FROM known WHERE state = ANY(CAST(:states AS text[])) UNION ALL SELECT * FROM fresh),
    leased AS ({_LEASED.format(source="found")})
    SELECT kind, digest, generation, state FROM found""")  # noqa: S608  # of constants
_LOCK = text(f"""
    WITH {_ASKED} SELECT FROM blobs JOIN asked USING (kind, digest)
    ORDER BY blobs.kind, blobs.digest FOR UPDATE OF blobs""")
_REVIVE = text(f"""
    WITH {_ASKED} UPDATE blobs
    SET generation = blobs.generation + 1, state = 'pending', size = asked.size, changed_at = now()
    FROM asked WHERE (blobs.kind, blobs.digest) = (asked.kind, asked.digest)
    AND blobs.state IN ('deleting', 'deleted')""")  # noqa: S608  # of constants
_HAS_DAMAGE = """
    EXISTS (SELECT FROM blob_damage AS damage WHERE (damage.kind, damage.digest, damage.generation)
        = (blobs.kind, blobs.digest, blobs.generation))"""
# The state stays: only bytes that arrived and are right end damage. The next writers get the same generation.
_BEGIN_NEXT = text(f"""
    WITH {_ASKED} UPDATE blobs SET generation = blobs.generation + 1, changed_at = now()
    FROM asked WHERE (blobs.kind, blobs.digest) = (asked.kind, asked.digest)
    AND blobs.state = 'damaged' AND {_HAS_DAMAGE}""")  # noqa: S608  # of constants
_CONFIRM = text(f"""
    WITH {_ASKED}, held AS MATERIALIZED (
        SELECT blobs.kind, blobs.digest, asked.size, blobs.state,
            blobs.state = 'pending' AND blobs.generation = asked.generation AS ours
        FROM blobs JOIN asked USING (kind, digest) ORDER BY blobs.kind, blobs.digest FOR UPDATE OF blobs),
    kept AS MATERIALIZED (SELECT * FROM held WHERE ours OR state = 'stored'),
    changed AS (
        UPDATE blobs SET state = 'stored', size = held.size, changed_at = now(), checked_at = now() FROM held
        WHERE (blobs.kind, blobs.digest) = (held.kind, held.digest) AND held.ours),
    leased AS ({_LEASED.format(source="kept")})
    SELECT kind, digest, ours FROM kept""")  # noqa: S608  # of constants
# Follows `_CONFIRM`, which locked the rows: what is damaged in the generation of the writer itself is seen here.
_CONFIRM_MENDED = text(f"""
    WITH {_ASKED}, changed AS (
        UPDATE blobs SET state = 'stored', size = asked.size, changed_at = now(), checked_at = now() FROM asked
        WHERE (blobs.kind, blobs.digest, blobs.generation) = (asked.kind, asked.digest, asked.generation)
        AND blobs.state = 'damaged' AND NOT {_HAS_DAMAGE}
        RETURNING blobs.kind, blobs.digest),
    leased AS ({_LEASED.format(source="changed")})
    SELECT kind, digest FROM changed""")  # noqa: S608  # of constants
_RESTORE = text(f"""
    WITH {_ASKED} INSERT INTO blobs (kind, digest, generation, state, size)
    SELECT kind, digest, generation, 'stored', size FROM asked ORDER BY kind, digest
    ON CONFLICT (kind, digest) DO UPDATE
    SET generation = excluded.generation, state = 'stored', size = excluded.size, changed_at = now()
    WHERE blobs.generation < excluded.generation
    OR blobs.generation = excluded.generation AND blobs.state = 'pending'""")  # noqa: S608  # of constants
_KNOWN = text(f"""
    WITH {_ASKED} SELECT kind, digest FROM blobs JOIN asked USING (kind, digest)
    WHERE blobs.generation > asked.generation
    OR blobs.generation = asked.generation AND blobs.state <> 'pending'""")  # noqa: S608  # of constants
_REFER = text(f"""
    WITH {_ASKED}, held AS MATERIALIZED (
        SELECT blobs.kind, blobs.digest, blobs.state FROM blobs JOIN asked USING (kind, digest)
        ORDER BY blobs.kind, blobs.digest FOR SHARE OF blobs),
    added AS (
        INSERT INTO blob_references (kind, digest, owner)
        SELECT kind, digest, :owner FROM held WHERE state = 'stored' ORDER BY kind, digest ON CONFLICT DO NOTHING)
    SELECT kind, digest FROM held WHERE state = 'stored'""")  # noqa: S608  # of constants
# The collector's grace begins now, also for blobs that were stored long ago.
_RELEASE = text(f"""
    WITH {_ASKED}, held AS MATERIALIZED (
        SELECT blobs.kind, blobs.digest FROM blobs JOIN blob_references AS given USING (kind, digest)
        WHERE given.owner = :owner AND NOT EXISTS (
            SELECT FROM asked WHERE (asked.kind, asked.digest) = (given.kind, given.digest))
        ORDER BY blobs.kind, blobs.digest FOR UPDATE OF blobs),
    touched AS (
        UPDATE blobs SET changed_at = now() FROM held
        WHERE (blobs.kind, blobs.digest) = (held.kind, held.digest) AND blobs.state IN ('pending', 'stored'))
    DELETE FROM blob_references WHERE owner = :owner
    AND NOT EXISTS (SELECT FROM asked
        WHERE (asked.kind, asked.digest) = (blob_references.kind, blob_references.digest))""")  # noqa: S608  # of constants
_DROP = text("DELETE FROM blob_leases WHERE holder = :holder")
# Skips locked rows, so that it never waits for a holder that renews or drops its lease.
_DROP_EXPIRED = text("""
    DELETE FROM blob_leases WHERE ctid IN (
        SELECT ctid FROM blob_leases WHERE pending_until < now() LIMIT :most FOR UPDATE SKIP LOCKED)""")


@dataclass(frozen=True, slots=True)
class LeasedBlob:
    """A blob that is not collected while the lease lasts.

    Attributes:
        key: Its key with the generation to read or write.
    """

    key: StorageKey
    stored: bool


@dataclass(frozen=True, slots=True)
class ConfirmedBlobs:
    """Result of a confirmation.

    Attributes:
        changed: Blobs that were not stored before, by the keys given.
        gone: Keys, without generations, of blobs that must be written again: their lease expired and they were
            collected.
    """

    changed: list[StorageKey]
    gone: set[StorageKey]


class BlobStore:
    """Rows, leases and references of blobs."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def lease(self, sizes: Mapping[StorageKey, int], holder: str) -> dict[StorageKey, LeasedBlob]:
        """Lease blobs that are stored, being written, or new.

        Args:
            sizes: Sizes in bytes by key; used for new rows, until they are confirmed.
            holder: The writer or future referrer.

        Returns:
            The leases by key. Missing blobs were deleted, are being deleted, are damaged, or are being added by
            another transaction: see `revive`.
        """
        return self._lease(sizes, holder, ["pending", "stored"])

    def _lease(
        self, sizes: Mapping[StorageKey, int], holder: str, states: list[str]
    ) -> dict[StorageKey, LeasedBlob]:
        rows = self._session.execute(_LEASE, _lease(sizes, holder) | {"states": states})
        leased = [
            (_key(kind, digest), generation, state == "stored") for kind, digest, generation, state in rows
        ]
        return {key: LeasedBlob(key.at(generation), stored) for key, generation, stored in leased}

    def revive(self, sizes: Mapping[StorageKey, int], holder: str) -> dict[StorageKey, LeasedBlob]:
        """Lease blobs that `lease` did not; deleted and damaged ones begin their next generation.

        Damaged ones stay damaged until `confirm`.

        Returns:
            The leases of all of them, by key.
        """
        asked = _query_arguments(sizes)
        self._session.execute(_LOCK, asked)
        self._session.execute(_REVIVE, asked)
        self._session.execute(_BEGIN_NEXT, asked)
        return self._lease(sizes, holder, ["pending", "stored", "damaged"])

    def confirm(self, sizes: Mapping[StorageKey, int], holder: str) -> ConfirmedBlobs:
        """Mark blobs as stored, and renew their leases."""
        rows = self._session.execute(_CONFIRM, _lease(sizes, holder))
        kept = {_key(kind, digest): ours for kind, digest, ours in rows}
        if rest := {key: size for key, size in sizes.items() if StorageKey(key.kind, key.digest) not in kept}:
            mended = self._session.execute(_CONFIRM_MENDED, _lease(rest, holder))
            kept |= {_key(kind, digest): True for kind, digest in mended}
        plain = {key: StorageKey(key.kind, key.digest) for key in sizes}
        return ConfirmedBlobs(
            changed=[key for key, name in plain.items() if kept.get(name)],
            gone={name for name in plain.values() if name not in kept},
        )

    def refer(self, keys: Mapping[StorageKey, int], owner: str) -> None:
        """Add references of an owner to blobs, which must be stored.

        Args:
            owner: `version:<id>`, `documentation:<version>`, `artifact:<digest>` or `log:<build>:<attempt>`.

        Raises:
            BlobGone: Some are not stored, or are being deleted.
        """
        if not keys:
            return
        missing = keys.keys() - self.refer_stored(keys, owner)
        if missing:
            raise BlobGone(
                f"{len(missing)} of {len(keys)} blobs are not stored or are being deleted",
                where=min(missing).digest,
                hint="Store them again; the next attempt of a build does so automatically.",
                context={"digests": sorted(key.digest for key in missing)[:20]},
            )

    def refer_stored(self, keys: Iterable[StorageKey], owner: str) -> set[StorageKey]:
        """Add references of an owner to those of the blobs that are stored.

        Returns:
            The stored blobs.
        """
        asked = _query_arguments(dict.fromkeys(keys, 0))
        if not asked["kinds"]:
            return set()
        return {
            _key(kind, digest) for kind, digest in self._session.execute(_REFER, asked | {"owner": owner})
        }

    def release(self, owner: str, *, kept: Iterable[StorageKey]) -> None:
        """Remove an owner's references to all other blobs than these; the collector's grace for them begins."""
        asked = _query_arguments(dict.fromkeys(kept, 0))
        self._session.execute(_RELEASE, asked | {"owner": owner})

    def unknown(self, keys: Iterable[StorageKey]) -> set[StorageKey]:
        """Return the objects, by keys with generations, that `restore` would add or update."""
        sizes = dict.fromkeys(keys, 0)
        known = {
            _key(kind, digest) for kind, digest in self._session.execute(_KNOWN, _query_arguments(sizes))
        }
        return {key for key in sizes if StorageKey(key.kind, key.digest) not in known}

    def restore(self, sizes: Mapping[StorageKey, int]) -> None:
        """Add rows of stored objects; rows with a later generation are left unchanged."""
        if sizes:
            self._session.execute(_RESTORE, _query_arguments(sizes))

    def drop(self, holder: str) -> None:
        """Remove all leases of a holder."""
        self._session.execute(_DROP, {"holder": holder})

    def drop_expired(self) -> None:
        """Remove expired leases, in batches."""
        self._session.execute(_DROP_EXPIRED, {"most": _DROP_BATCH})


def _key(kind: str, digest: str) -> StorageKey:
    return StorageKey(cast("Kind", kind), Digest(digest))


def _query_arguments(sizes: Mapping[StorageKey, int]) -> dict[str, Any]:
    return {
        "kinds": [key.kind for key in sizes],
        "digests": [key.digest for key in sizes],
        "generations": [key.generation or FIRST for key in sizes],
        "sizes": list(sizes.values()),
    }


def _lease(sizes: Mapping[StorageKey, int], holder: str) -> dict[str, Any]:
    return _query_arguments(sizes) | {"holder": holder, "lease": LEASE, "stale": _RENEW_BELOW}
