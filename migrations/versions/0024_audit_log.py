"""Who did it is stored with what they did, and every mutation has a row in a table that only grows."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import ARRAY, JSONB

revision = "0024"
down_revision = "0023"
branch_labels = None
depends_on = None

_PRINCIPALS = (
    ("models", "described_by"),
    ("versions", "published_by"),
    ("builds", "requested_by"),
    ("builds", "retried_by"),
    ("builds", "cancelled_by"),
    ("alias_moves", "principal"),
    ("policies", "principal"),
    ("api_tokens", "created_by"),
    ("api_tokens", "revoked_by"),
)
_REFUSE = """
    CREATE FUNCTION refuse_audit_log_change() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        RAISE EXCEPTION 'audit_log is append-only: % is refused', TG_OP USING ERRCODE = 'insufficient_privilege';
    END $$
"""
_TRIGGERS = {"append_only": ("UPDATE OR DELETE", "ROW"), "no_truncate": ("TRUNCATE", "STATEMENT")}


def upgrade() -> None:
    for table, column in _PRINCIPALS:
        op.add_column(table, sa.Column(column, JSONB(none_as_null=True), nullable=True))
    op.create_table(
        "audit_log",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=True), nullable=False),
        sa.Column(
            "at", sa.DateTime(timezone=True), server_default=sa.text("clock_timestamp()"), nullable=False
        ),
        sa.Column("principal_kind", sa.Text(), nullable=False),
        sa.Column("principal", sa.Text(), nullable=False),
        sa.Column("principal_id", sa.Text(), nullable=True),
        sa.Column("action", sa.Text(), nullable=False),
        sa.Column("resource", sa.Text(), nullable=False),
        sa.Column("models", ARRAY(sa.Text()), server_default="{}", nullable=False),
        sa.Column("request", sa.Text(), nullable=True),
        sa.Column("change", JSONB(none_as_null=True), server_default="{}", nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_audit_log")),
    )
    op.create_index(op.f("ix_audit_log_at_id"), "audit_log", ["at", "id"])
    op.create_index("ix_audit_log_models", "audit_log", ["models"], postgresql_using="gin")
    op.execute(_REFUSE)
    for name, (events, each) in _TRIGGERS.items():
        op.execute(
            f"CREATE TRIGGER {name} BEFORE {events} ON audit_log "
            f"FOR EACH {each} EXECUTE FUNCTION refuse_audit_log_change()"
        )


def downgrade() -> None:
    op.drop_table("audit_log")
    op.execute("DROP FUNCTION refuse_audit_log_change()")
    for table, column in reversed(_PRINCIPALS):
        op.drop_column(table, column)
