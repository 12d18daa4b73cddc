"""Labels of models and versions, and what searches for versions read."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0034"
down_revision = "0032"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "labels",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=True), nullable=False),
        sa.Column("model_id", sa.BigInteger(), nullable=False),
        sa.Column("version_id", sa.BigInteger(), nullable=True),
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("value", sa.Text(), nullable=False),
        sa.Column("by", JSONB(none_as_null=True), nullable=False),
        sa.Column(
            "at", sa.DateTime(timezone=True), server_default=sa.text("clock_timestamp()"), nullable=False
        ),
        sa.ForeignKeyConstraint(
            ["model_id"], ["models.id"], name="fk_labels_model_id_models", ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(
            ["version_id"], ["versions.id"], name="fk_labels_version_id_versions", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name="pk_labels"),
    )
    for name, columns, of, unique in (
        ("ix_labels_version_id", ["version_id", "key"], "version_id IS NOT NULL", True),
        ("ix_labels_model_id", ["model_id", "key"], "version_id IS NULL", True),
        ("ix_labels_versions", ["key", "value", "version_id"], "version_id IS NOT NULL", False),
        ("ix_labels_models", ["key", "value", "model_id"], "version_id IS NULL", False),
    ):
        op.create_index(name, "labels", columns, unique=unique, postgresql_where=sa.text(of))
    op.create_index("ix_versions_created_at", "versions", ["created_at"])
    op.create_index("ix_versions_publisher", "versions", [sa.text("(published_by ->> 'name')")])


def downgrade() -> None:
    op.drop_index("ix_versions_publisher", "versions")
    op.drop_index("ix_versions_created_at", "versions")
    op.drop_table("labels")
