"""Models and versions in pages: a fixed number of statements for each page, however long it is."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from sqlalchemy import func, literal_column, select, true, update

from pt2hub.domain.builds import BuildKind, BuildState, readiness
from pt2hub.domain.digests import Digest
from pt2hub.server.db.schema import Artifact as SQLArtifact
from pt2hub.server.db.schema import Build as SQLBuild
from pt2hub.server.db.schema import Model as SQLModel
from pt2hub.server.db.schema import Version as SQLVersion
from pt2hub.server.db.stores.aliases import AliasStore
from pt2hub.server.db.stores.measurement_states import MeasurementStateStore
from pt2hub.server.db.stores.references import newest_ready
from pt2hub.server.db.stores.values import stamp
from pt2hub.wire.shapes import MOST_VERSIONS, ModelView, VersionSummary

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy import ColumnElement, ScalarSelect
    from sqlalchemy.orm import Session


class _Listed(NamedTuple):
    """A build of a version in a list.

    Attributes:
        target: The target's name.
        state: Where it stands.
        first: Whether it counts for the version's readiness.
        artifact: Manifest digest of its artifact, or None.
    """

    target: str
    state: BuildState
    first: bool
    artifact: Digest | None


class CatalogStore:
    """Models and versions, as lists show them."""

    def __init__(self, session: Session) -> None:
        """Works in the caller's transaction."""
        self._session = session

    def model(self, name: str) -> ModelView | None:
        """A model."""
        found = self._models([SQLModel.name == name], limit=1)
        return found[0] if found else None

    def models(self, search: str, *, after: str, limit: int, team: str = "") -> list[ModelView]:
        """Models by name.

        Args:
            search: A part of the name; empty for all models.
            after: The name that they follow.
            limit: At most so many.
            team: Whose; empty for every team's.
        """
        wanted = [SQLModel.name > after]
        if search:
            wanted.append(SQLModel.name.contains(search, autoescape=True))
        if team:
            wanted.append(SQLModel.name.startswith(f"{team}/", autoescape=True))
        return self._models(wanted, limit=limit)

    def describe(self, name: str, text: str) -> None:
        """Says what a model is; one that does not exist stays so."""
        self._session.execute(update(SQLModel).where(SQLModel.name == name).values(description=text))

    def versions(self, model_id: int, *, before: int | None, limit: int) -> list[VersionSummary]:
        """A model's versions, newest first.

        Args:
            model_id: The model's row.
            before: The number that they are below, None for the newest.
            limit: At most so many.
        """
        statement = (
            select(SQLVersion.id, SQLVersion.number, SQLVersion.created_at, SQLModel.name)
            .join(SQLModel)
            .where(SQLVersion.model_id == model_id)
            .order_by(SQLVersion.number.desc())
            .limit(limit)
        )
        if before is not None:
            statement = statement.where(SQLVersion.number < before)
        rows = self._session.execute(statement).all()
        ids = [row.id for row in rows]
        builds, aliases = self._builds(ids), AliasStore(self._session).on_versions(ids)
        measured = MeasurementStateStore(self._session).of(
            build.artifact for each in builds.values() for build in each if build.artifact
        )
        return [
            VersionSummary(
                model=name,
                number=number,
                readiness=readiness([build.state for build in builds.get(id_, ()) if build.first]),
                created_at=stamp(created_at),
                targets={build.target: build.state.value for build in builds.get(id_, ())},
                aliases=tuple(aliases.get(id_, ())),
                measurements={
                    build.target: measured[build.artifact].state
                    for build in builds.get(id_, ())
                    if build.artifact in measured
                },
            )
            for id_, number, created_at, name in rows
        ]

    def _models(self, conditions: list[ColumnElement[bool]], *, limit: int) -> list[ModelView]:
        ready = newest_ready(SQLModel.id).lateral("ready")
        rows = self._session.execute(
            select(SQLModel, _counted(), _newest(), ready.c.number)
            .select_from(SQLModel)
            .outerjoin(ready, true())
            .where(*conditions)
            .order_by(SQLModel.name)
            .limit(limit)
        ).all()
        aliases = AliasStore(self._session).on_models([row[0].id for row in rows])
        return [
            ModelView(
                name=model.name,
                created_at=stamp(model.created_at),
                versions=count,
                newest=newest,
                newest_ready=newest_ready,
                aliases=aliases.get(model.id, {}),
                description=model.description,
            )
            for model, count, newest, newest_ready in rows
        ]

    def _builds(self, version_ids: Sequence[int]) -> dict[int, list[_Listed]]:
        """Builds by the version's row."""
        columns = (SQLBuild.target, SQLBuild.state, SQLBuild.first_submitted, SQLArtifact.digest)
        rows = self._session.execute(
            select(SQLBuild.version_id, *columns)
            .outerjoin(SQLArtifact, SQLArtifact.build_id == SQLBuild.id)
            .where(SQLBuild.version_id.in_(version_ids), SQLBuild.kind == BuildKind.BUILD)
            .order_by(SQLBuild.position)
        )
        found: dict[int, list[_Listed]] = {}
        for version_id, target, state, first, digest in rows:
            build = _Listed(target, BuildState(state), first, Digest(digest) if digest else None)
            found.setdefault(version_id, []).append(build)
        return found


def _counted() -> ScalarSelect[int]:
    """How many versions a model has, as far as they are counted."""
    some = (
        select(literal_column("1"))
        .where(SQLVersion.model_id == SQLModel.id)
        .correlate(SQLModel)
        .limit(literal_column(str(MOST_VERSIONS)))
        .subquery()
    )
    return select(func.count()).select_from(some).scalar_subquery()


def _newest() -> ScalarSelect[int | None]:
    """The number of a model's newest version: by itself, so that it is read off the end of the index."""
    newest = select(func.max(SQLVersion.number)).where(SQLVersion.model_id == SQLModel.id)
    return newest.correlate(SQLModel).scalar_subquery()
