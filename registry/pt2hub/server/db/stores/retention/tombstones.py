"""Tombstones: what remains of deleted things, and the digests that nobody may store again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from sqlalchemy import ARRAY, Text, and_, any_, delete, func, literal, or_, select, text, update
from sqlalchemy.dialects.postgresql import insert

from pt2hub.domain.codec import encode
from pt2hub.domain.digests import Digest
from pt2hub.domain.principals import Principal, read_principal
from pt2hub.server.db.retention_schema import RefusedDigest as SQLRefused
from pt2hub.server.db.retention_schema import Tombstone as SQLTombstone
from pt2hub.server.db.stores.values import moment, stamp

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from datetime import datetime

    from sqlalchemy import ColumnElement, Table
    from sqlalchemy.orm import Session


_TOMBSTONES = cast("Table", SQLTombstone.__table__)
_REFUSED = cast("Table", SQLRefused.__table__)
_DIGEST = "sha256:"
"""Beginning of a digest, which no id of a build has."""
# A refused digest that a rebuild found in storage is removed by the next collection; a damaged one may come back.
_BURY = text("""
    INSERT INTO blobs (kind, digest, state, size, changed_at)
    SELECT kind, digest, 'deleting', 0, to_timestamp(0)
    FROM refused_digests WHERE tombstone_id = :tombstone ORDER BY kind, digest
    ON CONFLICT (kind, digest) DO UPDATE SET state = 'deleting', changed_at = excluded.changed_at
    WHERE blobs.state IN ('pending', 'stored', 'damaged')""")


# What was published after the deletion, under a number that an older pt2hub gave away again, is another version.
_VERSIONS = text("""
    SELECT DISTINCT models.name, versions.number FROM tombstones JOIN models ON models.name = tombstones.model
    JOIN versions ON versions.model_id = models.id AND versions.number = tombstones.number
    WHERE tombstones.kind = 'version' AND (versions.created_at <= tombstones.at OR EXISTS (
        SELECT FROM builds JOIN artifacts ON artifacts.build_id = builds.id
        WHERE builds.version_id = versions.id AND artifacts.digest = ANY(tombstones.artifacts)))
    ORDER BY models.name, versions.number""")
_BUILDS = text("""
    SELECT builds.id FROM builds JOIN tombstones ON tombstones.kind = 'build' AND tombstones.name = builds.id
    ORDER BY builds.id""")
_MODELS = text("""
    SELECT DISTINCT models.name FROM models JOIN tombstones ON tombstones.kind = 'model' AND tombstones.name = models.name
    WHERE models.created_at <= tombstones.at
    AND NOT EXISTS (SELECT FROM versions WHERE versions.model_id = models.id) ORDER BY models.name""")


@dataclass(frozen=True, slots=True)
class Tombstone:
    """What remains of a deleted thing.

    Attributes:
        kind: `version`, `model` or `build`.
        name: `team/name@3`, `team/name` or a build's id.
        artifacts: Digests of its manifests.
        builds: Ids of the builds that went with a version.
        refused: Kind and digest of each blob that nobody may store again.
        at: ISO 8601, UTC; empty for a new one.
    """

    kind: str
    name: str
    reason: str
    by: Principal | None
    model: str | None = None
    number: int | None = None
    forced: bool = False
    artifacts: tuple[str, ...] = ()
    refused: tuple[tuple[str, str], ...] = ()
    at: str = ""
    builds: tuple[str, ...] = ()

    @property
    def origin(self) -> str:
        """Who deleted it, when and why, in words."""
        who = f" by {self.by}" if self.by else ""
        return f"was deleted{who} at {self.at[:19]}Z: {self.reason}"


class TombstoneStore:
    """Tombstones."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def add(self, new: Tombstone) -> int:
        """Add a tombstone with its refused digests; return its id."""
        values = {
            "kind": new.kind,
            "name": new.name,
            "model": new.model,
            "number": new.number,
            "reason": new.reason,
            "by": encode(new.by),
            "forced": new.forced,
            "artifacts": [*new.artifacts, *new.builds],
        }
        statement = insert(_TOMBSTONES).values(values).returning(_TOMBSTONES.c.id)
        tombstone: int = self._session.execute(statement).scalar_one()
        self._refuse(tombstone, new.refused)
        return tombstone

    def restore(self, found: Tombstone, document: str, accepted: Mapping[Digest, str]) -> None:
        """Add a tombstone from its document in storage, unless it is known.

        Args:
            document: Digest of the document.
            accepted: Digests that tombstones do not refuse any more, with the times up to which; see `accept_until`.
        """
        values = {**encode(found), "at": moment(found.at), "document": document}
        values |= {"by": encode(found.by), "artifacts": [*found.artifacts, *found.builds]}
        del values["refused"], values["builds"]
        statement = insert(_TOMBSTONES).values(values).on_conflict_do_nothing(index_elements=["document"])
        tombstone = self._session.scalar(statement.returning(_TOMBSTONES.c.id))
        if tombstone is not None:
            self._refuse(tombstone, found.refused)
            self.accept_until(accepted)
            self._session.execute(_BURY, {"tombstone": tombstone})

    def version(self, model: str, number: int) -> Tombstone | None:
        """Return the tombstone of a version."""
        return self._newest(
            SQLTombstone.kind == "version", SQLTombstone.model == model, SQLTombstone.number == number
        )

    def named(self, kind: str, name: str) -> Tombstone | None:
        """Return the newest tombstone of a kind and name."""
        return self._newest(SQLTombstone.kind == kind, SQLTombstone.name == name)

    def model_deleted_at(self, name: str) -> datetime | None:
        """Return when a model was deleted last."""
        statement = select(func.max(SQLTombstone.at)).where(
            SQLTombstone.kind == "model", SQLTombstone.name == name
        )
        return self._session.scalar(statement)

    def of_artifact(self, digest: str) -> Tombstone | None:
        """Return the tombstone of an artifact."""
        return self._newest(SQLTombstone.artifacts.contains([digest]))

    def of_build(self, build_id: str) -> Tombstone | None:
        """Return the tombstone of a build, or of the version that it was deleted with."""
        alone = and_(SQLTombstone.kind == "build", SQLTombstone.name == build_id)
        return self._newest(or_(alone, SQLTombstone.artifacts.contains([build_id])))

    def of_refused(self, kind: str, digest: str) -> Tombstone | None:
        """Return the tombstone for which a digest is refused."""
        wanted = select(SQLRefused.tombstone_id).where(SQLRefused.kind == kind, SQLRefused.digest == digest)
        return self._newest(SQLTombstone.id.in_(wanted))

    def named_among(self, kind: str, names: Sequence[str]) -> set[str]:
        """Return which of these names of a kind have tombstones."""
        listed = any_(literal(list(names), ARRAY(Text)))
        statement = select(SQLTombstone.name).where(SQLTombstone.kind == kind, SQLTombstone.name == listed)
        return set(self._session.scalars(statement))

    def present_versions(self) -> list[tuple[str, int]]:
        """Return model and number of the deleted versions that have rows all the same, as after a restore."""
        return [(model, number) for model, number in self._session.execute(_VERSIONS)]

    def present_builds(self) -> list[str]:
        """Return the ids of the deleted builds that have rows all the same."""
        return list(self._session.scalars(_BUILDS))

    def present_models(self) -> list[str]:
        """Return the deleted models that have rows all the same, and no versions."""
        return list(self._session.scalars(_MODELS))

    def last_number(self, model: str) -> int:
        """Return the highest number of a model's deleted versions, 0 where there is none."""
        statement = select(func.coalesce(func.max(SQLTombstone.number), 0)).where(SQLTombstone.model == model)
        return self._session.execute(statement).scalar_one() or 0

    def deleted_among(self, artifacts: Sequence[str]) -> set[str]:
        """Return which of these artifacts were deleted."""
        found = self._session.scalars(
            select(SQLTombstone.artifacts).where(SQLTombstone.artifacts.overlap(list(artifacts)))
        )
        return {digest for digests in found for digest in digests}.intersection(artifacts)

    def refused_of(self, keys: Iterable[tuple[str, str]]) -> tuple[tuple[str, str], Tombstone] | None:
        """Return the first of these blobs that is refused, with its tombstone."""
        for kind, digest in keys:
            if found := self.of_refused(kind, digest):
                return (kind, digest), found
        return None

    def refused_among(self, digests: Sequence[str]) -> set[tuple[str, str]]:
        """Return kind and digest of the blobs among these that are refused."""
        wanted = select(SQLRefused.kind, SQLRefused.digest).where(SQLRefused.digest.in_(digests))
        return {(kind, digest) for kind, digest in self._session.execute(wanted)}

    def accept(self, digest: str) -> str | None:
        """Stop refusing a digest; return the time in ISO 8601, UTC, None if it was not refused."""
        statement = delete(_REFUSED).where(_REFUSED.c.digest == digest)
        at = self._session.scalar(statement.returning(func.clock_timestamp()))
        return stamp(at) if at else None

    def accept_until(self, accepted: Mapping[Digest, str]) -> None:
        """Stop refusing digests for which tombstones up to a time were overruled; later ones refuse them still."""
        for digest, at in accepted.items():
            older = select(SQLTombstone.id).where(SQLTombstone.at <= moment(at))
            overruled = (_REFUSED.c.digest == digest, _REFUSED.c.tombstone_id.in_(older))
            self._session.execute(delete(_REFUSED).where(*overruled))

    def unwritten(self, *, limit: int) -> list[tuple[int, Tombstone]]:
        """Return tombstones that storage does not have yet, by id."""
        rows = self._session.scalars(
            select(SQLTombstone).where(SQLTombstone.document.is_(None)).order_by(SQLTombstone.id).limit(limit)
        )
        return [(row.id, self._read(row)) for row in rows]

    def documents(self) -> set[Digest]:
        """Return the digests of all documents that storage should have."""
        rows = self._session.scalars(select(SQLTombstone.document).where(SQLTombstone.document.is_not(None)))
        return {Digest(row) for row in rows if row}

    def forget_document(self, digest: Digest) -> None:
        """Record that storage lacks a document, so that it is written again."""
        self._session.execute(
            update(_TOMBSTONES).where(_TOMBSTONES.c.document == digest).values(document=None)
        )

    def record_document(self, tombstone: int, digest: str) -> None:
        """Record that storage has a tombstone's document."""
        statement = update(_TOMBSTONES).where(_TOMBSTONES.c.id == tombstone)
        self._session.execute(statement.values(document=digest))

    def _refuse(self, tombstone: int, refused: Sequence[tuple[str, str]]) -> None:
        if refused:
            rows = [
                {"kind": kind, "digest": digest, "tombstone_id": tombstone}
                for kind, digest in sorted(refused)
            ]
            self._session.execute(insert(_REFUSED).on_conflict_do_nothing(), rows)

    def _newest(self, *conditions: ColumnElement[bool]) -> Tombstone | None:
        row = self._session.scalar(
            select(SQLTombstone).where(*conditions).order_by(SQLTombstone.id.desc()).limit(1)
        )
        return self._read(row) if row else None

    def _read(self, row: SQLTombstone) -> Tombstone:
        refused = select(SQLRefused.kind, SQLRefused.digest).where(SQLRefused.tombstone_id == row.id)
        return Tombstone(
            row.kind,
            row.name,
            row.reason,
            read_principal(row.by),
            row.model,
            row.number,
            row.forced,
            tuple(each for each in row.artifacts if each.startswith(_DIGEST)),
            tuple(
                (kind, digest) for kind, digest in self._session.execute(refused.order_by("kind", "digest"))
            ),
            stamp(row.at),
            tuple(each for each in row.artifacts if not each.startswith(_DIGEST)),
        )
