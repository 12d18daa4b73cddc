"""Artifacts whose build reused code by a program key that is old, or whose program calls others' operators."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sqlalchemy import text

from pt2hub.domain.artifacts import KEY_SCHEMA, MADE_UP
from pt2hub.domain.digests import Digest

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

_REUSED = text("""
    SELECT own.digest, models.name AS model, versions.number, builds.target, versions.spec -> 'source' AS source,
        coalesce((own.provenance ->> 'key_schema')::int, 1) AS key_schema,
        own.provenance ->> 'code_reused_from' AS reused, coalesce(own.provenance -> 'operators', '[]') AS operators
    FROM artifacts AS own
    JOIN builds ON builds.id = own.build_id
    JOIN versions ON versions.id = builds.version_id
    JOIN models ON models.id = versions.model_id
    WHERE own.provenance ->> 'code_reused_from' IS NOT NULL AND NOT own.provenance ? :made_up
        AND (coalesce((own.provenance ->> 'key_schema')::int, 1) < :schema
            OR coalesce(own.provenance -> 'operators', '[]') <> '[]')
    ORDER BY models.name, versions.number, builds.target, own.digest
""")


@dataclass(frozen=True, slots=True)
class ReusedCode:
    """An artifact that runs reused code.

    Attributes:
        digest: Manifest digest.
        model: The model's name.
        number: The version's number.
        target: The target's name.
        source: The spec's source.
        key_schema: The schema of its program key; 1 where the artifact is older than the schemas' numbers.
        reused: Digest of the code layer.
        operators: Operators that are not torch's own, as its key names them.
    """

    digest: Digest
    model: str
    number: int
    target: str
    source: dict[str, Any]
    key_schema: int
    reused: Digest
    operators: list[str]


class KeyAuditStore:
    """Reads what an audit looks at."""

    def __init__(self, session: Session) -> None:
        """Works in the caller's transaction."""
        self._session = session

    def reused(self) -> list[ReusedCode]:
        """The artifacts, by model, version and target; made-up ones are left out."""
        given = {"schema": KEY_SCHEMA, "made_up": MADE_UP}
        return [ReusedCode(**row) for row in self._session.execute(_REUSED, given).mappings()]
