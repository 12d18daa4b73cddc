"""Parts of artifacts with code of their own are found by their program keys."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0022"
down_revision = "0021"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "regions",
        sa.Column("program_key", sa.Text(), nullable=False),
        sa.Column("artifact", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["artifact"],
            ["artifacts.digest"],
            name=op.f("fk_regions_artifact_artifacts"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("program_key", "artifact", name=op.f("pk_regions")),
    )
    op.create_index(op.f("ix_regions_artifact"), "regions", ["artifact"])


def downgrade() -> None:
    op.drop_table("regions")
