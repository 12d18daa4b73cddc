"""A series is of an `implementation`, which was `subject`: the artifact, or a baseline."""

from __future__ import annotations

from alembic import op

revision = "0017"
down_revision = "0016"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.alter_column("series", "subject", new_column_name="implementation")


def downgrade() -> None:
    op.alter_column("series", "implementation", new_column_name="subject")
