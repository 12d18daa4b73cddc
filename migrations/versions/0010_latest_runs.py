"""A version's figure in a series is that of its latest run: points of several runs had their median."""

from __future__ import annotations

from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None

_LATEST = """
    UPDATE series_points SET value = latest.value
    FROM (
        SELECT DISTINCT ON (own.series_id, own.number) own.series_id, own.number, own.value
        FROM measurements AS own
        JOIN series_points AS point ON point.series_id = own.series_id AND point.number = own.number
        WHERE own.run IS NOT NULL AND point.count > 1
        ORDER BY own.series_id, own.number, own.measured_at DESC, own.id DESC
    ) AS latest
    WHERE series_points.series_id = latest.series_id AND series_points.number = latest.number
        AND series_points.value <> latest.value
"""
_MEDIANS = """
    UPDATE series_points SET value = middle.value
    FROM (
        SELECT point.series_id, point.number, latest.value
        FROM series_points AS point
        CROSS JOIN LATERAL (
            SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY own.value) AS value
            FROM (
                SELECT value FROM measurements WHERE series_id = point.series_id AND number = point.number
                ORDER BY measured_at DESC, id DESC LIMIT 200
            ) AS own
        ) AS latest
        WHERE point.count > 1
    ) AS middle
    WHERE series_points.series_id = middle.series_id AND series_points.number = middle.number
        AND series_points.value <> middle.value
"""


def upgrade() -> None:
    op.execute(_LATEST)


def downgrade() -> None:
    op.execute(_MEDIANS)
