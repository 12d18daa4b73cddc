"""Running sums over ended attempts, so that metrics need not read every attempt there ever was."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "build_sums",
        sa.Column("figure", sa.Text(), nullable=False),
        sa.Column("subject", sa.Text(), nullable=False),
        sa.Column("detail", sa.Text(), nullable=False),
        sa.Column("count", sa.BigInteger(), nullable=False),
        sa.Column("seconds", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("figure", "subject", "detail", name=op.f("pk_build_sums")),
    )
    op.add_column(
        "build_attempts", sa.Column("counted", sa.Boolean(), server_default="false", nullable=False)
    )
    op.create_index(
        "ix_build_attempts_uncounted",
        "build_attempts",
        ["ended_at"],
        postgresql_where=sa.text("NOT counted"),
    )


def downgrade() -> None:
    op.drop_index("ix_build_attempts_uncounted", table_name="build_attempts")
    op.drop_column("build_attempts", "counted")
    op.drop_table("build_sums")
