"""Derivations of versions, and evaluations of them on users' own data."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0036"
down_revision = "0035"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "derivations",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=True), nullable=False),
        sa.Column("version_id", sa.BigInteger(), nullable=False),
        sa.Column("relation", sa.Text(), nullable=False),
        sa.Column("parent", sa.Text(), nullable=False),
        sa.Column("parent_model", sa.Text(), nullable=True),
        sa.Column("parent_identity", sa.Text(), nullable=True),
        sa.Column("parent_id", sa.BigInteger(), nullable=True),
        sa.Column("automatic", sa.Boolean(), nullable=False),
        sa.Column("by", JSONB(none_as_null=True), nullable=False),
        sa.Column(
            "at", sa.DateTime(timezone=True), server_default=sa.text("clock_timestamp()"), nullable=False
        ),
        sa.ForeignKeyConstraint(
            ["version_id"], ["versions.id"], name="fk_derivations_version_id_versions", ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(
            ["parent_id"], ["versions.id"], name="fk_derivations_parent_id_versions", ondelete="SET NULL"
        ),
        sa.PrimaryKeyConstraint("id", name="pk_derivations"),
        sa.UniqueConstraint("version_id", "parent", name="uq_derivations_version_id_parent"),
    )
    op.create_index("ix_derivations_parent_id", "derivations", ["parent_id"])
    op.create_table(
        "evaluations",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=True), nullable=False),
        sa.Column("version_id", sa.BigInteger(), nullable=False),
        sa.Column("metric", sa.Text(), nullable=False),
        sa.Column("unit", sa.Text(), nullable=False),
        sa.Column("value", sa.Double(), nullable=False),
        sa.Column("data_set", sa.Text(), nullable=False),
        sa.Column("data_digest", sa.Text(), nullable=False),
        sa.Column("count", sa.BigInteger(), nullable=False),
        sa.Column("reporter", sa.Text(), nullable=False),
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("by", JSONB(none_as_null=True), nullable=False),
        sa.Column("measured_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column(
            "at", sa.DateTime(timezone=True), server_default=sa.text("clock_timestamp()"), nullable=False
        ),
        sa.ForeignKeyConstraint(
            ["version_id"], ["versions.id"], name="fk_evaluations_version_id_versions", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name="pk_evaluations"),
        sa.UniqueConstraint("reporter", "key", name="uq_evaluations_reporter_key"),
    )
    op.create_index("ix_evaluations_version_id_metric", "evaluations", ["version_id", "metric"])


def downgrade() -> None:
    op.drop_table("evaluations")
    op.drop_table("derivations")
