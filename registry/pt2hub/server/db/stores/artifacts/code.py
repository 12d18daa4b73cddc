"""The code of artifacts: compiled for them or reused, and the artifact with the kernel times."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sqlalchemy import text

from pt2hub.domain.digests import Digest
from pt2hub.domain.publishing.compile_modes import requested_options
from pt2hub.server.db.reading import readable

if TYPE_CHECKING:
    from collections.abc import Collection

    from sqlalchemy.orm import Session

_UNREADABLE = "another model"
# The compiled artifact sorts before those that reuse its code. A key may have thousands of artifacts: their own columns
# decide, and their kernels are read by an index.
_CODES = text("""
    SELECT own.digest AS artifact, models.name AS model, versions.number, builds.target, own.code AS digest,
        own.program_key, coalesce((own.provenance ->> 'key_schema')::int, 1) AS key_schema,
        coalesce(own.provenance -> 'operators', '[]') <> '[]' AS calls_others,
        own.provenance ->> 'never_reused' IS NULL AS is_named, own.provenance ->> 'code_reused_from' IS NOT NULL AS reused,
        coalesce((own.provenance ->> 'reused_parts')::int, 0) AS reused_parts,
        own.provenance -> 'autotuning' ->> 'choices' IS NOT NULL AS chosen,
        versions.spec AS asked, builds.request AS wanted,
        origin.digest AS origin, origin.name AS made, origin.number AS made_number, tuned.digest AS tuned
    FROM artifacts AS own
    JOIN builds ON builds.id = own.build_id
    JOIN versions ON versions.id = builds.version_id
    JOIN models ON models.id = versions.model_id
    LEFT JOIN LATERAL (
        SELECT first.digest, made.name, theirs.number FROM artifacts AS first
        JOIN builds AS built ON built.id = first.build_id
        JOIN versions AS theirs ON theirs.id = built.version_id
        JOIN models AS made ON made.id = theirs.model_id
        WHERE first.program_key = own.program_key AND first.code = own.code
            AND first.provenance ->> 'code_reused_from' IS NULL
            AND split_part(made.name, '/', 1) = split_part(models.name, '/', 1)
        ORDER BY first.digest <> own.digest, first.created_at, first.digest LIMIT 1
    ) AS origin ON true
    LEFT JOIN LATERAL (
        SELECT same.digest FROM artifacts AS same
        JOIN builds AS built ON built.id = same.build_id
        JOIN versions AS theirs ON theirs.id = built.version_id
        JOIN models AS others ON others.id = theirs.model_id
        WHERE split_part(others.name, '/', 1) = split_part(models.name, '/', 1) AND same.program_key = own.program_key AND same.code = own.code
            AND others.name ~ :readable AND EXISTS (SELECT 1 FROM autotune_choices WHERE artifact = same.digest)
        ORDER BY same.digest <> own.digest, same.created_at, same.digest LIMIT 1
    ) AS tuned ON true
    WHERE own.digest = ANY(:artifacts)
""")


@dataclass(frozen=True, slots=True)
class ArtifactCode:
    """The code that an artifact runs.

    Attributes:
        is_named: Whether the program key names everything that the code calls; otherwise it is never reused.
        reused_parts: Number of parts of code compiled by regions that come from other artifacts.
        chosen: Whether autotuning chose anything when it was compiled.
        origin: The artifact that it was compiled for, None if that is gone.
        compiled_for: That artifact's version, `team/name@3`, or `another model` if it may not be read; empty if it is gone.
        tuned: The readable artifact with the kernel times, this one if it has any; None if there are none.
    """

    artifact: Digest
    model: str
    number: int
    target: str
    digest: Digest
    program_key: Digest
    key_schema: int
    calls_others: bool
    is_named: bool
    reused: bool
    reused_parts: int
    chosen: bool
    options: dict[str, Any]
    origin: Digest | None
    compiled_for: str
    tuned: Digest | None


class ArtifactCodeStore:
    """Code of artifacts, in one statement for any number."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def of(self, artifacts: Collection[Digest]) -> dict[Digest, ArtifactCode]:
        """Return the code of the existing artifacts, by manifest digest."""
        given = {"artifacts": list(artifacts), "readable": readable().expression}
        rows = self._session.execute(_CODES, given).mappings()
        return {Digest(row["artifact"]): _code(dict(row)) for row in rows}


def _code(row: dict[str, Any]) -> ArtifactCode:
    given = {name: row[name] for name in ArtifactCode.__dataclass_fields__ if name in row}
    options = requested_options(row["asked"], row["wanted"])
    return ArtifactCode(**given, options=options, compiled_for=_compiled_for(row))


def _compiled_for(row: dict[str, Any]) -> str:
    if not row["origin"]:
        return ""
    return f"{row['made']}@{row['made_number']}" if readable().covers(row["made"]) else _UNREADABLE
