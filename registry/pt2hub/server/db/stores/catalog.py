"""Models and versions in pages: a fixed number of statements for each page, however long it is."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import func, select, true

from pt2hub.domain.builds import BuildKind, BuildState, readiness
from pt2hub.server.db.schema import Build as SQLBuild
from pt2hub.server.db.schema import Model as SQLModel
from pt2hub.server.db.schema import Version as SQLVersion
from pt2hub.server.db.stores.aliases import AliasStore
from pt2hub.server.db.stores.references import newest_ready
from pt2hub.server.db.stores.values import stamp
from pt2hub.wire.shapes import ModelView, VersionSummary

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy import ColumnElement
    from sqlalchemy.orm import Session


class CatalogStore:
    """Models and versions, as lists show them."""

    def __init__(self, session: Session) -> None:
        """Works in the caller's transaction."""
        self._session = session

    def model(self, name: str) -> ModelView | None:
        """A model."""
        found = self._models([SQLModel.name == name], limit=1)
        return found[0] if found else None

    def models(self, search: str, *, after: str, limit: int) -> list[ModelView]:
        """Models by name.

        Args:
            search: A part of the name; empty for all models.
            after: The name that they follow.
            limit: At most so many.
        """
        found = SQLModel.name.contains(search, autoescape=True)
        return self._models(
            [SQLModel.name > after, found] if search else [SQLModel.name > after], limit=limit
        )

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
        return [
            VersionSummary(
                model=name,
                number=number,
                readiness=readiness([state for _, state, first in builds.get(id_, ()) if first]),
                created_at=stamp(created_at),
                targets={target: state.value for target, state, _ in builds.get(id_, ())},
                aliases=tuple(aliases.get(id_, ())),
            )
            for id_, number, created_at, name in rows
        ]

    def _models(self, conditions: list[ColumnElement[bool]], *, limit: int) -> list[ModelView]:
        counted = (
            select(func.count().label("count"), func.max(SQLVersion.number).label("newest"))
            .where(SQLVersion.model_id == SQLModel.id)
            .lateral("counted")
        )
        ready = newest_ready(SQLModel.id).lateral("ready")
        rows = self._session.execute(
            select(SQLModel, counted.c.count, counted.c.newest, ready.c.number)
            .select_from(SQLModel)
            .join(counted, true())
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

    def _builds(self, version_ids: Sequence[int]) -> dict[int, list[tuple[str, BuildState, bool]]]:
        """Target, state and whether it counts for readiness, of each build, by the version's row."""
        rows = self._session.execute(
            select(SQLBuild.version_id, SQLBuild.target, SQLBuild.state, SQLBuild.first_submitted)
            .where(SQLBuild.version_id.in_(version_ids), SQLBuild.kind == BuildKind.BUILD)
            .order_by(SQLBuild.position)
        )
        found: dict[int, list[tuple[str, BuildState, bool]]] = {}
        for version_id, target, state, first in rows:
            found.setdefault(version_id, []).append((target, BuildState(state), first))
        return found
