"""Policies hold `checks`, which were `gates`; moves of aliases that were forced keep them so."""

from __future__ import annotations

from alembic import op

revision = "0015"
down_revision = "0014"
branch_labels = None
depends_on = None

_POLICIES = """
    UPDATE policies SET document = document - '{old}' || jsonb_build_object('{new}', document -> '{old}')
    WHERE document ? '{old}'
"""
_FORCED = """
    UPDATE alias_moves SET forced = jsonb_set(forced, '{{refused}}', (
        SELECT coalesce(jsonb_agg(
            item - '{gate}' - '{said}' || jsonb_build_object(
                '{check}', item -> '{gate}', '{message}', item -> '{said}',
                'path', regexp_replace(item ->> 'path', '^{gate}s', '{check}s')
            ) ORDER BY place
        ), '[]')
        FROM jsonb_array_elements(forced -> 'refused') WITH ORDINALITY AS items (item, place)
    ))
    WHERE jsonb_typeof(forced -> 'refused') = 'array'
"""


def upgrade() -> None:
    op.execute(_POLICIES.format(old="gates", new="checks"))
    op.execute(_FORCED.format(gate="gate", check="check", said="said", message="message"))


def downgrade() -> None:
    op.execute(_FORCED.format(gate="check", check="gate", said="message", message="said"))
    op.execute(_POLICIES.format(old="checks", new="gates"))
