"""Versions are yanked, with a reason, and with every yank and its end kept."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0025"
down_revision = "0024"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("versions", sa.Column("yanked", JSONB(none_as_null=True), nullable=True))
    op.create_table(
        "version_yanks",
        sa.Column("version_id", sa.BigInteger(), nullable=False),
        sa.Column("sequence", sa.Integer(), nullable=False),
        sa.Column("yanked", sa.Boolean(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("by", sa.Text(), nullable=False),
        sa.Column(
            "at", sa.DateTime(timezone=True), server_default=sa.text("clock_timestamp()"), nullable=False
        ),
        sa.ForeignKeyConstraint(["version_id"], ["versions.id"], name="fk_version_yanks_version_id_versions"),
        sa.PrimaryKeyConstraint("version_id", "sequence", name="pk_version_yanks"),
    )


def downgrade() -> None:
    op.drop_table("version_yanks")
    op.drop_column("versions", "yanked")
