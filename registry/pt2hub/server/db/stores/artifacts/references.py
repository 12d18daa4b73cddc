"""Resolution of references, one prepared statement per kind: the most frequent query of pipelines."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from sqlalchemy import and_, bindparam, func, literal_column, or_, select, true

from pt2hub.domain.builds import BuildKind, BuildState
from pt2hub.domain.digests import Digest
from pt2hub.server.db.engine import Prepared
from pt2hub.server.db.schema import Alias as SQLAlias
from pt2hub.server.db.schema import Artifact as SQLArtifact
from pt2hub.server.db.schema import Blob as SQLBlob
from pt2hub.server.db.schema import Build as SQLBuild
from pt2hub.server.db.schema import Model as SQLModel
from pt2hub.server.db.schema import Version as SQLVersion
from pt2hub.server.db.stores.values import stamp, yank_of
from pt2hub.wire.resolution import ArtifactRef, Yank

if TYPE_CHECKING:
    from datetime import datetime
    from typing import Any

    from sqlalchemy import ColumnElement, ScalarSelect, Select, SQLColumnExpression

    from pt2hub.domain.names import Reference
    from pt2hub.server.db.engine import Reader

_Refs: TypeAlias = "Select[int, dict[str, Any] | None, str, str, datetime, bool]"
_MAX_CANDIDATES = 20
"""Artifacts listed for an ambiguous digest prefix."""


@dataclass(frozen=True, slots=True)
class ResolvedName:
    """A version and the artifacts that a reference names, in the order the targets were submitted.

    Attributes:
        yanked: The version's yank, None if it is not yanked.
    """

    number: int
    artifacts: tuple[ArtifactRef, ...]
    yanked: Yank | None = None


def ready(version_id: SQLColumnExpression[int]) -> ScalarSelect[bool]:
    """Return the condition for ready versions: all first-submitted builds succeeded, as in `domain.builds.readiness`.

    It is an aggregate, so that PostgreSQL checks version by version and stops at the first ready one; with EXISTS it may
    join all builds.
    """
    succeeded = SQLBuild.state == literal_column(f"'{BuildState.SUCCEEDED}'")
    return (
        select(func.bool_and(succeeded))
        .where(SQLBuild.version_id == version_id, SQLBuild.first_submitted)
        .scalar_subquery()
    )


def newest_ready(model_id: SQLColumnExpression[int]) -> Select[int, int]:
    """Select id and number of a model's newest ready version that is not yanked, for a LATERAL join."""
    return (
        select(SQLVersion.id, SQLVersion.number)
        .where(SQLVersion.model_id == model_id, SQLVersion.yanked.is_(None), ready(SQLVersion.id))
        .order_by(SQLVersion.number.desc())
        .limit(literal_column("1"))  # not a parameter: a generic plan for any limit reads all versions
    )


def _artifacts(number: SQLColumnExpression[int], yanked: SQLColumnExpression[dict[str, Any] | None]) -> _Refs:
    return select(number, yanked, SQLBuild.target, SQLArtifact.digest, SQLArtifact.created_at, _damaged())


def _damaged() -> ColumnElement[bool]:
    """Return the condition for artifacts that cannot be loaded from the storage; its index is empty nearly always."""
    needed = (SQLArtifact.digest, SQLArtifact.config, SQLArtifact.code, SQLArtifact.weights)
    found = select(SQLBlob.digest).where(
        SQLBlob.state == literal_column("'damaged'"), or_(*(SQLBlob.digest == digest for digest in needed))
    )
    return found.exists()


def _builds_of(version_id: SQLColumnExpression[int]) -> ColumnElement[bool]:
    """Return the condition for a version's builds, without measuring jobs, which have no artifacts of their own."""
    return and_(SQLBuild.version_id == version_id, SQLBuild.kind == literal_column(f"'{BuildKind.BUILD}'"))


def _of_version() -> _Refs:
    return (
        _artifacts(SQLVersion.number, SQLVersion.yanked)
        .select_from(SQLModel)
        .join(SQLVersion, SQLVersion.model_id == SQLModel.id)
        .outerjoin(SQLBuild, _builds_of(SQLVersion.id))
        .outerjoin(SQLArtifact, SQLArtifact.build_id == SQLBuild.id)
        .where(SQLModel.name == bindparam("model"))
        .order_by(SQLBuild.position, SQLBuild.target)
    )


def _of_newest_ready() -> _Refs:
    newest = newest_ready(SQLModel.id).lateral("newest")
    return (
        _artifacts(newest.c.number, literal_column("NULL"))
        .select_from(SQLModel)
        .join(newest, true())
        .outerjoin(SQLBuild, _builds_of(newest.c.id))
        .outerjoin(SQLArtifact, SQLArtifact.build_id == SQLBuild.id)
        .where(SQLModel.name == bindparam("model"))
        .order_by(SQLBuild.position, SQLBuild.target)
    )


def _by_digest() -> _Refs:
    return (
        _artifacts(SQLVersion.number, SQLVersion.yanked)
        .join(SQLBuild, SQLBuild.id == SQLArtifact.build_id)
        .join(SQLVersion, SQLVersion.id == SQLBuild.version_id)
        .join(SQLModel, SQLModel.id == SQLVersion.model_id)
        .where(SQLModel.name == bindparam("model"))
        .order_by(SQLVersion.number, SQLBuild.position, SQLBuild.target)
        .limit(_MAX_CANDIDATES)
    )


_BY_NUMBER = Prepared.of(_of_version().where(SQLVersion.number == bindparam("number")))
_BY_ALIAS = Prepared.of(
    _of_version()
    .join(SQLAlias, SQLAlias.version_id == SQLVersion.id)
    .where(SQLAlias.model_id == SQLModel.id, SQLAlias.name == bindparam("alias"))
)
BY_NEWEST_READY = Prepared.of(_of_newest_ready())
_BY_DIGEST = Prepared.of(_by_digest().where(SQLArtifact.digest == bindparam("digest")))
# Hexadecimal digits sort before g in every collation, so the primary key's index can be used.
_BY_PREFIX = Prepared.of(
    _by_digest().where(SQLArtifact.digest.between(bindparam("prefix"), bindparam("prefix") + "g"))
)


class ReferenceStore:
    """Versions and artifacts by reference."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader

    def version(self, wanted: Reference) -> ResolvedName | None:
        """Return the version named by a number, an alias or only the model; None where it does not exist.

        Its artifacts are empty if it has none yet.
        """
        if wanted.number:
            rows = self._reader.rows(_BY_NUMBER, model=wanted.model, number=wanted.number)
        elif wanted.alias:
            rows = self._reader.rows(_BY_ALIAS, model=wanted.model, alias=wanted.alias)
        else:
            rows = self._reader.rows(BY_NEWEST_READY, model=wanted.model)
        if not rows:
            return None
        return ResolvedName(rows[0][0], tuple(_ref(*row[2:]) for row in rows if row[3]), yank_of(rows[0][1]))

    def artifacts(self, wanted: Reference) -> list[ResolvedName]:
        """Return the artifacts that a digest or its prefix names, each with its version, at most `_MAX_CANDIDATES`."""
        if wanted.digest:
            rows = self._reader.rows(_BY_DIGEST, model=wanted.model, digest=wanted.digest)
        else:
            rows = self._reader.rows(_BY_PREFIX, model=wanted.model, prefix=wanted.prefix or "")
        return [ResolvedName(row[0], (_ref(*row[2:]),), yank_of(row[1])) for row in rows]


def _ref(target: str, digest: str, created_at: datetime, damaged: bool) -> ArtifactRef:  # of a row
    return ArtifactRef(target, Digest(digest), stamp(created_at), damaged)
