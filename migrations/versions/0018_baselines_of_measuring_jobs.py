"""Requests of measuring jobs name a `baseline` and `single_process`, which were `beside` and `brief`."""

from __future__ import annotations

from alembic import op

revision = "0018"
down_revision = "0017"
branch_labels = None
depends_on = None

_RENAMED = """
    UPDATE builds SET request = request - '{old}' || jsonb_build_object('{new}', request -> '{old}')
    WHERE kind = 'measure' AND request ? '{old}'
"""
_NAMES = {"beside": "baseline", "brief": "single_process"}


def upgrade() -> None:
    for old, new in _NAMES.items():
        op.execute(_RENAMED.format(old=old, new=new))


def downgrade() -> None:
    for old, new in _NAMES.items():
        op.execute(_RENAMED.format(old=new, new=old))
