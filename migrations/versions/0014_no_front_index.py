"""The list of models by their newest figures is gone, and with it the index that only it read."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.drop_index("ix_series_front", table_name="series")


def downgrade() -> None:
    op.create_index(
        "ix_series_front",
        "series",
        ["newest_at", "model_id"],
        postgresql_where=sa.text("metric = 'latency_p50' AND subject = 'artifact' AND newest_at IS NOT NULL"),
    )
