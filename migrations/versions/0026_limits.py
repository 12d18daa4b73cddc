"""Counters of rate limits, and blobs by what refers to them, for the storage that a team uses."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0026"
down_revision = "0025"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "rate_counters",
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("count", sa.BigInteger(), nullable=False),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("key", name=op.f("pk_rate_counters")),
        prefixes=["UNLOGGED"],
    )
    op.create_index(op.f("ix_rate_counters_expires_at"), "rate_counters", ["expires_at"])
    op.create_index(op.f("ix_blob_references_owner"), "blob_references", ["owner"])


def downgrade() -> None:
    op.drop_index(op.f("ix_blob_references_owner"), table_name="blob_references")
    op.drop_table("rate_counters")
