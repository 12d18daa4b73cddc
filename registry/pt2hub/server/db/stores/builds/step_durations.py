"""Durations of the steps of earlier builds."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import text

from pt2hub.domain.builds import BuildKind
from pt2hub.server.db.reading import readable
from pt2hub.server.db.stores.values import moment, stamp
from pt2hub.server.views.step_durations import StepDurations

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

    from pt2hub.wire.responses import BuildView

# Every part is bounded: 60 versions of the model, 200 builds for the target, steps of 15 builds. Builds for the target count
# only where the model has none. Longer steps than 1e7 s are not believed, and NaN is larger: workers are not trusted.
_EARLIER = text("""
    WITH of_model AS (
        SELECT build.id, build.attempt
        FROM (
            SELECT versions.id FROM versions JOIN models ON models.id = versions.model_id
            WHERE models.name = :model AND versions.number <= :number
            ORDER BY versions.number DESC LIMIT 60
        ) AS version
        JOIN builds AS build ON build.version_id = version.id
        WHERE build.target = :target AND build.kind = :kind AND build.state = 'succeeded' AND build.id <> :build
        ORDER BY build.created_at DESC LIMIT 15
    ), of_target AS (
        SELECT newest.id, newest.attempt
        FROM (
            SELECT id, attempt, version_id, kind, created_at FROM builds
            WHERE target = :target AND state = 'succeeded' AND id <> :build AND created_at <= :created_at
            ORDER BY created_at DESC, id DESC LIMIT 200
        ) AS newest
        JOIN versions ON versions.id = newest.version_id
        JOIN models ON models.id = versions.model_id
        WHERE newest.kind = :kind AND (:everything OR models.name ~ :readable) AND NOT EXISTS (SELECT FROM of_model)
        ORDER BY newest.created_at DESC LIMIT 15
    ), chosen AS (
        SELECT * FROM of_model UNION ALL SELECT * FROM of_target
    )
    SELECT clock_timestamp() AS now, EXISTS (SELECT FROM of_model) AS same_model,
        (SELECT count(*) FROM chosen) AS builds, step.name, step.median, step.times
    FROM (SELECT) AS one LEFT JOIN (
        SELECT step.name, percentile_cont(0.5) WITHIN GROUP (ORDER BY step.seconds) AS median, count(*) AS times
        FROM chosen JOIN build_steps AS step ON step.build_id = chosen.id AND step.attempt = chosen.attempt
        WHERE step.state = 'done' AND step.seconds BETWEEN 0 AND 1e7
        GROUP BY step.name
    ) AS step ON true
""")


class StepDurationStore:
    """Durations of the steps of earlier builds, a bounded number of them."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def earlier(self, view: BuildView) -> StepDurations:
        """Return the durations in the last builds before one that succeeded: of its model, else for its target."""
        limit = readable()
        values = {
            "build": view.id,
            "model": view.model,
            "number": view.number,
            "target": view.target,
            # A rebuild has the steps of a build.
            "kind": BuildKind.MEASURE if view.kind == BuildKind.MEASURE else BuildKind.BUILD,
            "created_at": moment(view.created_at),
            "everything": limit.everything,
            "readable": limit.expression,
        }
        rows = self._session.execute(_EARLIER, values).all()
        found = [row for row in rows if row.name is not None]
        return StepDurations(
            now=stamp(rows[0].now),
            medians={row.name: row.median for row in found},
            counts={row.name: row.times for row in found},
            builds=rows[0].builds,
            same_model=rows[0].same_model,
        )
