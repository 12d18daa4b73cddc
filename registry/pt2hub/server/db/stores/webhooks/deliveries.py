"""Deliveries of events to webhooks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from sqlalchemy import func, insert, or_, select, text, tuple_, update

from pt2hub.domain.codec import decode, encode
from pt2hub.domain.webhooks import DeliveryState, WebhookEvent
from pt2hub.server.db.stores.values import stamp, storable
from pt2hub.server.db.stores.webhooks.outbox import read_event
from pt2hub.server.db.webhook_schema import Webhook as SQLWebhook
from pt2hub.server.db.webhook_schema import WebhookDelivery as SQLDelivery
from pt2hub.server.db.webhook_schema import WebhookEvent as SQLEvent
from pt2hub.wire.webhooks import DeliveryAttempt, DeliveryView

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime, timedelta

    from sqlalchemy import Table
    from sqlalchemy.orm import Session

_DELIVERIES = cast("Table", SQLDelivery.__table__)
_MAX_ATTEMPTS_KEPT = 20
_TRIM = text("""
    DELETE FROM webhook_deliveries WHERE id IN (
        SELECT id FROM (
            SELECT id, state, row_number() OVER (PARTITION BY webhook_id ORDER BY created_at DESC, id DESC) AS place
            FROM webhook_deliveries
        ) AS numbered WHERE place > :most AND state <> 'pending'
    )
""")


@dataclass(frozen=True, slots=True)
class DueDelivery:
    """A delivery whose next attempt is due.

    Attributes:
        tries: Attempts since it was last queued.
        attempts: All of its attempts that are kept.
    """

    id: int
    event: WebhookEvent
    tries: int
    attempts: tuple[DeliveryAttempt, ...]


class DeliveryStore:
    """Deliveries."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def add(self, event_id: str, webhooks: Sequence[int]) -> None:
        """Queue an event for webhooks."""
        if webhooks:
            rows = [{"webhook_id": webhook, "event_id": event_id} for webhook in webhooks]
            self._session.execute(insert(_DELIVERIES), rows)

    def oldest_due(self, webhook_id: int) -> DueDelivery | None:
        """Return the delivery of a webhook that has been due for longest, if any is."""
        statement = (
            select(SQLDelivery, SQLEvent)
            .join(SQLEvent, SQLEvent.id == SQLDelivery.event_id)
            .where(SQLDelivery.webhook_id == webhook_id, *_due())
            .order_by(SQLDelivery.due_at, SQLDelivery.id)
            .limit(1)
            .execution_options(populate_existing=True)
        )
        found = self._session.execute(statement).first()
        if found is None:
            return None
        row, event = found
        return DueDelivery(row.id, read_event(event), row.tries, _attempts(row))

    def record(
        self,
        delivery: DueDelivery,
        attempt: DeliveryAttempt,
        *,
        state: DeliveryState,
        wait: timedelta | None = None,
    ) -> None:
        """Record an attempt.

        Args:
            wait: Time until the next one.
        """
        kept = (*delivery.attempts, attempt)[-_MAX_ATTEMPTS_KEPT:]
        values: dict[str, Any] = {
            "state": state,
            "tries": delivery.tries + 1,
            "attempts": storable(encode(kept)),
        }
        if wait is not None:
            values["due_at"] = func.clock_timestamp() + wait
        self._session.execute(update(_DELIVERIES).where(_DELIVERIES.c.id == delivery.id).values(values))

    def queue_again(self, webhook_id: int, delivery_id: int) -> DeliveryView | None:
        """Make a delivery due now, with all of its attempts before it; None where the webhook has no such delivery."""
        own = _DELIVERIES.c
        self._session.execute(
            update(_DELIVERIES)
            .where(own.id == delivery_id, own.webhook_id == webhook_id)
            .values(state=DeliveryState.PENDING, tries=0, due_at=func.now())
        )
        found = self.page(webhook_id, after=None, limit=1, delivery_id=delivery_id)
        return found[0] if found else None

    def give_up(self, webhook_id: int) -> None:
        """End the pending deliveries of a webhook as failed."""
        own = _DELIVERIES.c
        pending = (own.webhook_id == webhook_id, own.state == DeliveryState.PENDING)
        self._session.execute(update(_DELIVERIES).where(*pending).values(state=DeliveryState.FAILED))

    def page(
        self,
        webhook_id: int,
        *,
        after: tuple[datetime, int] | None,
        limit: int,
        delivery_id: int | None = None,
    ) -> list[DeliveryView]:
        """Return deliveries of a webhook, newest first.

        Args:
            after: Time and id of the previous page's last delivery; None for the newest.
            delivery_id: Only this one.
        """
        key = (SQLDelivery.created_at, SQLDelivery.id)
        statement = (
            select(SQLDelivery, SQLEvent)
            .join(SQLEvent, SQLEvent.id == SQLDelivery.event_id)
            .where(SQLDelivery.webhook_id == webhook_id)
            .order_by(*(column.desc() for column in key))
            .limit(limit)
            .execution_options(populate_existing=True)
        )
        if after is not None:
            statement = statement.where(tuple_(*key) < after)
        if delivery_id is not None:
            statement = statement.where(SQLDelivery.id == delivery_id)
        return [_view(row, event) for row, event in self._session.execute(statement)]

    def list_webhooks_due(self) -> list[int]:
        """Return the webhooks with due deliveries that no process sends and that do not rest."""
        now = func.clock_timestamp()
        free = or_(SQLWebhook.sending_until.is_(None), SQLWebhook.sending_until < now)
        rested = or_(SQLWebhook.resting_until.is_(None), SQLWebhook.resting_until <= now)
        due = select(SQLDelivery.id).where(SQLDelivery.webhook_id == SQLWebhook.id, *_due()).exists()
        return list(self._session.scalars(select(SQLWebhook.id).where(SQLWebhook.enabled, free, rested, due)))

    def trim(self, most: int) -> None:
        """Delete the oldest ended deliveries of webhooks that have more than these."""
        self._session.execute(_TRIM, {"most": most})


def _due() -> tuple[Any, ...]:
    return (SQLDelivery.state == DeliveryState.PENDING, SQLDelivery.due_at <= func.clock_timestamp())


def _attempts(row: SQLDelivery) -> tuple[DeliveryAttempt, ...]:
    return decode(tuple[DeliveryAttempt, ...], row.attempts)


def _view(row: SQLDelivery, event: SQLEvent) -> DeliveryView:
    return DeliveryView(
        id=row.id,
        event=row.event_id,
        type=event.type,
        state=row.state,
        created_at=stamp(row.created_at),
        model=event.model,
        version=event.version,
        due_at=stamp(row.due_at) if row.state == DeliveryState.PENDING else None,
        attempts=_attempts(row),
    )
