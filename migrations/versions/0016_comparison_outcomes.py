"""Comparisons have an `outcome`, which was `verdict`; what cannot be compared is `inconclusive`."""

from __future__ import annotations

from alembic import op

revision = "0016"
down_revision = "0015"
branch_labels = None
depends_on = None

_FORCED = """
    UPDATE alias_moves SET forced = jsonb_set(forced, '{{refused}}', (
        SELECT coalesce(jsonb_agg(
            CASE WHEN item -> 'comparison' ? '{old}' THEN jsonb_set(item, '{{comparison}}',
                (item -> 'comparison') - '{old}' || jsonb_build_object('{new}',
                    CASE item -> 'comparison' ->> '{old}' WHEN '{unknown}' THEN '{inconclusive}'
                    ELSE item -> 'comparison' ->> '{old}' END)
            ) ELSE item END ORDER BY place
        ), '[]')
        FROM jsonb_array_elements(forced -> 'refused') WITH ORDINALITY AS items (item, place)
    ))
    WHERE jsonb_typeof(forced -> 'refused') = 'array'
"""


def upgrade() -> None:
    _rename("verdict", "outcome")
    op.execute(
        _FORCED.format(old="verdict", new="outcome", unknown="not_comparable", inconclusive="inconclusive")
    )


def downgrade() -> None:
    op.execute(
        _FORCED.format(old="outcome", new="verdict", unknown="inconclusive", inconclusive="not_comparable")
    )
    _rename("outcome", "verdict")


def _rename(old: str, new: str) -> None:
    table = "performance_events"
    op.alter_column(table, old, new_column_name=new)
    op.execute(f"ALTER TABLE {table} RENAME CONSTRAINT ck_{table}_{old} TO ck_{table}_{new}")
