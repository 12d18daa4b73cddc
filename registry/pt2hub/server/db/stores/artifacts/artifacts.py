"""Artifacts and their rows: an index over manifests."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, cast

from sqlalchemy import select
from sqlalchemy.dialects.postgresql import insert

from pt2hub.domain.artifacts import CODE_TYPE, CREATED, WEIGHTS_TYPE, Descriptor, Manifest
from pt2hub.domain.codec import decode, encode
from pt2hub.domain.digests import Digest
from pt2hub.domain.performance.autotune import AutotuneChoice
from pt2hub.errors import InternalError
from pt2hub.server.db.schema import ArchiveMember as SQLArchiveMember
from pt2hub.server.db.schema import Artifact as SQLArtifact
from pt2hub.server.db.schema import AutotuneChoice as SQLAutotuneChoice
from pt2hub.server.db.schema import Build as SQLBuild
from pt2hub.server.db.schema import Environment as SQLEnvironment
from pt2hub.server.db.schema import Model as SQLModel
from pt2hub.server.db.schema import Referrer as SQLReferrer
from pt2hub.server.db.schema import Target as SQLTarget
from pt2hub.server.db.schema import Version as SQLVersion
from pt2hub.server.db.stores.artifacts.regions import RegionStore
from pt2hub.server.db.stores.operations.workers import WorkerStore
from pt2hub.server.db.stores.performance.measurements import PerformanceStore
from pt2hub.server.db.stores.values import moment, stamp, storable, yank_of
from pt2hub.wire.resolution import ArtifactRef, Yank

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy import Table
    from sqlalchemy.orm import DeclarativeBase, Session

    from pt2hub.domain.publications import Publication


MAX_CANDIDATES = 16
"""Candidates for code reuse: a model that is retrained daily has thousands of artifacts with one program key."""


_TABLE = cast("Table", SQLArtifact.__table__)
_ADD = insert(_TABLE).on_conflict_do_nothing(index_elements=["digest"]).returning(_TABLE.c.digest)
_REFER = insert(cast("Table", SQLReferrer.__table__)).on_conflict_do_nothing()


@dataclass(frozen=True, slots=True)
class ArtifactOwner:
    """The version that an artifact belongs to.

    Attributes:
        yanked: Its yank, None if it is not yanked.
    """

    number: int
    yanked: Yank | None


class ArtifactStore:
    """Artifacts with their referrers, archive members, autotune choices and measurements."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def add(self, build_id: str, attempt: int, publication: Publication) -> bool:
        """Add an artifact with all its rows, unless it exists.

        Returns:
            Whether it was added.
        """
        workers = WorkerStore(self._session)
        workers.add_target(publication.config.target)
        environment = workers.add_environment(publication.config.environment)
        row = artifact_row(publication) | {
            "build_id": build_id,
            "attempt": attempt,
            "environment": environment,
        }
        if self._session.execute(_ADD, row).first() is None:
            return False
        self._add_index(publication)
        return True

    def taken(self, version_id: int, target: str | None = None) -> bool:
        """Return whether a version has an artifact for a target, or for any where omitted."""
        statement = (
            select(SQLArtifact.digest)
            .join(SQLBuild, SQLBuild.id == SQLArtifact.build_id)
            .where(SQLBuild.version_id == version_id)
        )
        if target is not None:
            statement = statement.where(SQLBuild.target == target)
        return self._session.execute(statement.limit(1)).first() is not None

    def owner(self, model: str, digest: Digest) -> ArtifactOwner | None:
        """Return the model's version that an artifact or referrer belongs to."""
        referred = select(SQLReferrer.artifact).where(SQLReferrer.digest == digest)
        statement = (
            select(SQLVersion.number, SQLVersion.yanked)
            .select_from(SQLArtifact)
            .join(SQLBuild, SQLBuild.id == SQLArtifact.build_id)
            .join(SQLVersion, SQLVersion.id == SQLBuild.version_id)
            .join(SQLModel, SQLModel.id == SQLVersion.model_id)
            .where(SQLModel.name == model)
            .where((SQLArtifact.digest == digest) | SQLArtifact.digest.in_(referred))
        )
        row = self._session.execute(statement).first()
        return ArtifactOwner(row[0], yank_of(row[1])) if row else None

    def model_of(self, digest: str) -> str | None:
        """Return the name of the model that the artifact with this manifest digest belongs to."""
        statement = (
            select(SQLModel.name)
            .join(SQLVersion, SQLVersion.model_id == SQLModel.id)
            .join(SQLBuild, SQLBuild.version_id == SQLVersion.id)
            .join(SQLArtifact, SQLArtifact.build_id == SQLBuild.id)
            .where(SQLArtifact.digest == digest)
        )
        return self._session.scalar(statement)

    def ref(self, digest: Digest) -> ArtifactRef | None:
        """Return the artifact with this manifest digest."""
        found = self._session.execute(
            select(SQLBuild.target, SQLArtifact.digest, SQLArtifact.created_at)
            .join(SQLBuild, SQLBuild.id == SQLArtifact.build_id)
            .where(SQLArtifact.digest == digest)
        ).first()
        return ArtifactRef(found[0], Digest(found[1]), stamp(found[2])) if found else None

    def with_key(self, program_key: Digest, team: str) -> list[Digest]:
        """Return the manifest digests of a team's newest artifacts with a program key, newest first."""
        statement = (
            select(SQLArtifact.digest)
            .join(SQLBuild, SQLBuild.id == SQLArtifact.build_id)
            .join(SQLVersion, SQLVersion.id == SQLBuild.version_id)
            .join(SQLModel, SQLModel.id == SQLVersion.model_id)
            .where(
                SQLArtifact.program_key == program_key, SQLModel.name.startswith(f"{team}/", autoescape=True)
            )
            .order_by(SQLArtifact.created_at.desc(), SQLArtifact.digest)
            .limit(MAX_CANDIDATES)
        )
        return [Digest(digest) for digest in self._session.scalars(statement)]

    def rows(self, digest: Digest) -> dict[str, Any] | None:
        """Return all rows of an artifact as JSON values, or None where it does not exist."""
        facts = self.facts(digest)
        if facts is None:
            return None
        return {
            **facts,
            "members": self._below(SQLArchiveMember, digest, "position"),
            "autotune": self._below(SQLAutotuneChoice, digest, "id"),
            "measurements": PerformanceStore(self._session).of(digest),
            "referrers": self._below(SQLReferrer, digest, "digest"),
        }

    def facts(self, digest: Digest) -> dict[str, Any] | None:
        """Return `rows` without the long lists: members, autotuning, measurements and referrers."""
        found = self._session.execute(
            select(SQLArtifact, SQLBuild, SQLVersion.number, SQLModel.name, SQLTarget, SQLEnvironment)
            .join(SQLBuild, SQLBuild.id == SQLArtifact.build_id)
            .join(SQLVersion, SQLVersion.id == SQLBuild.version_id)
            .join(SQLModel, SQLModel.id == SQLVersion.model_id)
            .join(SQLTarget, SQLTarget.name == SQLBuild.target)
            .join(SQLEnvironment, SQLEnvironment.digest == SQLArtifact.environment)
            .where(SQLArtifact.digest == digest)
        ).first()
        if found is None:
            return None
        artifact, build, number, model, target, environment = found
        return {
            "model": model,
            "number": number,
            "target": target.name,
            "device": target.device,
            "arch": target.arch,
            "build": build.id,
            **_fields(artifact, without=("build_id", "environment")),
            "environment": environment.fields,
        }

    def refer(self, artifact: Digest, referrers: Sequence[Manifest]) -> None:
        """Add referrers of an artifact; existing ones stay."""
        if referrers:
            rows = [{"artifact": artifact, **storable(referrer_row(item))} for item in referrers]
            self._session.execute(_REFER, rows)

    def complete_choices(self, artifact: Digest, autotune: Sequence[dict[str, Any]]) -> None:
        """Add the autotune choices of an artifact that has none: its table may have been unreadable before."""
        if not self._below(SQLAutotuneChoice, artifact, "id"):
            self._add_choices(artifact, autotune)

    def _add_index(self, publication: Publication) -> None:
        artifact = publication.manifest.digest
        members = enumerate(publication.config.single_file.members)
        self._add_rows(SQLArchiveMember, artifact, [{**encode(item), "position": at} for at, item in members])
        self._add_choices(artifact, publication.autotune)
        RegionStore(self._session).add(artifact, publication.config.regions)
        self.refer(artifact, publication.referrers)
        for run in publication.runs:
            PerformanceStore(self._session).add_run(artifact, run)

    def _add_choices(self, artifact: Digest, autotune: Sequence[dict[str, Any]]) -> None:
        choices = [decode(AutotuneChoice, item) for item in autotune]
        self._add_rows(SQLAutotuneChoice, artifact, [encode(item) for item in choices])

    def _add_rows(self, table: type[DeclarativeBase], artifact: Digest, rows: list[dict[str, Any]]) -> None:
        if rows:  # by the table and not its class, which SQLAlchemy would look up for each row
            values = [{"artifact": artifact, **storable(row)} for row in rows]
            self._session.execute(insert(cast("Table", table.__table__)), values)

    def _below(self, table: type[DeclarativeBase], artifact: Digest, order: str) -> list[dict[str, Any]]:
        columns = table.__table__.c
        statement = select(table).where(columns["artifact"] == artifact).order_by(columns[order])
        hidden = ("artifact", "environment", "id", "position")
        return [_fields(row, without=hidden) for row in self._session.scalars(statement)]


def artifact_row(publication: Publication) -> dict[str, Any]:
    """Return an artifact's row, without its build, attempt and environment."""
    manifest, config = publication.manifest, publication.config
    code, weights = _layer(manifest, CODE_TYPE), _layer(manifest, WEIGHTS_TYPE)
    return {
        "digest": manifest.digest,
        "program_key": config.key.digest,
        "config": manifest.config.digest,
        "code": code.digest,
        "code_bytes": code.size,
        "weights": weights.digest,
        "weights_bytes": weights.size,
        "single_file": config.single_file.digest,
        "single_file_bytes": config.single_file.size,
        "dtype": config.dtype,
        "verification": storable(config.verification),
        "provenance": storable(config.provenance),
        "created_at": _creation_time(manifest),
        **encode(config.toolchain),
    }


def referrer_row(manifest: Manifest) -> dict[str, Any]:
    """Return a referrer's row, without its artifact."""
    return {
        "digest": manifest.digest,
        "artifact_type": manifest.artifactType,
        "size": len(manifest.as_bytes()),
        "annotations": manifest.annotations,
    }


def _layer(manifest: Manifest, media_type: str) -> Descriptor:
    layer = manifest.layer(media_type)
    if layer is None:
        raise InternalError(f"The manifest has no layer of type {media_type}", where=manifest.digest)
    return layer


def _creation_time(manifest: Manifest) -> datetime:
    """Return when the artifact was created, from the manifest if possible, so that a reindex gives the same time."""
    return moment(manifest.annotations.get(CREATED)) or datetime.now(UTC)


def _fields(row: DeclarativeBase, *, without: tuple[str, ...] = ()) -> dict[str, Any]:
    columns = [column.name for column in row.__table__.columns]
    fields = {name: getattr(row, name) for name in columns if name not in without}
    return {name: stamp(value) if hasattr(value, "astimezone") else value for name, value in fields.items()}
