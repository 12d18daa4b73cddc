"""Webhooks, their secrets, the events for them and the deliveries of these."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import ARRAY, JSONB

revision = "0028"
down_revision = "0027"
branch_labels = None
depends_on = None

_TIME = sa.DateTime(timezone=True)


def upgrade() -> None:
    op.create_table(
        "webhooks",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=True), nullable=False),
        sa.Column("address", sa.Text(), nullable=False),
        sa.Column("pattern", sa.Text(), nullable=False),
        sa.Column("events", ARRAY(sa.Text()), nullable=False),
        sa.Column("enabled", sa.Boolean(), server_default="true", nullable=False),
        sa.Column("disabled_reason", sa.Text(), nullable=True),
        sa.Column("failures", sa.Integer(), server_default="0", nullable=False),
        sa.Column("failing_since", _TIME, nullable=True),
        sa.Column("resting_until", _TIME, nullable=True),
        sa.Column("sending_until", _TIME, nullable=True),
        sa.Column("created_at", _TIME, server_default=sa.text("now()"), nullable=False),
        sa.Column("created_by", JSONB(none_as_null=True), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_webhooks")),
    )
    op.create_table(
        "webhook_secrets",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=True), nullable=False),
        sa.Column("webhook_id", sa.BigInteger(), nullable=False),
        sa.Column("secret", sa.Text(), nullable=False),
        sa.Column("created_at", _TIME, server_default=sa.text("now()"), nullable=False),
        sa.Column("expires_at", _TIME, nullable=True),
        sa.ForeignKeyConstraint(
            ["webhook_id"],
            ["webhooks.id"],
            name=op.f("fk_webhook_secrets_webhook_id_webhooks"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_webhook_secrets")),
    )
    op.create_index(op.f("ix_webhook_secrets_webhook_id"), "webhook_secrets", ["webhook_id"])
    op.create_table(
        "webhook_events",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("type", sa.Text(), nullable=False),
        sa.Column("at", _TIME, server_default=sa.text("clock_timestamp()"), nullable=False),
        sa.Column("model", sa.Text(), nullable=True),
        sa.Column("version", sa.Integer(), nullable=True),
        sa.Column("by", JSONB(none_as_null=True), nullable=True),
        sa.Column("data", JSONB(none_as_null=True), server_default="{}", nullable=False),
        sa.Column("key", sa.Text(), nullable=True),
        sa.Column("dispatched_at", _TIME, nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_webhook_events")),
        sa.UniqueConstraint("key", name=op.f("uq_webhook_events_key")),
    )
    op.create_index(
        "ix_webhook_events_waiting",
        "webhook_events",
        ["at"],
        postgresql_where=sa.text("dispatched_at IS NULL"),
    )
    op.create_index(op.f("ix_webhook_events_at"), "webhook_events", ["at"])
    op.create_table(
        "webhook_deliveries",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=True), nullable=False),
        sa.Column("webhook_id", sa.BigInteger(), nullable=False),
        sa.Column("event_id", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), server_default="pending", nullable=False),
        sa.Column("tries", sa.Integer(), server_default="0", nullable=False),
        sa.Column("due_at", _TIME, server_default=sa.text("now()"), nullable=False),
        sa.Column("attempts", JSONB(none_as_null=True), server_default="[]", nullable=False),
        sa.Column("created_at", _TIME, server_default=sa.text("now()"), nullable=False),
        sa.CheckConstraint(
            "state IN ('pending', 'delivered', 'failed')", name=op.f("ck_webhook_deliveries_state")
        ),
        sa.ForeignKeyConstraint(
            ["webhook_id"],
            ["webhooks.id"],
            name=op.f("fk_webhook_deliveries_webhook_id_webhooks"),
            ondelete="CASCADE",
        ),
        sa.ForeignKeyConstraint(
            ["event_id"],
            ["webhook_events.id"],
            name=op.f("fk_webhook_deliveries_event_id_webhook_events"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_webhook_deliveries")),
        sa.UniqueConstraint("webhook_id", "event_id", name=op.f("uq_webhook_deliveries_webhook_id_event_id")),
    )
    op.create_index(
        "ix_webhook_deliveries_due",
        "webhook_deliveries",
        ["webhook_id", "due_at"],
        postgresql_where=sa.text("state = 'pending'"),
    )
    op.create_index(
        op.f("ix_webhook_deliveries_webhook_id_created_at_id"),
        "webhook_deliveries",
        ["webhook_id", "created_at", "id"],
    )
    op.create_index(op.f("ix_webhook_deliveries_event_id"), "webhook_deliveries", ["event_id"])


def downgrade() -> None:
    for table in ("webhook_deliveries", "webhook_events", "webhook_secrets", "webhooks"):
        op.drop_table(table)
