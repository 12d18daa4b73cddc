"""Paginated lists of models and versions, with a fixed number of statements per page."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from sqlalchemy import func, literal_column, select, true, update

from pt2hub.domain.builds import BuildKind, BuildState, readiness
from pt2hub.domain.codec import encode
from pt2hub.domain.digests import Digest
from pt2hub.domain.principals import read_principal
from pt2hub.server.db.reading import only_readable
from pt2hub.server.db.schema import Artifact as SQLArtifact
from pt2hub.server.db.schema import Build as SQLBuild
from pt2hub.server.db.schema import Model as SQLModel
from pt2hub.server.db.schema import Version as SQLVersion
from pt2hub.server.db.stores.artifacts.references import newest_ready
from pt2hub.server.db.stores.blobs.damage import DamageStore
from pt2hub.server.db.stores.builds.measurement_states import MeasurementStateStore
from pt2hub.server.db.stores.promotion.aliases import AliasStore
from pt2hub.server.db.stores.publishing.labels import LabelStore
from pt2hub.server.db.stores.publishing.version_search import has_label
from pt2hub.server.db.stores.values import stamp, yank_of
from pt2hub.wire.responses import MAX_COUNTED_VERSIONS, ModelView, VersionSummary

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy import ColumnElement, ScalarSelect
    from sqlalchemy.orm import Session

    from pt2hub.domain.principals import Principal
    from pt2hub.domain.version_filters import LabelFilter


class _ListedBuild(NamedTuple):
    """A build of a listed version, with the manifest digest of its artifact."""

    target: str
    state: BuildState
    first: bool
    artifact: Digest | None


class CatalogStore:
    """Lists of models and versions."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def model(self, name: str) -> ModelView | None:
        """Return a model."""
        found = self._models([SQLModel.name == name], limit=1)
        return found[0] if found else None

    def named(self, names: Sequence[str]) -> dict[str, ModelView]:
        """Return the models that may be read, by name; missing ones are left out."""
        found = self._models([SQLModel.name.in_(names), *only_readable(SQLModel.name)], limit=len(names))
        return {model.name: model for model in found}

    def models(
        self,
        search: str,
        *,
        after: str,
        limit: int,
        team: str = "",
        labels: Sequence[LabelFilter] = (),
    ) -> list[ModelView]:
        """Return the models that may be read, by name.

        Args:
            search: A part of the name; empty for all models.
            team: Only this team's models; empty for all.
            labels: Only models with all of these labels.
        """
        wanted = [SQLModel.name > after, *only_readable(SQLModel.name)]
        wanted += [has_label(label, SQLModel.id) for label in labels]
        if search:
            wanted.append(SQLModel.name.contains(search, autoescape=True))
        if team:
            wanted.append(SQLModel.name.startswith(f"{team}/", autoescape=True))
        return self._models(wanted, limit=limit)

    def describe(self, name: str, text: str, *, by: Principal) -> str | None:
        """Set a model's description; a no-op if the model does not exist or has this description.

        Returns:
            The description that was replaced; None if nothing changed.
        """
        mine = (SQLModel.name == name, SQLModel.description != text)
        before = self._session.scalar(select(SQLModel.description).where(*mine).with_for_update())
        if before is not None:
            values = {"description": text, "described_by": encode(by)}
            self._session.execute(update(SQLModel).where(SQLModel.name == name).values(values))
        return before

    def versions(self, model_id: int, *, before: int | None, limit: int) -> list[VersionSummary]:
        """Return a model's versions, newest first.

        Args:
            before: Exclusive upper bound of the numbers; None for the newest.
        """
        statement = select(SQLVersion.id).where(SQLVersion.model_id == model_id)
        if before is not None:
            statement = statement.where(SQLVersion.number < before)
        return self.summaries(
            self._session.scalars(statement.order_by(SQLVersion.number.desc()).limit(limit)).all()
        )

    def summaries(self, ids: Sequence[int]) -> list[VersionSummary]:
        """Return versions by their ids, in the same order; missing ones are left out."""
        if not ids:
            return []
        rows = self._session.execute(
            select(
                SQLVersion.id,
                SQLVersion.number,
                SQLVersion.created_at,
                SQLVersion.published_by,
                SQLVersion.yanked,
                SQLVersion.label_values,
                SQLModel.name,
            )
            .join(SQLModel)
            .where(SQLVersion.id.in_(ids))
        ).all()
        order = {id_: place for place, id_ in enumerate(ids)}
        rows = sorted(rows, key=lambda row: order[row.id])
        builds, aliases = self._builds(ids), AliasStore(self._session).on_versions(list(ids))
        damaged = DamageStore(self._session).targets_of_versions(ids)
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
                published_by=read_principal(published_by),
                yanked=yank_of(yanked),
                labels=dict(sorted(labels.items())),
                damaged=damaged.get(id_, ()),
            )
            for id_, number, created_at, published_by, yanked, labels, name in rows
        ]

    def _models(self, conditions: list[ColumnElement[bool]], *, limit: int) -> list[ModelView]:
        ready = newest_ready(SQLModel.id).lateral("ready")
        rows = self._session.execute(
            select(SQLModel, _count_versions(), _newest(), ready.c.number)
            .select_from(SQLModel)
            .outerjoin(ready, true())
            .where(*conditions)
            .order_by(SQLModel.name)
            .limit(limit)
        ).all()
        ids = [row[0].id for row in rows]
        aliases, labels = AliasStore(self._session).on_models(ids), LabelStore(self._session).of_models(ids)
        damaged = DamageStore(self._session).targets_of_aliases(ids)
        return [
            ModelView(
                name=model.name,
                created_at=stamp(model.created_at),
                versions=count,
                newest=newest,
                newest_ready=newest_ready,
                aliases=aliases.get(model.id, {}),
                description=model.description,
                described_by=read_principal(model.described_by),
                labels=labels.get(model.id, {}),
                damaged=damaged.get(model.id, {}),
            )
            for model, count, newest, newest_ready in rows
        ]

    def _builds(self, version_ids: Sequence[int]) -> dict[int, list[_ListedBuild]]:
        """Return the builds by the version's id."""
        columns = (SQLBuild.target, SQLBuild.state, SQLBuild.first_submitted, SQLArtifact.digest)
        rows = self._session.execute(
            select(SQLBuild.version_id, *columns)
            .outerjoin(SQLArtifact, SQLArtifact.build_id == SQLBuild.id)
            .where(SQLBuild.version_id.in_(version_ids), SQLBuild.kind == BuildKind.BUILD)
            .order_by(SQLBuild.position)
        )
        found: dict[int, list[_ListedBuild]] = {}
        for version_id, target, state, first, digest in rows:
            build = _ListedBuild(target, BuildState(state), first, Digest(digest) if digest else None)
            found.setdefault(version_id, []).append(build)
        return found


def _count_versions() -> ScalarSelect[int]:
    """Select the number of a model's versions, up to `MAX_COUNTED_VERSIONS`."""
    some = (
        select(literal_column("1"))
        .where(SQLVersion.model_id == SQLModel.id)
        .correlate(SQLModel)
        .limit(literal_column(str(MAX_COUNTED_VERSIONS)))
        .subquery()
    )
    return select(func.count()).select_from(some).scalar_subquery()


def _newest() -> ScalarSelect[int | None]:
    """Select the number of a model's newest version, as a subquery of its own, which reads the end of the index."""
    newest = select(func.max(SQLVersion.number)).where(SQLVersion.model_id == SQLModel.id)
    return newest.correlate(SQLModel).scalar_subquery()
