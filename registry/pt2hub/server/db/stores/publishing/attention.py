"""What needs somebody, with a fixed number of statements whose reads are bounded."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import text

from pt2hub.domain.builds import BuildKind
from pt2hub.domain.performance.measurements import MEASURED_BY
from pt2hub.server.db.reading import readable
from pt2hub.server.db.stores.builds.measurement_states import is_measured
from pt2hub.server.db.stores.publishing.model_list import regression
from pt2hub.server.db.stores.publishing.production import IN_FORCE, IS_PRODUCTION, WORST
from pt2hub.server.db.stores.values import optional_stamp, stamp
from pt2hub.server.views.attention import (
    ATTENTION_DAYS,
    MAX_COUNTED,
    DamagedVersion,
    FailedBuild,
    IdleQueue,
    UnmeasuredVersion,
)

if TYPE_CHECKING:
    from datetime import timedelta

    from sqlalchemy.orm import Session

    from pt2hub.server.views.overview import Regression

_NAMED = (
    "(CAST(:readable AS text) IS NULL OR models.name ~ :readable) AND starts_with(models.name, :beginning)"
)
# A regression is news when it was flagged, and again when an alias brings it into production.
_REGRESSIONS = text(f"""
    WITH {IN_FORCE}, worst AS ({WORST})
    SELECT worst.*, models.name FROM worst
    JOIN models ON models.id = worst.model_id
    JOIN production ON production.model_id = worst.model_id
    LEFT JOIN alias_moves AS moved ON (moved.alias_id, moved.sequence) = (production.alias_id, production.moves)
    WHERE greatest(worst.at, moved.at) > now() - make_interval(days => :days) AND {_NAMED}
    ORDER BY worst.metric <> 'latency_p50', worst.factor DESC, models.name LIMIT :most
""")  # noqa: S608  # of constants
# A measuring job that failed matters where it leaves an artifact in production without a measurement.
_FAILED = text(f"""
    SELECT failed.id, failed.kind, models.name, versions.number, failed.target, failed.error ->> 'code' AS code,
        failed.finished_at AS at
    FROM (
        SELECT * FROM builds WHERE state = 'failed' AND finished_at > now() - make_interval(days => :days)
        ORDER BY finished_at DESC LIMIT :most
    ) AS failed
    JOIN versions ON versions.id = failed.version_id
    JOIN models ON models.id = versions.model_id
    WHERE {_NAMED} AND (
        failed.kind = 'build' AND versions.yanked IS NULL AND NOT EXISTS (
            SELECT FROM versions AS newer
            WHERE newer.model_id = versions.model_id AND newer.number > versions.number
        ) OR failed.kind = 'measure'
            AND EXISTS (SELECT FROM aliases WHERE aliases.version_id = versions.id AND {IS_PRODUCTION})
            AND EXISTS (SELECT FROM artifacts WHERE digest = failed.request ->> 'artifact')
            AND NOT {is_measured("failed.request ->> 'artifact'")}
            AND NOT EXISTS (
                SELECT FROM builds AS later
                WHERE later.version_id = failed.version_id AND later.kind = 'measure'
                    AND later.state <> 'cancelled' AND later.request ->> 'artifact' = failed.request ->> 'artifact'
                    AND (later.created_at, later.id) > (failed.created_at, failed.id)
            )
    )
    ORDER BY at DESC, failed.id
""")  # noqa: S608  # of constants
_QUEUES = text(f"""
    SELECT builds.target, count(*) AS builds, min(builds.queued_at) AS since FROM builds
    JOIN versions ON versions.id = builds.version_id JOIN models ON models.id = versions.model_id
    WHERE builds.state = 'queued' AND {_NAMED} AND NOT EXISTS (
        SELECT FROM workers WHERE workers.target = builds.target AND workers.left_at IS NULL
            AND workers.last_seen BETWEEN now() - :timeout AND now() + :timeout
    )
    GROUP BY builds.target ORDER BY since, builds.target LIMIT :most
""")  # noqa: S608  # of constants
# Of the versions in production, the newest. Artifacts without a measurement have no point in any series of latencies.
_UNMEASURED = text(f"""
    WITH newest AS MATERIALIZED (
        SELECT * FROM aliases WHERE version_id IS NOT NULL AND {IS_PRODUCTION} ORDER BY version_id DESC LIMIT :most
    )
    SELECT DISTINCT ON (newest.version_id) models.name, versions.number, newest.name AS alias, moved.at
    FROM newest JOIN versions ON versions.id = newest.version_id JOIN models ON models.id = newest.model_id
    LEFT JOIN alias_moves AS moved ON (moved.alias_id, moved.sequence) = (newest.id, newest.moves)
    WHERE {_NAMED} AND EXISTS (
        SELECT FROM builds JOIN artifacts ON artifacts.build_id = builds.id
        WHERE builds.version_id = newest.version_id
    ) AND NOT EXISTS (
        SELECT FROM builds JOIN artifacts ON artifacts.build_id = builds.id
        JOIN series_points AS point ON point.artifact = artifacts.digest
        WHERE builds.version_id = newest.version_id
    ) AND NOT EXISTS (
        SELECT FROM builds WHERE builds.version_id = newest.version_id AND builds.kind = 'measure'
            AND builds.state IN ('queued', 'running')
    )
    ORDER BY newest.version_id DESC, length(newest.name), newest.name
""")  # noqa: S608  # of constants
_DAMAGED = text(f"""
    SELECT models.name, versions.number, array_agg(DISTINCT builds.target) AS targets, max(damage.found_at) AS at
    FROM blob_damage AS damage JOIN blobs USING (kind, digest)
    JOIN blob_references AS needed USING (kind, digest)
    JOIN artifacts ON starts_with(needed.owner, 'artifact:') AND artifacts.digest = substr(needed.owner, 10)
    JOIN builds ON builds.id = artifacts.build_id JOIN versions ON versions.id = builds.version_id
    JOIN models ON models.id = versions.model_id
    WHERE blobs.state = 'damaged' AND {_NAMED}
        AND EXISTS (SELECT FROM aliases WHERE aliases.version_id = versions.id AND {IS_PRODUCTION})
    GROUP BY models.name, versions.number ORDER BY at, models.name, versions.number LIMIT :most
""")  # noqa: S608  # of constants
_HAS_PRODUCTION = text(f"""
    SELECT EXISTS (
        SELECT FROM aliases JOIN models ON models.id = aliases.model_id
        WHERE aliases.version_id IS NOT NULL AND {IS_PRODUCTION} AND {_NAMED}
    )
""")  # noqa: S608  # of constants


class AttentionStore:
    """What needs somebody, of models that may be read.

    Args:
        team: Only of its models; empty for all.
    """

    def __init__(self, session: Session, team: str = "") -> None:
        self._session = session
        limit = readable()
        self._given = {
            "readable": None if limit.everything else limit.expression,
            "most": MAX_COUNTED,
            "days": ATTENTION_DAYS,
            "beginning": f"{team}/" if team else "",
        }

    def damaged(self) -> tuple[DamagedVersion, ...]:
        """Return the versions in production with artifacts that cannot be pulled, the longest known first."""
        rows = self._session.execute(_DAMAGED, self._given)
        return tuple(DamagedVersion(row.name, row.number, tuple(row.targets), stamp(row.at)) for row in rows)

    def regressions(self) -> tuple[Regression, ...]:
        """Return the worst regression of each model in production, the worst first."""
        rows = self._session.execute(_REGRESSIONS, self._given)
        return tuple(regression(row) for row in rows)

    def failed(self) -> tuple[FailedBuild, ...]:
        """Return the failed builds of newest versions and failed measuring jobs of production, the latest first."""
        return tuple(
            FailedBuild(
                row.id,
                row.name,
                row.number,
                row.target,
                row.code or "",
                stamp(row.at),
                is_measuring=row.kind == BuildKind.MEASURE,
            )
            for row in self._session.execute(_FAILED, {**self._given, "metric": MEASURED_BY})
        )

    def queues(self, heartbeat_timeout: timedelta) -> tuple[IdleQueue, ...]:
        """Return the queues without a live worker, the longest wait first."""
        rows = self._session.execute(_QUEUES, {**self._given, "timeout": heartbeat_timeout})
        return tuple(IdleQueue(row.target, row.builds, stamp(row.since)) for row in rows)

    def unmeasured(self) -> tuple[UnmeasuredVersion, ...]:
        """Return the versions in production that were not measured and are not about to be, the latest first."""
        rows = self._session.execute(_UNMEASURED, self._given)
        return tuple(
            UnmeasuredVersion(row.name, row.number, row.alias, optional_stamp(row.at)) for row in rows
        )

    def has_production(self) -> bool:
        """Return whether any model is in production."""
        return bool(self._session.scalar(_HAS_PRODUCTION, self._given))
