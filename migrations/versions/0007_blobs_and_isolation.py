"""Bookkeeping of blobs (rows, leases, references, uploads), and how much workers confine what they run."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None

_TIME = sa.DateTime(timezone=True)


def upgrade() -> None:
    op.create_table(
        "blobs",
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("digest", sa.Text(), nullable=False),
        sa.Column("generation", sa.Integer(), server_default="1", nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("size", sa.BigInteger(), nullable=False),
        sa.Column("changed_at", _TIME, server_default=sa.text("now()"), nullable=False),
        sa.PrimaryKeyConstraint("kind", "digest", name=op.f("pk_blobs")),
        sa.CheckConstraint(
            "state IN ('pending', 'stored', 'deleting', 'deleted')", name=op.f("ck_blobs_state")
        ),
    )
    op.create_table(
        "blob_leases",
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("digest", sa.Text(), nullable=False),
        sa.Column("holder", sa.Text(), nullable=False),
        sa.Column("pending_until", _TIME, nullable=False),
        sa.PrimaryKeyConstraint("kind", "digest", "holder", name=op.f("pk_blob_leases")),
    )
    op.create_index(op.f("ix_blob_leases_holder"), "blob_leases", ["holder"])
    op.create_index(op.f("ix_blob_leases_pending_until"), "blob_leases", ["pending_until"])
    op.create_table(
        "blob_references",
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("digest", sa.Text(), nullable=False),
        sa.Column("owner", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("kind", "digest", "owner", name=op.f("pk_blob_references")),
    )
    _create_uploads()
    op.create_table(
        "server_settings",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("value", sa.Text(), nullable=False),
        sa.Column("set_at", _TIME, server_default=sa.text("now()"), nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_server_settings")),
    )
    op.add_column("workers", sa.Column("isolation", sa.Text(), server_default="process", nullable=False))
    op.add_column("workers", sa.Column("isolation_profile", sa.Text(), nullable=True))


def _create_uploads() -> None:
    op.create_table(
        "uploads",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("digest", sa.Text(), nullable=False),
        sa.Column("size", sa.BigInteger(), nullable=False),
        sa.Column("holder", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("multipart", sa.Text(), nullable=True),
        sa.Column("part_bytes", sa.BigInteger(), nullable=True),
        sa.Column("checked_bytes", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("checking_until", _TIME, nullable=True),
        sa.Column("error", sa.dialects.postgresql.JSONB(none_as_null=True), nullable=True),
        sa.Column("pending_until", _TIME, nullable=False),
        sa.Column("created_at", _TIME, server_default=sa.text("now()"), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_uploads")),
        sa.CheckConstraint(
            "state IN ('open', 'checking', 'stored', 'failed')", name=op.f("ck_uploads_state")
        ),
    )
    op.create_index(op.f("ix_uploads_pending_until"), "uploads", ["pending_until"])


def downgrade() -> None:
    op.drop_column("workers", "isolation_profile")
    op.drop_column("workers", "isolation")
    for table in ("server_settings", "uploads", "blob_references", "blob_leases", "blobs"):
        op.drop_table(table)
