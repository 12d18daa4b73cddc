"""Comparisons have a `reason` and an `explanation`, which were `why` and `because`; sums of builds have a counter and a scope."""

from __future__ import annotations

from alembic import op

revision = "0020"
down_revision = "0019"
branch_labels = None
depends_on = None

_FORCED = """
    UPDATE alias_moves SET forced = jsonb_set(forced, '{{refused}}', (
        SELECT coalesce(jsonb_agg(
            CASE WHEN item -> 'comparison' ? '{old}' THEN jsonb_set(item, '{{comparison}}',
                (item -> 'comparison') - '{old}' || jsonb_build_object('{new}', item -> 'comparison' -> '{old}')
            ) ELSE item END ORDER BY place
        ), '[]')
        FROM jsonb_array_elements(forced -> 'refused') WITH ORDINALITY AS items (item, place)
    ))
    WHERE jsonb_typeof(forced -> 'refused') = 'array'
"""
_FIELDS = {"why": "reason", "because": "explanation"}
_COLUMNS = {"figure": "counter", "subject": "scope"}


def upgrade() -> None:
    for old, new in _COLUMNS.items():
        op.alter_column("build_sums", old, new_column_name=new)
    for old, new in _FIELDS.items():
        op.execute(_FORCED.format(old=old, new=new))


def downgrade() -> None:
    for old, new in _FIELDS.items():
        op.execute(_FORCED.format(old=new, new=old))
    for old, new in _COLUMNS.items():
        op.alter_column("build_sums", new, new_column_name=old)
