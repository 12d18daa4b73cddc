"""Indexes for builds in the order in which they ended, and the longest first."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0041"
down_revision = "0037"
branch_labels = None
depends_on = None

_ENDED = sa.text("finished_at IS NOT NULL")


def upgrade() -> None:
    op.create_index("ix_builds_ended", "builds", ["finished_at", "id"], postgresql_where=_ENDED)
    op.create_index(
        "ix_builds_state_ended", "builds", ["state", "finished_at", "id"], postgresql_where=_ENDED
    )
    duration = sa.text("(finished_at - started_at)")
    op.create_index("ix_builds_duration", "builds", [duration, "id"], postgresql_where=_ENDED)


def downgrade() -> None:
    for name in ("ix_builds_duration", "ix_builds_state_ended", "ix_builds_ended"):
        op.drop_index(name, "builds")
