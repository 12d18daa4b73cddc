"""The tables of webhooks. See `schema` for the rules."""

from __future__ import annotations

from datetime import datetime  # noqa: TC003  # SQLAlchemy reads annotations when it runs
from typing import Any

from sqlalchemy import ARRAY, CheckConstraint, ForeignKey, Index, Integer, Text, UniqueConstraint, func, text
from sqlalchemy.orm import Mapped, mapped_column

from pt2hub.domain.webhooks import DeliveryState
from pt2hub.server.db.schema import Base, now, serial_key

_STATES = ", ".join(f"'{state}'" for state in DeliveryState)


class Webhook(Base):
    """A receiver of events about the models that a pattern covers. Workers may read `enabled` and `events` only.

    `sending_until`: a process sends its deliveries, or has died since. `resting_until`: nothing is sent, as the receiver did
    not answer. `failures` and `failing_since` count from the last successful delivery.
    """

    __tablename__ = "webhooks"

    id: Mapped[int] = serial_key()
    address: Mapped[str]
    pattern: Mapped[str]
    events: Mapped[list[str]] = mapped_column(ARRAY(Text))
    enabled: Mapped[bool] = mapped_column(server_default="true")
    disabled_reason: Mapped[str | None]
    failures: Mapped[int] = mapped_column(Integer, server_default="0")
    failing_since: Mapped[datetime | None]
    resting_until: Mapped[datetime | None]
    sending_until: Mapped[datetime | None]
    created_at: Mapped[datetime] = now()
    created_by: Mapped[dict[str, Any] | None]


class WebhookSecret(Base):
    """A secret that signs deliveries, in the clear: a hash could not sign. A replaced one expires."""

    __tablename__ = "webhook_secrets"

    id: Mapped[int] = serial_key()
    webhook_id: Mapped[int] = mapped_column(ForeignKey("webhooks.id", ondelete="CASCADE"), index=True)
    secret: Mapped[str]
    created_at: Mapped[datetime] = now()
    expires_at: Mapped[datetime | None]


class WebhookEvent(Base):
    """An event, written in the transaction of what happened. `key` keeps events that are derived from others from repeating."""

    __tablename__ = "webhook_events"
    __table_args__ = (
        Index("ix_webhook_events_waiting", "at", postgresql_where=text("dispatched_at IS NULL")),
        Index(None, "at"),
    )

    id: Mapped[str] = mapped_column(primary_key=True)
    type: Mapped[str]
    at: Mapped[datetime] = mapped_column(server_default=func.clock_timestamp())
    model: Mapped[str | None]
    version: Mapped[int | None] = mapped_column(Integer)
    by: Mapped[dict[str, Any] | None]
    data: Mapped[dict[str, Any]] = mapped_column(server_default="{}")
    key: Mapped[str | None] = mapped_column(unique=True)
    dispatched_at: Mapped[datetime | None]


class WebhookDelivery(Base):
    """An event on its way to a webhook. `tries` counts attempts since it was last queued; `attempts` lists the latest ones."""

    __tablename__ = "webhook_deliveries"
    __table_args__ = (
        UniqueConstraint("webhook_id", "event_id"),
        CheckConstraint(f"state IN ({_STATES})", name="state"),
        Index(
            "ix_webhook_deliveries_due", "webhook_id", "due_at", postgresql_where=text("state = 'pending'")
        ),
        Index(None, "webhook_id", "created_at", "id"),
        Index(None, "event_id"),
    )

    id: Mapped[int] = serial_key()
    webhook_id: Mapped[int] = mapped_column(ForeignKey("webhooks.id", ondelete="CASCADE"))
    event_id: Mapped[str] = mapped_column(ForeignKey("webhook_events.id", ondelete="CASCADE"))
    state: Mapped[str] = mapped_column(server_default=DeliveryState.PENDING.value)
    tries: Mapped[int] = mapped_column(Integer, server_default="0")
    due_at: Mapped[datetime] = now()
    attempts: Mapped[list[Any]] = mapped_column(server_default="[]")
    created_at: Mapped[datetime] = now()
