"""Regions of artifacts: which artifacts have code for a part's program key."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from sqlalchemy import text
from sqlalchemy.dialects.postgresql import insert

from pt2hub.domain.digests import Digest
from pt2hub.server.db.reading import readable
from pt2hub.server.db.schema import Region as SQLRegion

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from sqlalchemy import Table
    from sqlalchemy.orm import Session

    from pt2hub.domain.artifacts import Region

_ADD = insert(cast("Table", SQLRegion.__table__)).on_conflict_do_nothing()
_HOLDERS = text("""
    SELECT wanted.key, found.digest
    FROM unnest(CAST(:keys AS text[])) AS wanted (key)
    CROSS JOIN LATERAL (
        SELECT artifacts.digest, artifacts.created_at
        FROM regions
        JOIN artifacts ON artifacts.digest = regions.artifact
        JOIN builds ON builds.id = artifacts.build_id
        JOIN versions ON versions.id = builds.version_id
        JOIN models ON models.id = versions.model_id
        WHERE regions.program_key = wanted.key AND starts_with(models.name, :prefix)
        ORDER BY artifacts.created_at DESC, artifacts.digest
        LIMIT :most
    ) AS found
    ORDER BY found.created_at DESC, found.digest
""")

_FIRST = text("""
    SELECT wanted.key, found.digest, found.name, found.number
    FROM unnest(CAST(:keys AS text[])) AS wanted (key)
    CROSS JOIN LATERAL (
        SELECT artifacts.digest, models.name, versions.number
        FROM regions
        JOIN artifacts ON artifacts.digest = regions.artifact
        JOIN builds ON builds.id = artifacts.build_id
        JOIN versions ON versions.id = builds.version_id
        JOIN models ON models.id = versions.model_id
        WHERE regions.program_key = wanted.key AND starts_with(models.name, :prefix) AND artifacts.digest <> :artifact
            AND models.name ~ :readable AND artifacts.created_at <= (SELECT created_at FROM artifacts WHERE digest = :artifact)
        ORDER BY artifacts.created_at, artifacts.digest
        LIMIT 1
    ) AS found
""")


class RegionStore:
    """Program keys of the parts that artifacts have code for."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def add(self, artifact: Digest, regions: Iterable[Region]) -> None:
        """Add the regions of an artifact whose code may be reused; existing rows stay."""
        keys = dict.fromkeys(region.key.digest for region in regions if not region.key.never_reused)
        if keys:
            self._session.execute(_ADD, [{"program_key": key, "artifact": artifact} for key in keys])

    def holders(self, keys: Collection[Digest], team: str, *, limit: int) -> dict[Digest, list[Digest]]:
        """Return the manifest digests of a team's newest artifacts with a region, by its program key.

        Args:
            limit: Most artifacts of one key.
        """
        given = {"keys": list(keys), "prefix": f"{team}/", "most": limit}
        found: dict[Digest, list[Digest]] = {}
        for key, artifact in self._session.execute(_HOLDERS, given):
            found.setdefault(Digest(key), []).append(Digest(artifact))
        return found

    def first_holders(
        self, artifact: Digest, keys: Collection[Digest], team: str
    ) -> dict[Digest, tuple[Digest, str]]:
        """Return a team's first readable artifact with each region, by the region's key: its digest and version, `team/name@3`.

        Args:
            artifact: The artifact that has these regions; only earlier ones are returned.
        """
        given = {
            "artifact": artifact,
            "keys": list(keys),
            "prefix": f"{team}/",
            "readable": readable().expression,
        }
        rows = self._session.execute(_FIRST, given)
        return {Digest(key): (Digest(digest), f"{name}@{number}") for key, digest, name, number in rows}
