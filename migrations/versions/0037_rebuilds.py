"""Rebuilds: builds of another kind."""

from __future__ import annotations

from alembic import op

revision = "0037"
down_revision = "0033"
branch_labels = None
depends_on = None

_CONSTRAINT = "ck_builds_kind"


def upgrade() -> None:
    op.drop_constraint(op.f(_CONSTRAINT), "builds", type_="check")
    op.create_check_constraint(op.f(_CONSTRAINT), "builds", "kind IN ('build', 'measure', 'rebuild')")


def downgrade() -> None:
    op.execute("DELETE FROM builds WHERE kind = 'rebuild'")
    op.drop_constraint(op.f(_CONSTRAINT), "builds", type_="check")
    op.create_check_constraint(op.f(_CONSTRAINT), "builds", "kind IN ('build', 'measure')")
