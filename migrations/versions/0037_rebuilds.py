"""Rebuilds, which are builds of another kind, and the time when an old log was removed."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0037"
down_revision = "0039"
branch_labels = None
depends_on = None

_CONSTRAINT = "ck_builds_kind"


def upgrade() -> None:
    op.add_column("build_attempts", sa.Column("log_removed_at", sa.DateTime(timezone=True)))
    op.drop_constraint(op.f(_CONSTRAINT), "builds", type_="check")
    op.create_check_constraint(op.f(_CONSTRAINT), "builds", "kind IN ('build', 'measure', 'rebuild')")


def downgrade() -> None:
    op.drop_column("build_attempts", "log_removed_at")
    op.execute("DELETE FROM builds WHERE kind = 'rebuild'")
    op.drop_constraint(op.f(_CONSTRAINT), "builds", type_="check")
    op.create_check_constraint(op.f(_CONSTRAINT), "builds", "kind IN ('build', 'measure')")
