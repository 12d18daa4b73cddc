"""Damage of blobs: what was found, which blobs to check next, and what is touched by it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from sqlalchemy import text

from pt2hub.domain.damage import Damage, DamageProblem
from pt2hub.domain.digests import Digest
from pt2hub.domain.storage import FIRST, Kind
from pt2hub.server.blobs.keys import StorageKey
from pt2hub.server.db.engine import Prepared
from pt2hub.server.db.stores.values import stamp
from pt2hub.wire.artifacts import DamagedPart

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from datetime import timedelta

    from sqlalchemy import TextClause
    from sqlalchemy.orm import Session

    from pt2hub.server.db.engine import Reader

_ROW = text("SELECT generation, state, size FROM blobs WHERE kind = :kind AND digest = :digest")
_LOCKED_ROW = text(f"{_ROW.text} FOR UPDATE")
# A damaged row whose generation has no damage names the one that is being written.
_IS_WRITTEN = """
    (blobs.state IN ('stored', 'pending') OR blobs.state = 'damaged' AND NOT EXISTS (
        SELECT FROM blob_damage AS damage WHERE (damage.kind, damage.digest, damage.generation)
            = (blobs.kind, blobs.digest, blobs.generation)))"""
_WRITTEN_ROW = text(f"""
    SELECT generation, CASE state WHEN 'damaged' THEN 'pending' ELSE state END, size FROM blobs
    WHERE kind = :kind AND digest = :digest AND {_IS_WRITTEN}""")  # noqa: S608  # of constants
_FIND = Prepared.of(_ROW)
# A check in the future, of a clock that was set back since, says nothing. Each part is a range of the index.
_DUE = text("""
    SELECT kind, digest, generation, size FROM (
    (SELECT kind, digest, generation, size, checked_at FROM blobs
        WHERE state = 'stored' AND checked_at < now() - CAST(:age AS interval)
        ORDER BY checked_at, kind, digest LIMIT :limit)
    UNION ALL
    (SELECT kind, digest, generation, size, checked_at FROM blobs
        WHERE state = 'stored' AND checked_at > now() + interval '1 hour' ORDER BY checked_at, kind, digest LIMIT :limit)) AS due
    ORDER BY checked_at, kind, digest LIMIT :limit""")
_SUM_DUE = text("""
    SELECT count(*), coalesce(sum(size), 0) FROM blobs
    WHERE state = 'stored' AND (checked_at < now() - CAST(:age AS interval) OR checked_at > now() + interval '1 hour')""")
# The size too: that of rows that a reindex made is the length of whatever lay in the storage then.
_CHECKED = text("""
    UPDATE blobs SET checked_at = now(), size = asked.size
    FROM unnest(CAST(:kinds AS text[]), CAST(:digests AS text[]), CAST(:generations AS integer[]),
        CAST(:sizes AS bigint[])) AS asked (kind, digest, generation, size)
    WHERE (blobs.kind, blobs.digest, blobs.generation) = (asked.kind, asked.digest, asked.generation)
    AND blobs.state = 'stored'""")
MAX_REQUESTED = 20
"""Blobs that the scrub checks before all others; fewer than it takes at a time, so that the others have their turn too."""
_REQUEST = text(f"""
    UPDATE blobs SET checked_at = '-infinity' WHERE kind = :kind AND digest = :digest AND state = 'stored'
    AND checked_at <= now() - CAST(:age AS interval)
    AND (SELECT count(*) FROM blobs WHERE state = 'stored' AND checked_at = '-infinity') < {MAX_REQUESTED}""")  # noqa: S608  # of constants
# What is being written too: an object that lies there already is never overwritten, so its writer must take the next
# generation.
_MARK = text(f"""
    UPDATE blobs SET state = 'damaged', changed_at = now()
    WHERE kind = :kind AND digest = :digest AND generation = :generation AND {_IS_WRITTEN}
    RETURNING state""")  # noqa: S608  # of constants
_NOTE = text("""
    INSERT INTO blob_damage
        (kind, digest, generation, problem, expected_bytes, found_bytes, found_digest, found_by, quarantined)
    VALUES (:kind, :digest, :generation, :problem, :expected_bytes, :found_bytes, :found_digest, :found_by,
        :problem IN ('missing', 'unreadable'))
    ON CONFLICT DO NOTHING""")
# Of files that a rebuild finds named and not stored. They have no generation yet; a writer takes the one after the first.
_ADD_MISSING = text(f"""
    WITH asked AS MATERIALIZED (
        SELECT kind, digest, size FROM unnest(CAST(:kinds AS text[]), CAST(:digests AS text[]), CAST(:sizes AS bigint[]))
            AS asked (kind, digest, size) ORDER BY kind, digest),
    added AS (
        INSERT INTO blobs (kind, digest, generation, state, size)
        SELECT kind, digest, {FIRST}, 'damaged', size FROM asked ORDER BY kind, digest
        ON CONFLICT DO NOTHING RETURNING kind, digest, size)
    INSERT INTO blob_damage (kind, digest, generation, problem, expected_bytes, found_by, quarantined)
    SELECT kind, digest, {FIRST}, 'missing', size, :found_by, true FROM added ON CONFLICT DO NOTHING""")  # noqa: S608  # of constants
_REFER_DAMAGED = text("""
    INSERT INTO blob_references (kind, digest, owner)
    SELECT kind, digest, :owner FROM blobs JOIN unnest(CAST(:kinds AS text[]), CAST(:digests AS text[]))
        AS asked (kind, digest) USING (kind, digest)
    WHERE blobs.state = 'damaged' ORDER BY kind, digest ON CONFLICT DO NOTHING""")
_RESTORE = text("""
    WITH restored AS (
        UPDATE blobs SET state = 'stored', size = :size, changed_at = now(), checked_at = now()
        WHERE kind = :kind AND digest = :digest AND generation = :generation AND state = 'damaged'
        RETURNING kind, digest, generation),
    gone AS (
        DELETE FROM blob_damage USING restored WHERE (blob_damage.kind, blob_damage.digest, blob_damage.generation)
            = (restored.kind, restored.digest, restored.generation))
    SELECT FROM restored""")
_QUARANTINED = text("""
    UPDATE blob_damage SET quarantined = true
    WHERE kind = :kind AND digest = :digest AND generation = :generation""")
_LOOSE = text("""
    SELECT kind, digest, generation FROM blob_damage WHERE NOT quarantined
    ORDER BY kind, digest LIMIT :limit""")
# The latest damage: the row may name a later generation, which is being written, and its writer may fail.
_IS_LATEST = """
    NOT EXISTS (SELECT FROM blob_damage AS later WHERE (later.kind, later.digest) = (damage.kind, damage.digest)
        AND later.generation > damage.generation {among})"""
_CURRENT = """
    SELECT damage.* FROM blobs JOIN blob_damage AS damage USING (kind, digest)
    WHERE blobs.state = 'damaged' AND {latest} {more}
    ORDER BY kind, digest LIMIT :limit"""
_LATEST = _IS_LATEST.format(among="")
_DAMAGED = text(_CURRENT.format(latest=_LATEST, more="AND (kind, digest) > (:kind, :digest)"))
# An earlier generation may come back although a later one was written wrong.
_AWAY = text(
    _CURRENT.format(
        latest=_IS_LATEST.format(among="AND later.problem IN ('missing', 'unreadable')"),
        more="AND damage.problem IN ('missing', 'unreadable') AND (kind, digest) > (:kind, :digest)",
    )
)
_DAMAGED_AMONG = text(_CURRENT.format(latest=_LATEST, more="AND digest = ANY(:digests)"))
_OWNERS = text("""
    SELECT needed.owner, models.name, versions.number, builds.target
    FROM blob_references AS needed LEFT JOIN artifacts ON needed.owner = 'artifact:' || artifacts.digest
    LEFT JOIN builds ON builds.id = artifacts.build_id
    LEFT JOIN versions ON versions.id = coalesce(builds.version_id,
        CASE split_part(needed.owner, ':', 1) WHEN 'version' THEN CAST(split_part(needed.owner, ':', 2) AS bigint)
            WHEN 'documentation' THEN CAST(split_part(needed.owner, ':', 2) AS bigint) END)
    LEFT JOIN models ON models.id = versions.model_id
    WHERE needed.kind = :kind AND needed.digest = :digest ORDER BY needed.owner LIMIT :limit""")
_UNSTORED = text("""
    SELECT DISTINCT needed.kind, needed.digest FROM blob_references AS needed LEFT JOIN blobs USING (kind, digest)
    WHERE needed.digest = ANY(:digests) AND blobs.state IS DISTINCT FROM 'stored'""")
_HAVE_ROWS = text("""
    SELECT kind, digest FROM blobs JOIN unnest(CAST(:kinds AS text[]), CAST(:digests AS text[])) AS asked (kind, digest)
    USING (kind, digest)""")
_SIZES = text("""
    SELECT kind, digest, blobs.generation FROM blobs JOIN unnest(CAST(:kinds AS text[]), CAST(:digests AS text[]),
        CAST(:sizes AS bigint[])) AS asked (kind, digest, size) USING (kind, digest)
    WHERE blobs.state = 'stored' AND blobs.size <> asked.size ORDER BY kind, digest""")
_PARTS = text(f"""
    SELECT artifacts.digest, CASE damage.digest WHEN artifacts.digest THEN 'manifest' WHEN artifacts.config
        THEN 'config' WHEN artifacts.code THEN 'code' WHEN artifacts.weights THEN 'weights'
        ELSE CASE WHEN EXISTS (
            SELECT 1 FROM builds JOIN versions ON versions.id = builds.version_id,
                jsonb_array_elements(coalesce(versions.pins -> 'files', '[]')) AS file
            WHERE builds.id = artifacts.build_id AND file ->> 'digest' = damage.digest
        ) THEN 'file' ELSE 'referrer' END END,
        damage.digest, damage.problem, damage.found_at
    FROM artifacts JOIN blob_references AS needed ON needed.owner = 'artifact:' || artifacts.digest
    JOIN blobs ON (blobs.kind, blobs.digest) = (needed.kind, needed.digest) AND blobs.state = 'damaged'
    JOIN blob_damage AS damage ON (damage.kind, damage.digest) = (blobs.kind, blobs.digest) AND {_LATEST}
    WHERE artifacts.digest = ANY(:artifacts) ORDER BY artifacts.digest, damage.kind DESC, damage.digest""")  # noqa: S608  # of constants

# They begin with the damage, of which there is little.
_DAMAGED_BUILDS = """
    FROM blob_damage AS damage JOIN blobs USING (kind, digest)
    JOIN blob_references AS needed USING (kind, digest)
    JOIN artifacts ON starts_with(needed.owner, 'artifact:') AND artifacts.digest = substr(needed.owner, 10)
    JOIN builds ON builds.id = artifacts.build_id"""
_TARGETS_OF_VERSIONS = text(f"""
    SELECT builds.version_id, builds.target {_DAMAGED_BUILDS}
    WHERE blobs.state = 'damaged' AND builds.version_id = ANY(:versions)
    GROUP BY builds.version_id, builds.target ORDER BY min(builds.position), builds.target""")
_TARGETS_OF_ALIASES = text(f"""
    SELECT aliases.model_id, aliases.name, builds.target {_DAMAGED_BUILDS}
    JOIN aliases ON aliases.version_id = builds.version_id
    WHERE blobs.state = 'damaged' AND aliases.model_id = ANY(:models)
    GROUP BY aliases.model_id, aliases.name, builds.target
    ORDER BY aliases.name, min(builds.position), builds.target""")


@dataclass(frozen=True, slots=True)
class BlobRow:
    """What the database says about a blob.

    Attributes:
        key: Its key with its generation.
        size: Size in bytes, of a pending blob as announced.
    """

    key: StorageKey
    state: str
    size: int


@dataclass(frozen=True, slots=True)
class BlobOwner:
    """What refers to a blob.

    Attributes:
        name: `version:<id>`, `documentation:<version>`, `artifact:<digest>` or `log:<build>:<attempt>`.
        model: Name of its model; None for a log.
        number: Number of its version; None for a log.
        target: Target of the artifact; None for others.
    """

    name: str
    model: str | None
    number: int | None
    target: str | None

    def __str__(self) -> str:
        if self.model is None:
            return self.name
        return f"{self.model}@{self.number}" + (f" for {self.target}" if self.target else "")


class DamageStore:
    """Checks and damage of blobs."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def row(self, key: StorageKey) -> BlobRow | None:
        """Return the row of a blob."""
        return self._find(_ROW, key)

    def lock_row(self, key: StorageKey) -> BlobRow | None:
        """Return the row of a blob, locked until the transaction ends."""
        return self._find(_LOCKED_ROW, key)

    def written_row(self, key: StorageKey) -> BlobRow | None:
        """Return the row of a blob whose generation is stored, or `pending`: being written, also instead of damage."""
        return self._find(_WRITTEN_ROW, key)

    def _find(self, statement: TextClause, key: StorageKey) -> BlobRow | None:
        found = self._session.execute(statement, {"kind": key.kind, "digest": key.digest}).first()
        return BlobRow(key.at(found[0]), found[1], found[2]) if found else None

    def list_due(self, age: timedelta, limit: int) -> list[BlobRow]:
        """Return stored blobs that were not checked for a time, those first that wait longest."""
        rows = self._session.execute(_DUE, {"age": age, "limit": limit})
        return [
            BlobRow(StorageKey(cast("Kind", kind), Digest(digest), generation), "stored", size)
            for kind, digest, generation, size in rows
        ]

    def sum_due(self, age: timedelta) -> tuple[int, int]:
        """Return number and bytes of the blobs that were not checked for a time."""
        count, size = self._session.execute(_SUM_DUE, {"age": age}).one()
        return count, int(size)

    def set_checked(self, intact: Iterable[BlobRow]) -> None:
        """Note that blobs are intact now, unless they changed meanwhile."""
        rows = list(intact)
        asked = {
            "kinds": [row.key.kind for row in rows],
            "digests": [row.key.digest for row in rows],
            "generations": [row.key.generation or FIRST for row in rows],
            "sizes": [row.size for row in rows],
        }
        if rows:
            self._session.execute(_CHECKED, asked)

    def request_check(self, key: StorageKey, *, age: timedelta) -> None:
        """Let the scrub check a blob before all others, unless it was checked within a time or enough of them wait."""
        self._session.execute(_REQUEST, {"kind": key.kind, "digest": key.digest, "age": age})

    def add(self, damage: Damage) -> bool:
        """Mark a blob as damaged, unless it was deleted or written anew meanwhile; return whether it was."""
        asked = _arguments(damage)
        if self._session.execute(_MARK, asked).first() is None:
            return False
        self._session.execute(_NOTE, asked)
        return True

    def restore(self, key: StorageKey, size: int) -> bool:
        """Mark a blob as stored that turned out to be intact; return whether it was damaged in this generation."""
        asked = {"kind": key.kind, "digest": key.digest, "generation": key.generation, "size": size}
        return self._session.execute(_RESTORE, asked).first() is not None

    def list_loose(self, limit: int) -> list[StorageKey]:
        """Return keys of damaged objects that are still in readers' way."""
        rows = self._session.execute(_LOOSE, {"limit": limit})
        return [StorageKey(cast("Kind", kind), Digest(digest), number) for kind, digest, number in rows]

    def set_quarantined(self, key: StorageKey) -> None:
        """Note that a damaged object was moved away."""
        asked = {"kind": key.kind, "digest": key.digest, "generation": key.generation}
        self._session.execute(_QUARANTINED, asked)

    def list_damaged(self, limit: int, after: tuple[str, str] = ("", "")) -> list[Damage]:
        """Return blobs that are damaged now, in the order of kind and digest."""
        asked = {"kind": after[0], "digest": after[1], "limit": limit}
        return [_damage(row) for row in self._session.execute(_DAMAGED, asked).mappings()]

    def list_away(self, limit: int, after: tuple[str, str] = ("", "")) -> list[Damage]:
        """Return blobs that are missing or unreadable, which may come back by themselves."""
        asked = {"kind": after[0], "digest": after[1], "limit": limit}
        return [_damage(row) for row in self._session.execute(_AWAY, asked).mappings()]

    def among(self, digests: Sequence[str]) -> list[Damage]:
        """Return the damage of those of some blobs and manifests that are damaged now."""
        asked = {"digests": list(digests), "limit": 2 * len(digests)}
        return [_damage(row) for row in self._session.execute(_DAMAGED_AMONG, asked).mappings()]

    def parts(self, artifacts: Sequence[str]) -> list[tuple[str, DamagedPart]]:
        """Return the damaged parts of artifacts, each with its artifact's digest."""
        rows = self._session.execute(_PARTS, {"artifacts": list(artifacts)})
        return [
            (artifact, DamagedPart(part, Digest(digest), problem, stamp(found_at)))
            for artifact, part, digest, problem, found_at in rows
        ]

    def targets_of_versions(self, versions: Sequence[int]) -> dict[int, tuple[str, ...]]:
        """Return the targets whose artifacts are damaged, by the version's id."""
        found: dict[int, tuple[str, ...]] = {}
        for version, target in self._session.execute(_TARGETS_OF_VERSIONS, {"versions": list(versions)}):
            found[version] = (*found.get(version, ()), target)
        return found

    def targets_of_aliases(self, models: Sequence[int]) -> dict[int, dict[str, tuple[str, ...]]]:
        """Return the targets whose artifacts are damaged, by the model's id and the alias that is on their version."""
        found: dict[int, dict[str, tuple[str, ...]]] = {}
        for model, alias, target in self._session.execute(_TARGETS_OF_ALIASES, {"models": list(models)}):
            of_model = found.setdefault(model, {})
            of_model[alias] = (*of_model.get(alias, ()), target)
        return found

    def owners(self, key: StorageKey, limit: int = 20) -> list[BlobOwner]:
        """Return what refers to a blob."""
        rows = self._session.execute(_OWNERS, {"kind": key.kind, "digest": key.digest, "limit": limit})
        return [BlobOwner(owner, model, number, target) for owner, model, number, target in rows]

    def add_missing(self, sizes: Mapping[StorageKey, int], *, found_by: str) -> None:
        """Add blobs that have no row as damaged, since they are not in the storage.

        Args:
            sizes: Their lengths; 0 where it is not known.
        """
        self._session.execute(_ADD_MISSING, _sized(sizes) | {"found_by": found_by})

    def refer_damaged(self, keys: Iterable[StorageKey], owner: str) -> None:
        """Add references of an owner to those of some blobs that are damaged, so that it is known who needs them."""
        self._session.execute(_REFER_DAMAGED, _sized(dict.fromkeys(keys, 0)) | {"owner": owner})

    def other_sizes(self, sizes: Mapping[StorageKey, int]) -> list[StorageKey]:
        """Return those of some stored blobs whose rows have another size, by keys with generations."""
        rows = self._session.execute(_SIZES, _sized(sizes))
        return [StorageKey(cast("Kind", kind), Digest(digest), number) for kind, digest, number in rows]

    def unknown(self, keys: Iterable[StorageKey]) -> list[StorageKey]:
        """Return those of some blobs and manifests that have no row."""
        asked = sorted(keys)
        rows = self._session.execute(
            _HAVE_ROWS, {"kinds": [key.kind for key in asked], "digests": [key.digest for key in asked]}
        )
        known = {(kind, digest) for kind, digest in rows}
        return [key for key in asked if (key.kind, key.digest) not in known]

    def unstored(self, digests: Sequence[str]) -> list[StorageKey]:
        """Return those of some blobs and manifests that something refers to and that are not stored."""
        rows = self._session.execute(_UNSTORED, {"digests": list(digests)})
        return [StorageKey(cast("Kind", kind), Digest(digest)) for kind, digest in rows]


def find_blob(reader: Reader, key: StorageKey) -> BlobRow | None:
    """Return the row of a blob, in one round trip."""
    rows = reader.rows(_FIND, kind=key.kind, digest=key.digest)
    return BlobRow(key.at(rows[0][0]), rows[0][1], rows[0][2]) if rows else None


def _sized(sizes: Mapping[StorageKey, int]) -> dict[str, Any]:
    return {
        "kinds": [key.kind for key in sizes],
        "digests": [key.digest for key in sizes],
        "sizes": list(sizes.values()),
    }


def _arguments(damage: Damage) -> dict[str, Any]:
    return {
        "kind": damage.kind,
        "digest": damage.digest,
        "generation": damage.generation,
        "problem": damage.problem.value,
        "expected_bytes": damage.expected_bytes,
        "found_bytes": damage.found_bytes,
        "found_digest": damage.found_digest,
        "found_by": damage.found_by,
    }


def _damage(row: Any) -> Damage:
    return Damage(
        row["kind"],
        Digest(row["digest"]),
        row["generation"],
        DamageProblem(row["problem"]),
        row["expected_bytes"],
        row["found_bytes"],
        Digest(row["found_digest"]) if row["found_digest"] else None,
        row["found_by"],
        stamp(row["found_at"]),
    )
