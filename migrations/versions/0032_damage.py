"""Damaged blobs, and the position of the scrub."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0032"
down_revision = "0031"
branch_labels = None
depends_on = None

_STATES = "state IN ('pending', 'stored', 'deleting', 'deleted'{more})"
_CONSTRAINT = "ck_blobs_state"


def upgrade() -> None:
    # Of all blobs at once, without rewriting the table: what was written before counts as checked now.
    op.add_column(
        "blobs",
        sa.Column("checked_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
    )
    op.drop_constraint(op.f(_CONSTRAINT), "blobs", type_="check")
    op.create_check_constraint(op.f(_CONSTRAINT), "blobs", _STATES.format(more=", 'damaged'"))
    op.create_index(
        "ix_blobs_checks", "blobs", ["checked_at", "kind", "digest"], postgresql_where="state = 'stored'"
    )
    op.create_index("ix_blobs_damaged", "blobs", ["kind", "digest"], postgresql_where="state = 'damaged'")
    op.create_table(
        "blob_damage",
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("digest", sa.Text(), nullable=False),
        sa.Column("generation", sa.Integer(), nullable=False),
        sa.Column("problem", sa.Text(), nullable=False),
        sa.Column("expected_bytes", sa.BigInteger(), nullable=False),
        sa.Column("found_bytes", sa.BigInteger(), nullable=True),
        sa.Column("found_digest", sa.Text(), nullable=True),
        sa.Column("found_by", sa.Text(), nullable=False),
        sa.Column("found_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("quarantined", sa.Boolean(), server_default=sa.false(), nullable=False),
        sa.PrimaryKeyConstraint("kind", "digest", "generation", name=op.f("pk_blob_damage")),
    )
    op.create_index(
        "ix_blob_damage_loose", "blob_damage", ["kind", "digest"], postgresql_where="NOT quarantined"
    )
    op.create_table(
        "scrub_position",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("holder", sa.Text(), nullable=False),
        sa.Column("claimed_until", sa.DateTime(timezone=True), nullable=False),
        sa.Column("blobs", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("bytes", sa.BigInteger(), server_default="0", nullable=False),
        sa.CheckConstraint("id = 1", name=op.f("ck_scrub_position_single")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_scrub_position")),
    )


def downgrade() -> None:
    op.drop_table("scrub_position")
    op.drop_table("blob_damage")
    op.drop_index("ix_blobs_damaged", table_name="blobs")
    op.drop_index("ix_blobs_checks", table_name="blobs")
    op.execute("UPDATE blobs SET state = 'deleted' WHERE state = 'damaged'")
    op.drop_constraint(op.f(_CONSTRAINT), "blobs", type_="check")
    op.create_check_constraint(op.f(_CONSTRAINT), "blobs", _STATES.format(more=""))
    op.drop_column("blobs", "checked_at")
