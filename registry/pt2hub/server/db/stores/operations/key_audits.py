"""Artifacts that reuse code by an older program key, or with operators that are not torch's own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sqlalchemy import text

from pt2hub.domain.artifacts import KEY_SCHEMA
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
    WHERE own.provenance ->> 'code_reused_from' IS NOT NULL
        AND (coalesce((own.provenance ->> 'key_schema')::int, 1) < :schema
            OR coalesce(own.provenance -> 'operators', '[]') <> '[]')
    ORDER BY models.name, versions.number, builds.target, own.digest
""")


@dataclass(frozen=True, slots=True)
class ReusedCode:
    """An artifact that runs reused code.

    Attributes:
        key_schema: Schema of its program key; 1 if it is older than numbered schemas.
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
    """The artifacts that a key audit examines."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def list_reused(self) -> list[ReusedCode]:
        """Return the artifacts, by model, version and target."""
        return [
            ReusedCode(**row) for row in self._session.execute(_REUSED, {"schema": KEY_SCHEMA}).mappings()
        ]
