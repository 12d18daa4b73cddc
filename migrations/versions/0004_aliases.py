"""Aliases with their history, and indexes for pages of builds."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    _aliases()
    op.create_index(op.f("ix_builds_created_at_id"), "builds", ["created_at", "id"])
    op.create_index(op.f("ix_builds_state_created_at_id"), "builds", ["state", "created_at", "id"])
    op.create_index(op.f("ix_builds_target_created_at_id"), "builds", ["target", "created_at", "id"])


def _aliases() -> None:
    op.create_table(
        "aliases",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=True), nullable=False),
        sa.Column("model_id", sa.BigInteger(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("version_id", sa.BigInteger(), nullable=True),
        sa.Column("moves", sa.Integer(), server_default="0", nullable=False),
        sa.ForeignKeyConstraint(["model_id"], ["models.id"], name=op.f("fk_aliases_model_id_models")),
        sa.ForeignKeyConstraint(["version_id"], ["versions.id"], name=op.f("fk_aliases_version_id_versions")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_aliases")),
        sa.UniqueConstraint("model_id", "name", name=op.f("uq_aliases_model_id_name")),
    )
    op.create_index(op.f("ix_aliases_version_id"), "aliases", ["version_id"])
    op.create_table(
        "alias_moves",
        sa.Column("alias_id", sa.BigInteger(), nullable=False),
        sa.Column("sequence", sa.Integer(), nullable=False),
        sa.Column("before", sa.Integer(), nullable=True),
        sa.Column("after", sa.Integer(), nullable=True),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("by", sa.Text(), nullable=False),
        sa.Column(
            "at", sa.DateTime(timezone=True), server_default=sa.text("clock_timestamp()"), nullable=False
        ),
        sa.ForeignKeyConstraint(["alias_id"], ["aliases.id"], name=op.f("fk_alias_moves_alias_id_aliases")),
        sa.PrimaryKeyConstraint("alias_id", "sequence", name=op.f("pk_alias_moves")),
    )
