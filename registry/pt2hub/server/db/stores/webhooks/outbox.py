"""Events for webhooks: written with what happened, by API processes and workers, and read by those that send them."""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from sqlalchemy import func, insert, select, text, update
from sqlalchemy.dialects import postgresql

from pt2hub.domain.builds import BuildState
from pt2hub.domain.codec import encode
from pt2hub.domain.principals import Principal, PrincipalKind, read_principal
from pt2hub.domain.webhooks import WebhookEvent
from pt2hub.server.db.schema import Build as SQLBuild
from pt2hub.server.db.schema import Model as SQLModel
from pt2hub.server.db.schema import Version as SQLVersion
from pt2hub.server.db.stores.values import optional_stamp, stamp, storable
from pt2hub.server.db.webhook_schema import WebhookEvent as SQLEvent

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import timedelta

    from sqlalchemy import Table
    from sqlalchemy.orm import Session

_EVENTS = cast("Table", SQLEvent.__table__)
_SERVER = Principal(PrincipalKind.SERVER, "server")
_WATCHED = text("SELECT EXISTS (SELECT FROM webhooks WHERE enabled AND events && CAST(:types AS text[]))")


@dataclass(frozen=True, slots=True)
class EndedBuild:
    """What an event says of a build.

    Attributes:
        by: Who had it built: with the version, as a further target, or by a retry.
        cancelled_by: Who cancelled it, or None.
    """

    model: str
    number: int
    target: str
    attempt: int
    by: Principal | None
    cancelled_by: Principal | None


@dataclass(frozen=True, slots=True)
class FirstBuild:
    """A build that counts for the readiness of its version.

    Attributes:
        finished_at: ISO 8601, None while it has not ended.
    """

    id: str
    target: str
    state: BuildState
    finished_at: str | None


class OutboxStore:
    """Events that wait to be dispatched to webhooks."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def is_watched(self, types: Iterable[str]) -> bool:
        """Return whether an enabled webhook wants events of one of these types; workers may read no more of webhooks."""
        return bool(self._session.scalar(_WATCHED, {"types": list(types)}))

    def add(  # an event has as many fields
        self,
        kind: str,
        *,
        model: str | None,
        version: int | None,
        by: Principal | None,
        data: dict[str, Any],
        key: str | None = None,
    ) -> str | None:
        """Add an event.

        Args:
            key: What it is derived from; a second event with the same key is not added.

        Returns:
            Its id; None where one with its key exists.
        """
        event_id = f"evt_{secrets.token_hex(16)}"
        values = {
            "id": event_id,
            "type": kind,
            "model": model,
            "version": version,
            "by": encode(by or _SERVER),
            "data": storable(encode(data)),
        }
        if key is None:
            self._session.execute(insert(_EVENTS).values(values))
            return event_id
        statement = postgresql.insert(_EVENTS).values(**values, key=key).on_conflict_do_nothing()
        return self._session.execute(statement.returning(_EVENTS.c.id)).scalar_one_or_none()

    def ended_build(self, build_id: str) -> EndedBuild:
        """Return what an event says of a build, which exists."""
        build, model, number = self._session.execute(
            select(SQLBuild, SQLModel.name, SQLVersion.number)
            .join(SQLVersion, SQLVersion.id == SQLBuild.version_id)
            .join(SQLModel, SQLModel.id == SQLVersion.model_id)
            .where(SQLBuild.id == build_id)
            .execution_options(populate_existing=True)
        ).one()
        by = read_principal(build.retried_by) or read_principal(build.requested_by)
        return EndedBuild(model, number, build.target, build.attempt, by, read_principal(build.cancelled_by))

    def first_builds(self, version_id: int) -> list[FirstBuild]:
        """Return the builds that count for a version's readiness, in the order submitted."""
        rows = self._session.execute(
            select(SQLBuild.id, SQLBuild.target, SQLBuild.state, SQLBuild.finished_at)
            .where(SQLBuild.version_id == version_id, SQLBuild.first_submitted)
            .order_by(SQLBuild.position)
        )
        return [
            FirstBuild(build_id, target, BuildState(state), optional_stamp(end))
            for build_id, target, state, end in rows
        ]

    def model_names(self, ids: Iterable[int]) -> dict[int, str]:
        """Return names of models by id."""
        rows = self._session.execute(
            select(SQLModel.id, SQLModel.name).where(SQLModel.id.in_(list(set(ids))))
        )
        return {model_id: name for model_id, name in rows}  # noqa: C416  # rows are not pairs to mypy

    def take(self, event_id: str) -> WebhookEvent | None:
        """Mark an event as dispatched and return it; None where another process did."""
        statement = (
            update(_EVENTS)
            .where(_EVENTS.c.id == event_id, _EVENTS.c.dispatched_at.is_(None))
            .values(dispatched_at=func.now())
        )
        if self._session.execute(statement.returning(_EVENTS.c.id)).first() is None:
            return None
        return read_event(self._session.get_one(SQLEvent, event_id, populate_existing=True))

    def list_waiting(self, *, for_at_least: timedelta, limit: int) -> list[str]:
        """Return events that nobody has dispatched for a while, oldest first."""
        overdue = SQLEvent.dispatched_at.is_(None) & (SQLEvent.at < func.now() - for_at_least)
        return list(
            self._session.scalars(select(SQLEvent.id).where(overdue).order_by(SQLEvent.at).limit(limit))
        )

    def forget(self, *, older_than: timedelta) -> None:
        """Delete old events, and their deliveries."""
        self._session.execute(_EVENTS.delete().where(_EVENTS.c.at < func.now() - older_than))


def read_event(row: SQLEvent) -> WebhookEvent:
    """Return the event of a row."""
    return WebhookEvent(
        row.id, row.type, stamp(row.at), row.model, row.version, read_principal(row.by), row.data
    )
