"""Verification reports have a `result`, which was `verdict`."""

from __future__ import annotations

from alembic import op

revision = "0019"
down_revision = "0018"
branch_labels = None
depends_on = None

_RENAMED = """
    UPDATE artifacts SET verification = verification - '{old}' || jsonb_build_object('{new}', verification -> '{old}')
    WHERE verification ? '{old}'
"""


def upgrade() -> None:
    op.execute(_RENAMED.format(old="verdict", new="result"))


def downgrade() -> None:
    op.execute(_RENAMED.format(old="result", new="verdict"))
