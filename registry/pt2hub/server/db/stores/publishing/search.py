"""Search for versions by digest, builds by id, and publishers by name; each reads an index within bounds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlalchemy import text

from pt2hub.server.db.reading import readable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy.orm import Session

_MAX_REFERENCES = 200
"""References to blobs that are read for one prefix."""
_MAX_PUBLISHERS = 1000
"""Names of publishers, or owners, that are compared."""
_NAMED = "(CAST(:readable AS text) IS NULL OR models.name ~ :readable)"
# Hexadecimal digits sort before g in every collation, so that indexes are used.
_ARTIFACTS = text(f"""
    SELECT models.name, versions.number, builds.target AS detail FROM artifacts
    JOIN builds ON builds.id = artifacts.build_id JOIN versions ON versions.id = builds.version_id
    JOIN models ON models.id = versions.model_id
    WHERE artifacts.digest BETWEEN :prefix AND :prefix || 'g' AND {_NAMED}
    ORDER BY artifacts.digest LIMIT :most
""")  # noqa: S608  # of constants
_WEIGHTS = text(f"""
    SELECT models.name, versions.number FROM (
        SELECT DISTINCT owner FROM blob_references
        WHERE kind = 'blobs' AND digest BETWEEN :prefix AND :prefix || 'g' AND starts_with(owner, 'version:')
        LIMIT {_MAX_REFERENCES}
    ) AS reference
    JOIN versions ON versions.id = CAST(substr(reference.owner, 9) AS bigint)
    JOIN models ON models.id = versions.model_id
    WHERE versions.weights BETWEEN :prefix AND :prefix || 'g' AND {_NAMED}
    ORDER BY versions.id DESC LIMIT :most
""")  # noqa: S608  # of constants
# Identities are indexed by model.
_IDENTITIES = text(f"""
    SELECT models.name, version.number FROM models CROSS JOIN LATERAL (
        SELECT id, number FROM versions
        WHERE model_id = models.id AND identity BETWEEN :prefix AND :prefix || 'g' LIMIT :most
    ) AS version
    WHERE {_NAMED} ORDER BY version.id DESC LIMIT :most
""")  # noqa: S608  # of constants
_BUILDS = text(f"""
    SELECT builds.id, models.name, versions.number, builds.target, builds.state, builds.kind FROM builds
    JOIN versions ON versions.id = builds.version_id JOIN models ON models.id = versions.model_id
    WHERE builds.id BETWEEN :prefix AND :last AND starts_with(builds.id, :prefix) AND {_NAMED}
    ORDER BY builds.id LIMIT :most
""")  # noqa: S608  # of constants
_TARGETS = text("SELECT name FROM targets ORDER BY name LIMIT 1000")
# Jumps from name to name in the index, since most versions have the same few publishers.
_PUBLISHERS = text(f"""
    WITH RECURSIVE names AS (
        (SELECT published_by ->> 'name' AS name FROM versions
            WHERE published_by ->> 'name' IS NOT NULL ORDER BY 1 LIMIT 1)
        UNION ALL
        SELECT (SELECT published_by ->> 'name' FROM versions
            WHERE published_by ->> 'name' > names.name ORDER BY published_by ->> 'name' LIMIT 1)
        FROM names WHERE names.name IS NOT NULL
    ), known AS (SELECT name FROM names WHERE name IS NOT NULL LIMIT {_MAX_PUBLISHERS})
    SELECT known.name FROM known
    WHERE strpos(lower(known.name), :text) > 0 AND EXISTS (
        SELECT FROM versions JOIN models ON models.id = versions.model_id
        WHERE versions.published_by ->> 'name' = known.name AND {_NAMED}
    )
    ORDER BY lower(known.name) <> :text, known.name LIMIT :most
""")  # noqa: S608  # of constants
# The same in the indexes of labels, of models or of versions.
_OWNERS = f"""
    WITH RECURSIVE names AS (
        (SELECT value AS name FROM labels WHERE key = 'owner' AND {{of}} ORDER BY value LIMIT 1)
        UNION ALL
        SELECT (SELECT value FROM labels WHERE key = 'owner' AND {{of}} AND value > names.name ORDER BY value LIMIT 1)
        FROM names WHERE names.name IS NOT NULL
    ), known AS (SELECT name FROM names WHERE name IS NOT NULL LIMIT {_MAX_PUBLISHERS})
    SELECT known.name FROM known
    WHERE strpos(lower(known.name), :text) > 0 AND EXISTS (
        SELECT FROM labels JOIN models ON models.id = labels.model_id
        WHERE key = 'owner' AND value = known.name AND {{of}} AND {_NAMED}
    )
    ORDER BY lower(known.name) <> :text, known.name LIMIT :most
"""  # noqa: S608  # of constants
_MODEL_OWNERS = text(_OWNERS.format(of="version_id IS NULL"))
_VERSION_OWNERS = text(_OWNERS.format(of="version_id IS NOT NULL"))
_REFERENCE = text(f"""
    SELECT models.name, versions.number FROM models JOIN versions ON versions.model_id = models.id
    WHERE models.name = :model AND {_NAMED} AND (
        versions.number = CAST(:number AS integer) OR versions.id = (
            SELECT version_id FROM aliases WHERE aliases.model_id = models.id AND aliases.name = :alias
        )
    )
    LIMIT 1
""")  # noqa: S608  # of constants


@dataclass(frozen=True, slots=True)
class FoundVersion:
    """A version, and what matched."""

    model: str
    number: int
    matched: str


@dataclass(frozen=True, slots=True)
class FoundBuild:
    """A build or measuring job."""

    id: str
    model: str
    number: int
    target: str
    state: str
    kind: str


class SearchStore:
    """Versions, builds and publishers of models that may be read."""

    def __init__(self, session: Session) -> None:
        self._session = session
        limit = readable()
        self._readable = None if limit.everything else limit.expression

    def by_digest(self, prefix: str, limit: int) -> list[FoundVersion]:
        """Return the versions whose artifacts, weights or identity have a digest.

        Args:
            prefix: The digest or its beginning, with `sha256:`.
        """
        found: dict[tuple[str, int], FoundVersion] = {}
        for version in self._by_digest(prefix, limit):
            found.setdefault((version.model, version.number), version)
        return list(found.values())[:limit]

    def _by_digest(self, prefix: str, limit: int) -> Iterator[FoundVersion]:
        given = {"prefix": prefix, "most": limit, "readable": self._readable}
        for name, number, target in self._session.execute(_ARTIFACTS, given):
            yield FoundVersion(name, number, f"artifact for {target}")
        for name, number in self._session.execute(_WEIGHTS, given):
            yield FoundVersion(name, number, "weights")
        for name, number in self._session.execute(_IDENTITIES, given):
            yield FoundVersion(name, number, "identity")

    def by_reference(self, model: str, *, number: int | None, alias: str | None) -> FoundVersion | None:
        """Return the version with a number, or that an alias is on."""
        given = {"model": model, "number": number, "alias": alias, "readable": self._readable}
        row = self._session.execute(_REFERENCE, given).first()
        return FoundVersion(row.name, row.number, alias or "") if row else None

    def builds(self, prefix: str, limit: int) -> list[FoundBuild]:
        """Return the builds whose ids begin with a text of letters, digits and hyphens."""
        given = {"prefix": prefix, "last": f"{prefix}g", "most": limit, "readable": self._readable}
        return [FoundBuild(*row) for row in self._session.execute(_BUILDS, given)]

    def targets(self) -> list[str]:
        """Return the names of targets."""
        return list(self._session.scalars(_TARGETS))

    def publishers(self, part: str, limit: int) -> list[str]:
        """Return the names of people and tokens that published a version and contain a text in lower case."""
        given = {"text": part, "most": limit, "readable": self._readable}
        return list(self._session.scalars(_PUBLISHERS, given))

    def owners(self, part: str, limit: int, *, of_models: bool) -> list[str]:
        """Return the values of `owner` labels of models, or else of versions, that contain a text in lower case."""
        given = {"text": part, "most": limit, "readable": self._readable}
        return list(self._session.scalars(_MODEL_OWNERS if of_models else _VERSION_OWNERS, given))
