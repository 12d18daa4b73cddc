"""What a step waited for the device stands apart from its own time."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("build_steps", sa.Column("waited", sa.Float(), nullable=True))


def downgrade() -> None:
    op.drop_column("build_steps", "waited")
