"""Which blobs only some owners need, and which others need too."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sqlalchemy import text

from pt2hub.domain.digests import Digest
from pt2hub.domain.storage import Kind
from pt2hub.server.db.reading import readable

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import timedelta

    from sqlalchemy.orm import Session

    from pt2hub.server.db.stores.retention.dependents import Doomed

_MAX_NAMED = 1000
# `names` are the versions that owners belong to. Golden values and weights are named by their versions.
_BLOBS = """
    WITH own AS MATERIALIZED ({own}),
    held AS (
        SELECT own.kind, own.digest, held.owner, held.owner = ANY(:owners) AS goes
        FROM own JOIN blob_references AS held USING (kind, digest)),
    named AS (
        SELECT held.kind, held.digest,
            array_agg(DISTINCT coalesce(models.name || '@' || versions.number, '')) FILTER (WHERE goes) AS owners,
            array_agg(DISTINCT coalesce(models.name || '@' || versions.number, '')) FILTER (WHERE NOT goes) AS names
        FROM held
        LEFT JOIN artifacts ON artifacts.digest = CASE split_part(owner, ':', 1)
            WHEN 'artifact' THEN substr(owner, 10) END
        LEFT JOIN builds ON builds.id = CASE split_part(owner, ':', 1)
            WHEN 'log' THEN split_part(owner, ':', 2) ELSE artifacts.build_id END
        LEFT JOIN versions ON versions.id = CASE split_part(owner, ':', 1)
            WHEN 'version' THEN CAST(split_part(owner, ':', 2) AS bigint)
            WHEN 'documentation' THEN CAST(split_part(owner, ':', 2) AS bigint) ELSE builds.version_id END
        LEFT JOIN models ON models.id = versions.model_id
        GROUP BY 1, 2)
    SELECT own.kind, own.digest, coalesce(blobs.size, 0), named.owners, named.names,
        EXISTS (SELECT FROM blob_leases AS l
            WHERE (l.kind, l.digest) = (own.kind, own.digest) AND l.pending_until > now()) AS leased,
        CASE WHEN own.kind = 'manifests' THEN 'manifest'
            WHEN EXISTS (SELECT FROM versions
                WHERE id = ANY(:versions) AND weights = own.digest) THEN 'weights'
            WHEN EXISTS (SELECT FROM artifacts
                WHERE artifacts.digest = ANY(:artifacts) AND weights = own.digest) THEN 'weights'
            WHEN EXISTS (SELECT FROM versions
                WHERE id = ANY(:versions) AND golden = own.digest) THEN 'golden values'
            WHEN EXISTS (SELECT FROM artifacts
                WHERE artifacts.digest = ANY(:artifacts) AND code = own.digest) THEN 'code'
            ELSE 'file' END AS what
    FROM own LEFT JOIN blobs USING (kind, digest) LEFT JOIN named USING (kind, digest)
    ORDER BY own.kind, own.digest"""
_BLOBS_OF_OWNERS = text(
    _BLOBS.format(own="SELECT DISTINCT kind, digest FROM blob_references WHERE owner = ANY(:owners)")
)
_SINGLE = text(
    _BLOBS.format(
        own="SELECT kind, digest FROM blobs WHERE kind = 'blobs' AND digest = :digest AND state = 'stored'"
    )
    .replace(":owners", "CAST('{}' AS text[])")
    .replace(":versions", "CAST('{}' AS bigint[])")
    .replace(":artifacts", "CAST('{}' AS text[])")
)
_BLOBS_NAMED = text(
    _BLOBS.format(
        own="""SELECT kind, digest FROM blobs
        JOIN unnest(CAST(:kinds AS text[]), CAST(:digests AS text[])) AS asked (kind, digest) USING (kind, digest)
        WHERE state <> 'deleted'"""
    )
)
_UNNEEDED_MANIFESTS = text("""
    SELECT digest FROM blobs WHERE kind = 'manifests' AND state = 'stored'
    AND NOT EXISTS (SELECT FROM blob_references AS held
        WHERE (held.kind, held.digest) = (blobs.kind, blobs.digest))
    AND NOT EXISTS (SELECT FROM tombstones WHERE artifacts @> ARRAY[blobs.digest]) ORDER BY digest""")
_CODE = text("""
    SELECT code FROM artifacts WHERE digest = ANY(:artifacts) AND weights_bytes > :least""")
_LOCK = text("""
    SELECT FROM blobs JOIN unnest(CAST(:kinds AS text[]), CAST(:digests AS text[])) AS asked (kind, digest)
        USING (kind, digest)
    ORDER BY blobs.kind, blobs.digest FOR UPDATE OF blobs""")
# Follows `_LOCK`, since a statement that waits for a lock still sees what was there before.
_NEEDED = text("""
    SELECT DISTINCT held.digest FROM blob_references AS held
    JOIN unnest(CAST(:kinds AS text[]), CAST(:digests AS text[])) AS asked (kind, digest) USING (kind, digest)
    WHERE NOT held.owner = ANY(:owners) ORDER BY held.digest""")
_LEFT = text("""
    SELECT kind, digest, generation, blobs.state FROM refused_digests JOIN blobs USING (kind, digest)
    WHERE blobs.state = 'deleting'
    OR blobs.state = 'deleted' AND blobs.changed_at > now() - CAST(:readable AS interval)
    ORDER BY kind, digest LIMIT :most""")
_DISCARD = text("""
    UPDATE blobs SET state = 'deleting', changed_at = to_timestamp(0)
    WHERE (kind, digest) IN (
        SELECT kind, digest FROM unnest(CAST(:kinds AS text[]), CAST(:digests AS text[])) AS asked (kind, digest))
    AND state <> 'deleted' RETURNING kind, digest, generation""")


@dataclass(frozen=True, slots=True)
class OwnedBlob:
    """A blob that owners refer to.

    Attributes:
        what: `weights`, `golden values`, `code`, `manifest` or `file`.
        owners: Versions among those that go which it belongs to.
        needed_by: Versions that need it too, those that may be read; empty where nothing else does.
        others: How many there are.
        leased: Whether somebody is about to refer to it.
    """

    kind: Kind
    digest: str
    what: str
    size: int
    owners: tuple[str, ...]
    needed_by: tuple[str, ...]
    others: int
    leased: bool

    @property
    def exclusive(self) -> bool:
        """Whether nothing else refers to it."""
        return not self.others


class SharedBlobStore:
    """Blobs by their owners."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def of(self, *doomed: Doomed) -> list[OwnedBlob]:
        """Return the blobs that versions or builds refer to."""
        return [_owned(row) for row in self._session.execute(_BLOBS_OF_OWNERS, _asked(doomed))]

    def exclusive_of(self, doomed: Sequence[Doomed], blobs: Sequence[tuple[Kind, str]]) -> list[OwnedBlob]:
        """Return those of some blobs to which nothing but versions or builds refers, if anything does."""
        given = {"kinds": [kind for kind, _ in blobs], "digests": [digest for _, digest in blobs]}
        found = [_owned(row) for row in self._session.execute(_BLOBS_NAMED, _asked(doomed) | given)]
        return [blob for blob in found if blob.exclusive]

    def unneeded_manifests(self) -> list[Digest]:
        """Return the stored manifests to which nothing refers, which the collector has not taken yet.

        Those of deleted artifacts are left out, most of all after a deletion of many versions.
        """
        return [Digest(digest) for digest in self._session.scalars(_UNNEEDED_MANIFESTS)]

    def single(self, digest: str) -> OwnedBlob | None:
        """Return a stored blob, with everything that refers to it among the others; None where it is not stored."""
        row = self._session.execute(_SINGLE, {"digest": digest}).first()
        return _owned(row) if row else None

    def code_without_weights(self, artifacts: Sequence[str], *, least: int) -> set[str]:
        """Return the code layers of artifacts whose weights are outside of the code.

        Args:
            least: Size in bytes of weights that are there at all.
        """
        return set(self._session.scalars(_CODE, {"artifacts": list(artifacts), "least": least}))

    def lock_exclusive(self, doomed: Sequence[Doomed], blobs: Sequence[tuple[Kind, str]]) -> list[str]:
        """Lock blobs, and return the digests of those to which something else refers by now.

        Nothing can begin to refer to them until the transaction ends.
        """
        given = {"kinds": [kind for kind, _ in blobs], "digests": [digest for _, digest in blobs]}
        self._session.execute(_LOCK, given)
        return list(self._session.scalars(_NEEDED, given | {"owners": _asked(doomed)["owners"]}))

    def left(self, readable: timedelta, limit: int) -> list[tuple[Kind, str, int, str]]:
        """Return kind, digest, generation and state of refused blobs whose objects may be in storage and readable.

        Args:
            readable: How long presigned URLs are valid: `deleted` ones are older or listed.
        """
        rows = self._session.execute(_LEFT, {"readable": readable, "most": limit})
        return [(kind, digest, generation, state) for kind, digest, generation, state in rows]

    def discard(self, blobs: Sequence[tuple[Kind, str]]) -> list[tuple[Kind, str, int]]:
        """Mark blobs for removal whatever their age and leases; return kind, digest and generation of each."""
        if not blobs:
            return []
        given = {"kinds": [kind for kind, _ in blobs], "digests": [digest for _, digest in blobs]}
        rows = self._session.execute(_DISCARD, given)
        return [(kind, digest, generation) for kind, digest, generation in rows]


def _asked(doomed: Sequence[Doomed]) -> dict[str, Any]:
    return {
        "owners": [owner for each in doomed for owner in each.owners],
        "versions": [version for each in doomed for version in each.versions],
        "artifacts": [artifact for each in doomed for artifact in each.artifacts],
    }


def _owned(row: Sequence[Any]) -> OwnedBlob:
    kind, digest, size, owners, names, leased, what = row
    limit, given = readable(), list(names or ())
    shown = [name for name in _sorted(given) if limit.covers(name.partition("@")[0])][:_MAX_NAMED]
    return OwnedBlob(kind, digest, what, size, _sorted(owners or ()), tuple(shown), len(given), leased)


def _sorted(names: Sequence[str]) -> tuple[str, ...]:
    """Return names of versions in the order of models and numbers, without the empty name of other owners."""
    versions = (name.rpartition("@") for name in names if name)
    return tuple(
        f"{model}@{number}" for model, _, number in sorted(versions, key=lambda it: (it[0], int(it[2])))
    )
