"""Rows of an artifact for display, a bounded number of each kind."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import case, func, select, text

from pt2hub.domain.artifacts import MEASUREMENT_RUN_TYPE, Member
from pt2hub.domain.builds import BuildKind
from pt2hub.domain.digests import Digest
from pt2hub.domain.performance.autotune import AutotuneChoice
from pt2hub.server.db.reading import only_readable, readable
from pt2hub.server.db.schema import ArchiveMember as SQLArchiveMember
from pt2hub.server.db.schema import Artifact as SQLArtifact
from pt2hub.server.db.schema import AutotuneChoice as SQLAutotuneChoice
from pt2hub.server.db.schema import Build as SQLBuild
from pt2hub.server.db.schema import Model as SQLModel
from pt2hub.server.db.schema import Referrer as SQLReferrer
from pt2hub.server.db.schema import Version as SQLVersion
from pt2hub.server.db.stores.values import stamp
from pt2hub.server.views.inspection import CodeReferrer, MeasurementRunView, MetricView
from pt2hub.wire.artifacts import ReferrerView

if TYPE_CHECKING:
    from sqlalchemy import Select
    from sqlalchemy.orm import Session

_MAX_RUNS = 5
"""Latest measurements listed per series, in addition to the latest run."""
_TEAM = func.split_part(SQLModel.name, "/", 1)
_FIGURES = text("""
    SELECT series.metric, series.unit, series.implementation, point.value, point.low, point.high, point.count,
        point.measured_at, series.class_digest, series.batch, series.id
    FROM series_points AS point JOIN series ON series.id = point.series_id
    WHERE point.artifact = :artifact
    ORDER BY point.measured_at DESC, series.id LIMIT :most
""")
_LATENCY = text("""
    SELECT series.metric, series.unit, series.implementation, point.value, point.low, point.high, point.count,
        point.measured_at, series.class_digest, series.batch
    FROM series_points AS point JOIN series ON series.id = point.series_id
    WHERE point.artifact = :artifact AND series.metric = 'latency_p50' AND series.implementation = 'artifact'
    ORDER BY series.batch, point.measured_at DESC LIMIT 1
""")
# A run's name contains its build or measuring job, which may have been for another artifact with this one as baseline.
# The run of the point's value is always included, whatever production reported since, and is selected as where points
# are computed. Reporters choose names of metrics freely: only the shown series are queried.
_RUNS = text("""
    SELECT point.series_id, latest.value,
        least(latest.value, (SELECT min(one) FROM unnest(latest.replicates) AS one)),
        greatest(latest.value, (SELECT max(one) FROM unnest(latest.replicates) AS one)),
        latest.measured_at, latest.source, environments.fields, job.id,
        CASE WHEN versions.number <> point.number OR models.id <> series.model_id THEN versions.number END,
        latest.reporter, models.name
    FROM series_points AS point
    JOIN series ON series.id = point.series_id
    CROSS JOIN LATERAL (
        (
            SELECT id FROM measurements WHERE series_id = point.series_id AND number = point.number
            ORDER BY measured_at DESC, id DESC LIMIT :most
        ) UNION (
            SELECT id FROM (
                SELECT id, measured_at FROM measurements
                WHERE series_id = point.series_id AND number = point.number AND run IS NOT NULL OFFSET 0
            ) AS runs ORDER BY measured_at DESC, id DESC LIMIT 1
        )
    ) AS chosen
    JOIN measurements AS latest ON latest.id = chosen.id
    JOIN environments ON environments.digest = latest.environment
    LEFT JOIN builds AS job ON job.id = split_part(latest.run, ':', 1)
    LEFT JOIN versions ON versions.id = job.version_id
    LEFT JOIN models ON models.id = versions.model_id
    WHERE point.artifact = :artifact AND point.series_id = ANY(:series)
    ORDER BY point.series_id, latest.measured_at DESC, latest.id DESC
""")


class InspectionStore:
    """Rows of an artifact, for display."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def figures(self, artifact: Digest, *, limit: int) -> list[MetricView]:
        """Return the measurements of an artifact with their runs, newest first."""
        rows = self._session.execute(_FIGURES, {"artifact": artifact, "most": limit}).all()
        runs = self._runs(artifact, [row.id for row in rows])
        found = []
        for metric, unit, implementation, value, low, high, count, at, in_class, batch, series in rows:
            own = tuple(runs.get(series, ()))
            shown = next((run.measured_at for run in own if run.source != "report"), stamp(at))
            facts = (metric, unit, implementation, value, low, high, count, shown)
            found.append(MetricView(*facts, Digest(in_class), batch or None, own))
        return found

    def latency(self, artifact: Digest) -> MetricView | None:
        """Return the latest median latency of an artifact at its smallest batch size, without its runs."""
        row = self._session.execute(_LATENCY, {"artifact": artifact}).first()
        if row is None:
            return None
        metric, unit, implementation, value, low, high, count, at, in_class, batch = row
        facts = (metric, unit, implementation, value, low, high, count, stamp(at))
        return MetricView(*facts, Digest(in_class), batch or None)

    def _runs(self, artifact: Digest, series: list[int]) -> dict[int, list[MeasurementRunView]]:
        """Return the latest measurements of an artifact in some series, by the series' id."""
        found: dict[int, list[MeasurementRunView]] = {}
        rows = self._session.execute(_RUNS, {"artifact": artifact, "series": series, "most": _MAX_RUNS})
        for row, value, low, high, at, source, fields, job, baseline, reporter, model in rows:
            is_named = job is not None and readable().covers(model)
            run = MeasurementRunView(
                value,
                low,
                high,
                stamp(at),
                source,
                fields,
                job if is_named else "",
                baseline if is_named else None,
                reporter or "",
            )
            found.setdefault(row, []).append(run)
        return found

    def members(self, artifact: Digest, *, limit: int) -> list[Member]:
        """Return the files in an artifact's `model.pt2`, in order."""
        columns = SQLArchiveMember
        statement = (
            select(columns.name, columns.size, columns.digest)
            .where(columns.artifact == artifact)
            .order_by(columns.position)
            .limit(limit)
        )
        return [Member(name, size, Digest(digest)) for name, size, digest in self._session.execute(statement)]

    def autotune(self, artifact: Digest, *, after: int = 0, limit: int) -> list[tuple[int, AutotuneChoice]]:
        """Return the autotune candidates in the compiler's order, each with its row id."""
        columns = SQLAutotuneChoice
        names = AutotuneChoice.__dataclass_fields__
        statement = (
            select(columns.id, *(getattr(columns, name) for name in names))
            .where(columns.artifact == artifact, columns.id > after)
            .order_by(columns.id)
            .limit(limit)
        )
        return [(row, AutotuneChoice(*values)) for row, *values in self._session.execute(statement)]

    def referrers(self, artifact: Digest, *, limit: int) -> list[ReferrerView]:
        """Return the referrers of an artifact; measurements, which are many, come last."""
        columns = SQLReferrer
        statement = (
            select(columns.digest, columns.artifact_type, columns.size, columns.annotations)
            .where(columns.artifact == artifact)
            .order_by(
                case((columns.artifact_type == MEASUREMENT_RUN_TYPE, 1), else_=0),
                columns.artifact_type,
                columns.digest,
            )
            .limit(limit)
        )
        return [ReferrerView(Digest(digest), *rest) for digest, *rest in self._session.execute(statement)]

    def refers(self, referrer: Digest) -> Digest | None:
        """Return the artifact that a referrer belongs to."""
        found = self._session.scalar(select(SQLReferrer.artifact).where(SQLReferrer.digest == referrer))
        return Digest(found) if found else None

    def code_referrer(self, artifact: Digest, kind: str) -> CodeReferrer | None:
        """Return a referrer about an artifact's code: its own, or that of the team's first readable one with equal code.

        Args:
            kind: Media type of the referrer.
        """
        own = _with_referrer(kind).where(SQLArtifact.digest == artifact)
        this = (
            select(SQLArtifact.program_key, SQLArtifact.code, _TEAM.label("team"))
            .join(SQLBuild, SQLBuild.id == SQLArtifact.build_id)
            .join(SQLVersion, SQLVersion.id == SQLBuild.version_id)
            .join(SQLModel, SQLModel.id == SQLVersion.model_id)
            .where(SQLArtifact.digest == artifact)
        )
        key, code, team = this.subquery().c
        same = (
            _with_referrer(kind)
            .where(SQLArtifact.program_key == select(key).scalar_subquery())
            .where(SQLArtifact.code == select(code).scalar_subquery())
            .where(select(team).scalar_subquery() == _TEAM)
            .order_by(SQLArtifact.created_at, SQLArtifact.digest)
        )
        row = self._session.execute(own.limit(1)).first() or self._session.execute(same.limit(1)).first()
        return CodeReferrer(Digest(row[0]), row[1], row[2], Digest(row[3])) if row else None

    def jobs(self, artifact: Digest, *, limit: int) -> list[str]:
        """Return the newest measuring jobs of an artifact, newest first."""
        version = (
            select(SQLBuild.version_id)
            .join(SQLArtifact, SQLArtifact.build_id == SQLBuild.id)
            .where(SQLArtifact.digest == artifact)
            .scalar_subquery()
        )
        statement = (
            select(SQLBuild.id)
            .where(SQLBuild.version_id == version, SQLBuild.kind == BuildKind.MEASURE)
            .where(SQLBuild.request["artifact"].astext == artifact)
            .order_by(SQLBuild.created_at.desc(), SQLBuild.id)
            .limit(limit)
        )
        return list(self._session.scalars(statement))


def _with_referrer(kind: str) -> Select[str, str, int, str]:
    return (
        select(SQLArtifact.digest, SQLModel.name, SQLVersion.number, SQLReferrer.digest)
        .join(SQLReferrer, SQLReferrer.artifact == SQLArtifact.digest)
        .join(SQLBuild, SQLBuild.id == SQLArtifact.build_id)
        .join(SQLVersion, SQLVersion.id == SQLBuild.version_id)
        .join(SQLModel, SQLModel.id == SQLVersion.model_id)
        .where(SQLReferrer.artifact_type == kind, *only_readable(SQLModel.name))
    )
