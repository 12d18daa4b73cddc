"""Versions with flagged changes: the events of each version and outcome as one."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from sqlalchemy import case, func, literal, select, tuple_

from pt2hub.domain.principals import read_principal
from pt2hub.server.db.performance_schema import PerformanceEvent as SQLEvent
from pt2hub.server.db.performance_schema import Series as SQLSeries
from pt2hub.server.db.reading import only_readable
from pt2hub.server.db.schema import Alias as SQLAlias
from pt2hub.server.db.schema import Label as SQLLabel
from pt2hub.server.db.schema import Model as SQLModel
from pt2hub.server.db.schema import Version as SQLVersion

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from sqlalchemy import ColumnElement, Subquery
    from sqlalchemy.orm import Session

_OWNER = "owner"
"""The label that says whom to ask (`domain.labels.WELL_KNOWN`)."""
_GROUP = (SQLEvent.model_id, SQLEvent.number, SQLEvent.outcome)
_SIZE = func.max(case((SQLEvent.ratio > 0, func.abs(func.ln(SQLEvent.ratio))), else_=literal(0.0)))
_SEVERITY = _SIZE * case((SQLEvent.outcome == "worse", 1), else_=-1)
"""Larger regressions are larger; improvements are below all regressions."""


@dataclass(frozen=True, slots=True)
class ChangeFilter:
    """Conditions of a list of changes; None matches everything.

    Attributes:
        model: Name of the model.
        team: Name of the team.
        since: Only events that were flagged after this time.
    """

    model: str | None = None
    team: str | None = None
    target: str | None = None
    outcome: str | None = None
    since: datetime | None = None


@dataclass(frozen=True, slots=True)
class ChangeKey:
    """The events of a version with one outcome.

    Attributes:
        at: Time of the newest event.
        event: The largest id of an event.
        severity: Size of the strongest change, as a logarithm; negative for improvements.
    """

    model_id: int
    model: str
    number: int
    outcome: str
    at: datetime
    event: int
    severity: float


@dataclass(frozen=True, slots=True)
class PublishedVersion:
    """Who published a version and when, who owns it by its labels, and the aliases that point to it."""

    publisher: str | None
    at: datetime
    aliases: tuple[str, ...]
    owner: str | None = None


class VersionChangeStore:
    """Versions with flagged changes."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def newest(
        self, wanted: ChangeFilter, *, after: tuple[datetime, int] | None, limit: int
    ) -> list[ChangeKey]:
        """Return changes, the most recently flagged first.

        Args:
            after: Time and event of the previous page's last change; None for the newest.
        """
        found = self._grouped(wanted)
        return self._page(found, (found.c.at, found.c.event), after, limit)

    def worst(self, wanted: ChangeFilter, *, after: tuple[float, int] | None, limit: int) -> list[ChangeKey]:
        """Return changes, the largest regressions first and the largest improvements last.

        Args:
            after: Severity and event of the previous page's last change; None for the worst.
        """
        found = self._grouped(wanted)
        return self._page(found, (found.c.severity, found.c.event), after, limit)

    def count(self, wanted: ChangeFilter, production: Collection[str]) -> tuple[int, int]:
        """Return how many versions match, and to how many of them an alias points.

        Args:
            production: Beginnings of the names of those aliases, lower case.
        """
        found = self._grouped(wanted)
        named = [func.lower(SQLAlias.name).startswith(name, autoescape=True) for name in production]
        points_to_it = (
            select(literal(1))
            .select_from(SQLAlias)
            .join(SQLVersion, SQLVersion.id == SQLAlias.version_id)
            .where(SQLAlias.model_id == found.c.model_id, SQLVersion.number == found.c.number)
            .where(named[0] if len(named) == 1 else named[0] | named[1])
            .exists()
        )
        row = self._session.execute(
            select(func.count(), func.count().filter(points_to_it)).select_from(found)
        ).one()
        return int(row[0]), int(row[1])

    def published(self, versions: Collection[tuple[int, int]]) -> dict[tuple[int, int], PublishedVersion]:
        """Return versions by model id and number; deleted ones are missing."""
        if not versions:
            return {}
        wanted = tuple_(SQLVersion.model_id, SQLVersion.number).in_(list(versions))
        aliases = (
            select(func.array_agg(SQLAlias.name))
            .where(SQLAlias.version_id == SQLVersion.id)
            .scalar_subquery()
        )
        of_model = (
            select(SQLLabel.value)
            .where(
                SQLLabel.model_id == SQLVersion.model_id,
                SQLLabel.version_id.is_(None),
                SQLLabel.key == _OWNER,
            )
            .scalar_subquery()
        )
        columns = (
            SQLVersion.model_id,
            SQLVersion.number,
            SQLVersion.published_by,
            SQLVersion.created_at,
            aliases,
            func.coalesce(SQLVersion.label_values[_OWNER].astext, of_model),
        )
        return {
            (model, number): PublishedVersion(_name(by), at, tuple(sorted(names or ())), owner)
            for model, number, by, at, names, owner in self._session.execute(select(*columns).where(wanted))
        }

    def _grouped(self, wanted: ChangeFilter) -> Subquery:
        return (
            select(
                *_GROUP,
                SQLModel.name.label("model"),
                func.max(SQLEvent.at).label("at"),
                func.max(SQLEvent.id).label("event"),
                _SEVERITY.label("severity"),
            )
            .join(SQLModel, SQLModel.id == SQLEvent.model_id)
            .join(SQLSeries, SQLSeries.id == SQLEvent.series_id)
            .where(*conditions(wanted), *only_readable(SQLModel.name))
            .group_by(*_GROUP, SQLModel.name)
            .subquery()
        )

    def _page(
        self,
        found: Subquery,
        order: Sequence[ColumnElement[object]],
        after: tuple[object, int] | None,
        limit: int,
    ) -> list[ChangeKey]:
        columns = (
            found.c[name] for name in ("model_id", "model", "number", "outcome", "at", "event", "severity")
        )
        statement = select(*columns).order_by(*(column.desc() for column in order)).limit(limit)
        if after is not None:
            statement = statement.where(tuple_(*order) < after)
        return [ChangeKey(*row) for row in self._session.execute(statement)]


def conditions(wanted: ChangeFilter) -> list[ColumnElement[bool]]:
    """Return the conditions on events, joined with their models and series."""
    found = []
    if wanted.model is not None:
        found.append(SQLModel.name == wanted.model)
    if wanted.team is not None:
        found.append(SQLModel.name.startswith(f"{wanted.team}/", autoescape=True))
    if wanted.target is not None:
        found.append(SQLSeries.target == wanted.target)
    if wanted.outcome is not None:
        found.append(SQLEvent.outcome == wanted.outcome)
    if wanted.since is not None:
        found.append(SQLEvent.at > wanted.since)
    return found


def _name(value: object) -> str | None:
    principal = read_principal(value)
    return principal.name if principal else None
