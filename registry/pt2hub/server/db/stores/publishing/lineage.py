"""Derivations of versions. What is read leaves out parents and versions that the request may not read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlalchemy import delete, or_, select, text, true
from sqlalchemy.dialects.postgresql import insert

from pt2hub.domain.codec import encode
from pt2hub.domain.digests import Digest
from pt2hub.domain.lineage import MAX_PARENTS, external_link
from pt2hub.domain.principals import read_principal
from pt2hub.server.db.reading import only_readable
from pt2hub.server.db.schema import Artifact as SQLArtifact
from pt2hub.server.db.schema import Build as SQLBuild
from pt2hub.server.db.schema import Derivation as SQLDerivation
from pt2hub.server.db.schema import Model as SQLModel
from pt2hub.server.db.schema import Version as SQLVersion
from pt2hub.server.db.stores.values import stamp
from pt2hub.wire.lineage import DerivationView

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from sqlalchemy import ColumnElement
    from sqlalchemy.orm import InstrumentedAttribute, Session

    from pt2hub.domain.lineage import Relation
    from pt2hub.domain.principals import Principal

_LOCK = "SELECT pg_advisory_xact_lock(hashtext('pt2hub.lineage'))"
# The ancestors of a version, itself included. UNION, and not UNION ALL, so that each is visited once.
_IS_ANCESTOR = text("""
    WITH RECURSIVE ancestors (id) AS (
        SELECT CAST(:version AS bigint)
        UNION
        SELECT derivations.parent_id FROM derivations JOIN ancestors ON derivations.version_id = ancestors.id
        WHERE derivations.parent_id IS NOT NULL
    )
    SELECT EXISTS (SELECT 1 FROM ancestors WHERE id = :ancestor)
""")
# The earlier version of the same model whose code the artifact has: first the one that compiled it.
_SAME_CODE = text("""
    SELECT mine.id AS mine, models.name, versions.id, versions.number, versions.identity,
        bool_or(other.weights = own.weights) OVER () AS known_weights
    FROM artifacts AS own
    JOIN builds AS own_build ON own_build.id = own.build_id
    JOIN versions AS mine ON mine.id = own_build.version_id
    JOIN models ON models.id = mine.model_id
    JOIN artifacts AS other ON other.code = own.code AND other.program_key = own.program_key
    JOIN builds ON builds.id = other.build_id
    JOIN versions ON versions.id = builds.version_id
    WHERE own.digest = :artifact AND own.provenance ->> 'code_reused_from' IS NOT NULL AND versions.model_id = mine.model_id AND versions.number < mine.number
    ORDER BY other.provenance ->> 'code_reused_from' IS NOT NULL, versions.number
    LIMIT 1
""")


@dataclass(frozen=True, slots=True)
class Parent:
    """What a version is derived from.

    Attributes:
        text: `team/name@3`, or an external reference.
        model: Name of the parent's model; None for an external one, like the fields below.
    """

    text: str
    model: str | None = None
    id: int | None = None
    identity: Digest | None = None


@dataclass(frozen=True, slots=True)
class StoredDerivation:
    """A derivation, with the ids of both versions; that of an external or deleted parent is None."""

    version_id: int
    parent_id: int | None
    view: DerivationView


class LineageStore:
    """Derivations of versions."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def lock(self) -> None:
        """Lock all lineage until the transaction ends: two additions at once could close a cycle together."""
        self._session.execute(text(_LOCK))

    def is_ancestor(self, ancestor: int, of: int) -> bool:
        """Return whether a version is another one, or one that it is derived from, over any number of generations."""
        given = {"ancestor": ancestor, "version": of}
        return bool(self._session.scalar(_IS_ANCESTOR, given))

    def of(self, version_id: int) -> dict[str, tuple[str, bool]]:
        """Return relation and whether it is automatic of a version's derivations, by parent, whoever may read them."""
        row = SQLDerivation
        found = select(row.parent, row.relation, row.automatic).where(row.version_id == version_id)
        return {parent: (relation, automatic) for parent, relation, automatic in self._session.execute(found)}

    def parents(self, version_ids: Collection[int], *, limit: int | None = None) -> list[StoredDerivation]:
        """Return the derivations of versions, in the order in which they were recorded."""
        wanted = (SQLDerivation.version_id.in_(version_ids), _readable(SQLDerivation.parent_model))
        return self._read(wanted, limit=MAX_PARENTS * len(version_ids) if limit is None else limit)

    def children(self, version_ids: Collection[int], *, limit: int) -> list[StoredDerivation]:
        """Return the derivations whose parents are these versions, newest first."""
        wanted = (SQLDerivation.parent_id.in_(version_ids), *only_readable(SQLModel.name))
        return self._read(wanted, limit=limit, newest_first=True)

    def add(
        self, version_id: int, relation: Relation, parent: Parent, *, by: Principal, automatic: bool = False
    ) -> None:
        """Add a derivation, unless the version has one of the same parent."""
        row = {
            "version_id": version_id,
            "relation": relation.value,
            "parent": parent.text,
            "parent_model": parent.model,
            "parent_identity": parent.identity,
            "parent_id": parent.id,
            "automatic": automatic,
            "by": encode(by),
        }
        self._session.execute(insert(SQLDerivation).values(row).on_conflict_do_nothing())

    def remove(self, version_id: int, parents: Sequence[str]) -> None:
        """Remove derivations; missing ones are ignored."""
        mine = (SQLDerivation.version_id == version_id, SQLDerivation.parent.in_(parents))
        self._session.execute(delete(SQLDerivation).where(*mine))

    def remove_automatic(self, version_id: int) -> None:
        """Remove what pt2hub recorded by itself: a person knows better."""
        mine = (SQLDerivation.version_id == version_id, SQLDerivation.automatic)
        self._session.execute(delete(SQLDerivation).where(*mine))

    def artifacts(self, version_id: int) -> list[Digest]:
        """Return the digests of a version's artifacts, the first built first."""
        mine = select(SQLArtifact.digest).join(SQLBuild, SQLBuild.id == SQLArtifact.build_id)
        rows = mine.where(SQLBuild.version_id == version_id).order_by(
            SQLArtifact.created_at, SQLArtifact.digest
        )
        return [Digest(digest) for digest in self._session.scalars(rows)]

    def find_same_code(self, artifact: Digest) -> tuple[int, Parent] | None:
        """Return the version of an artifact that reused code, and the earlier version whose code it is.

        Both are of one model; None if there is no such version, or one of them has the same weights.
        """
        row = self._session.execute(_SAME_CODE, {"artifact": artifact}).first()
        if row is None or row.known_weights:
            return None
        return row.mine, Parent(f"{row.name}@{row.number}", row.name, row.id, Digest(row.identity))

    def _read(
        self, wanted: Sequence[ColumnElement[bool]], *, limit: int, newest_first: bool = False
    ) -> list[StoredDerivation]:
        row, order = SQLDerivation, SQLDerivation.id
        found = (
            select(row, SQLModel.name, SQLVersion.number)
            .join(SQLVersion, SQLVersion.id == row.version_id)
            .join(SQLModel, SQLModel.id == SQLVersion.model_id)
            .where(*wanted)
            .order_by(order.desc() if newest_first else order)
            .limit(limit)
        )
        return [_stored(*item) for item in self._session.execute(found)]


def _readable(model: InstrumentedAttribute[str | None]) -> ColumnElement[bool]:
    allowed = only_readable(model)
    return or_(model.is_(None), *allowed) if allowed else true()


def _stored(row: SQLDerivation, model: str, number: int) -> StoredDerivation:
    view = DerivationView(
        version=f"{model}@{number}",
        relation=row.relation,
        parent=row.parent,
        identity=Digest(row.parent_identity) if row.parent_identity else None,
        link=None if row.parent_model else external_link(row.parent),
        deleted=row.parent_model is not None and row.parent_id is None,
        automatic=row.automatic,
        by=read_principal(row.by),
        at=stamp(row.at),
    )
    return StoredDerivation(row.version_id, row.parent_id, view)
