"""What the database says about the storage, in the storage's order, and what contradicts itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import text

from pt2hub.domain.digests import Digest
from pt2hub.domain.storage_check import FindingKind
from pt2hub.server.blobs.keys import StorageKey
from pt2hub.server.db.stores.blobs.damage import BlobRow

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

    from pt2hub.domain.storage import Kind

_PAGE = text("""
    SELECT digest, generation, state, size FROM blobs
    WHERE kind = :kind AND digest > :after ORDER BY digest LIMIT :limit""")
_NO_LEASE = """
    NOT EXISTS (SELECT FROM blob_leases AS own
        WHERE (own.kind, own.digest) = (blobs.kind, blobs.digest) AND own.pending_until > now())"""
# Each returns a key to go on after, what is wrong, and a detail. An hour: an upload may be under way, a server stopped.
# A manifest to which nothing refers was deleted or replaced, and waits for the collector.
_CONTRADICTIONS = {
    FindingKind.UNSTORED_REFERENCE: """
        SELECT needed.digest || ' ' || needed.owner, needed.digest, needed.owner || ' refers to it, but it is '
            || coalesce(blobs.state, 'unknown')
        FROM blob_references AS needed LEFT JOIN blobs USING (kind, digest)
        WHERE blobs.state IS DISTINCT FROM 'stored' AND blobs.state IS DISTINCT FROM 'damaged'
        AND needed.digest || ' ' || needed.owner > :after""",
    FindingKind.MISSING_MANIFEST: """
        SELECT artifacts.digest, artifacts.digest, 'the artifact has no manifest'
        FROM artifacts LEFT JOIN blobs ON blobs.kind = 'manifests' AND blobs.digest = artifacts.digest
        WHERE blobs.digest IS NULL AND artifacts.digest > :after""",
    FindingKind.UNINDEXED_MANIFEST: f"""
        SELECT blobs.digest, blobs.digest, 'it is referred to, but no artifact, referrer or documentation has it'
        FROM blobs
        WHERE blobs.kind = 'manifests' AND blobs.state = 'stored' AND {_NO_LEASE}
        AND NOT EXISTS (SELECT FROM artifacts WHERE artifacts.digest = blobs.digest)
        AND NOT EXISTS (SELECT FROM referrers WHERE referrers.digest = blobs.digest)
        AND NOT EXISTS (SELECT FROM version_documentation WHERE manifest = blobs.digest)
        AND EXISTS (SELECT FROM blob_references AS held
            WHERE (held.kind, held.digest) = (blobs.kind, blobs.digest))
        AND blobs.digest > :after""",  # noqa: S608  # of constants
    FindingKind.EXPIRED_LEASE: """
        SELECT digest || ' ' || holder, digest, 'the lease of ' || holder || ' expired over an hour ago'
        FROM blob_leases WHERE pending_until < now() - interval '1 hour' AND digest || ' ' || holder > :after""",
    FindingKind.ORPHANED_LEASE: """
        SELECT own.digest || ' ' || own.holder, own.digest, own.holder || ' leases a blob that has no row'
        FROM blob_leases AS own LEFT JOIN blobs USING (kind, digest)
        WHERE blobs.digest IS NULL AND own.digest || ' ' || own.holder > :after""",
}
_STATEMENTS = {
    kind: text(f"SELECT * FROM ({statement}) AS found (key, what, detail) ORDER BY key LIMIT :limit")  # noqa: S608  # of constants
    for kind, statement in _CONTRADICTIONS.items()
}
CONTRADICTIONS = tuple(_CONTRADICTIONS)


class StorageCheckStore:
    """Rows for a comparison with the storage."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def page(self, kind: Kind, after: str, limit: int) -> list[BlobRow]:
        """Return rows of blobs or manifests in the order of their digests."""
        rows = self._session.execute(_PAGE, {"kind": kind, "after": after, "limit": limit})
        return [
            BlobRow(StorageKey(kind, Digest(digest), generation), state, size)
            for digest, generation, state, size in rows
        ]

    def contradictions(self, kind: FindingKind, after: str, limit: int) -> list[tuple[str, str, str]]:
        """Return what contradicts itself in the database: a key to go on after, the digest, and a detail."""
        rows = self._session.execute(_STATEMENTS[kind], {"after": after, "limit": limit})
        return [(key, what, detail) for key, what, detail in rows]
