"""Forced moves keep what a failed check `required`, which was `wanted`."""

from __future__ import annotations

from alembic import op

revision = "0021"
down_revision = "0020"
branch_labels = None
depends_on = None

_FORCED = """
    UPDATE alias_moves SET forced = jsonb_set(forced, '{{refused}}', (
        SELECT coalesce(jsonb_agg(
            CASE WHEN item ? '{old}'
                THEN item - '{old}' || jsonb_build_object('{new}', item -> '{old}') ELSE item END
            ORDER BY place
        ), '[]')
        FROM jsonb_array_elements(forced -> 'refused') WITH ORDINALITY AS items (item, place)
    ))
    WHERE jsonb_typeof(forced -> 'refused') = 'array'
"""


def upgrade() -> None:
    op.execute(_FORCED.format(old="wanted", new="required"))


def downgrade() -> None:
    op.execute(_FORCED.format(old="required", new="wanted"))
