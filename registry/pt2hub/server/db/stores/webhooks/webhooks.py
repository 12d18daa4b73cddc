"""Webhooks and their secrets."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from sqlalchemy import case, func, insert, or_, select, update
from sqlalchemy.dialects.postgresql import ARRAY, TEXT
from sqlalchemy.sql.expression import cast as sql_cast

from pt2hub.domain.codec import encode
from pt2hub.domain.principals import read_principal
from pt2hub.server.db.stores.values import optional_stamp, stamp
from pt2hub.server.db.webhook_schema import Webhook as SQLWebhook
from pt2hub.server.db.webhook_schema import WebhookSecret as SQLSecret
from pt2hub.wire.webhooks import WebhookView

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime, timedelta

    from sqlalchemy import ColumnElement, Table
    from sqlalchemy.orm import Session

    from pt2hub.domain.principals import Principal

_WEBHOOKS = cast("Table", SQLWebhook.__table__)
_SECRETS = cast("Table", SQLSecret.__table__)
_TEAM: ColumnElement[str] = func.split_part(_WEBHOOKS.c.pattern, "/", 1)


class WebhookStore:
    """Webhooks."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def count(self, team: str) -> int:
        """Return the number of webhooks of a team, by the first part of their patterns."""
        statement = select(func.count()).select_from(_WEBHOOKS).where(_TEAM.in_([team]))
        return self._session.scalar(statement) or 0

    def team(self, webhook_id: int) -> str | None:
        """Return the first part of a webhook's pattern; None where it does not exist."""
        found: str | None = self._session.scalar(select(_TEAM).where(_WEBHOOKS.c.id == webhook_id))
        return found

    def add(self, address: str, *, pattern: str, events: Sequence[str], by: Principal) -> WebhookView:
        """Add an enabled webhook."""
        values = {"address": address, "pattern": pattern, "events": list(events), "created_by": encode(by)}
        return _view(self._session.scalars(insert(SQLWebhook).values(values).returning(SQLWebhook)).one())

    def all(self) -> tuple[WebhookView, ...]:
        """Return all webhooks, oldest first."""
        return tuple(map(_view, self._session.scalars(select(SQLWebhook).order_by(SQLWebhook.id))))

    def lock(self, webhook_id: int) -> WebhookView | None:
        """Return a webhook, locked until the transaction ends; None where it does not exist."""
        statement = select(SQLWebhook).where(SQLWebhook.id == webhook_id).with_for_update()
        row = self._session.scalars(statement.execution_options(populate_existing=True)).first()
        return _view(row) if row else None

    def subscribed(self, kind: str) -> tuple[WebhookView, ...]:
        """Return the enabled webhooks for events of a type, and keep them until the transaction ends."""
        wanted = _WEBHOOKS.c.events.op("@>")(sql_cast([kind], ARRAY(TEXT)))
        # Shared locks: a webhook that is being deleted must not get a delivery.
        statement = select(SQLWebhook).where(SQLWebhook.enabled, wanted).order_by(SQLWebhook.id)
        rows = self._session.scalars(
            statement.with_for_update(key_share=True, read=True).execution_options(populate_existing=True)
        )
        return tuple(map(_view, rows))

    def set_enabled(self, webhook_id: int, *, enabled: bool, reason: str | None = None) -> None:
        """Enable a webhook, whose failures are forgotten, or disable it.

        Args:
            reason: Why it is disabled.
        """
        fresh = (
            {"failures": 0, "failing_since": None, "resting_until": None} if enabled else dict[str, None]()
        )
        self._update(webhook_id, enabled=enabled, disabled_reason=reason, **fresh)

    def delete(self, webhook_id: int) -> None:
        """Delete a webhook with its secrets and deliveries."""
        self._session.execute(_WEBHOOKS.delete().where(_WEBHOOKS.c.id == webhook_id))

    # -- sending ------------------------------------------------------------------------------------------

    def begin_sending(self, webhook_id: int, *, lease: timedelta) -> str | None:
        """Let this process send a webhook's deliveries.

        Returns:
            The webhook's address; None where another process sends them, or the webhook is disabled or rests.
        """
        now, own = func.clock_timestamp(), _WEBHOOKS.c
        free = or_(own.sending_until.is_(None), own.sending_until < now)
        rested = or_(own.resting_until.is_(None), own.resting_until <= now)
        statement = update(_WEBHOOKS).where(own.id == webhook_id, own.enabled, free, rested)
        address: str | None = self._session.scalar(
            statement.values(sending_until=now + lease).returning(own.address)
        )
        return address

    def keep_sending(self, webhook_id: int, *, lease: timedelta) -> None:
        """Extend the time until another process may send."""
        self._update(webhook_id, sending_until=func.clock_timestamp() + lease)

    def end_sending(self, webhook_id: int) -> None:
        """Let other processes send."""
        self._update(webhook_id, sending_until=None)

    def record_success(self, webhook_id: int) -> None:
        """Forget the failures."""
        self._update(webhook_id, failures=0, failing_since=None, resting_until=None)

    def record_failure(self, webhook_id: int) -> tuple[int, datetime]:
        """Count a failure; return how many there were since the last success, and since when."""
        own = _WEBHOOKS.c
        statement = (
            update(_WEBHOOKS)
            .where(own.id == webhook_id)
            .values(failures=own.failures + 1, failing_since=func.coalesce(own.failing_since, func.now()))
            .returning(own.failures, own.failing_since)
        )
        failures, since = self._session.execute(statement).one()
        return failures, since

    def rest(self, webhook_id: int, *, lasting: timedelta) -> None:
        """Send nothing for a while."""
        self._update(webhook_id, resting_until=func.clock_timestamp() + lasting)

    # -- secrets ------------------------------------------------------------------------------------------

    def secrets(self, webhook_id: int) -> list[str]:
        """Return the secrets that sign, newest first."""
        valid = or_(SQLSecret.expires_at.is_(None), SQLSecret.expires_at > func.now())
        statement = select(SQLSecret.secret).where(SQLSecret.webhook_id == webhook_id, valid)
        return list(self._session.scalars(statement.order_by(SQLSecret.id.desc())))

    def replace_secret(self, webhook_id: int, secret: str, *, overlap: timedelta) -> None:
        """Add a secret; those before it end after the overlap, or earlier if they did so already."""
        own = _SECRETS.c
        end = func.now() + overlap
        sooner = case((own.expires_at < end, own.expires_at), else_=end)
        self._session.execute(update(_SECRETS).where(own.webhook_id == webhook_id).values(expires_at=sooner))
        self._session.execute(insert(_SECRETS).values(webhook_id=webhook_id, secret=secret))

    def forget_secrets(self) -> None:
        """Delete the secrets that have ended."""
        self._session.execute(_SECRETS.delete().where(_SECRETS.c.expires_at < func.now()))

    def _update(self, webhook_id: int, **values: object) -> None:
        self._session.execute(update(_WEBHOOKS).where(_WEBHOOKS.c.id == webhook_id).values(**values))


def _view(row: SQLWebhook) -> WebhookView:
    return WebhookView(
        id=row.id,
        address=row.address,
        pattern=row.pattern,
        events=tuple(row.events),
        enabled=row.enabled,
        created_at=stamp(row.created_at),
        disabled_reason=row.disabled_reason,
        failing_since=optional_stamp(row.failing_since),
        created_by=read_principal(row.created_by),
    )
