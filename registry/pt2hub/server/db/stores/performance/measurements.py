"""Measurements with their series and pairs, and the points that charts read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from sqlalchemy import select, text
from sqlalchemy.dialects.postgresql import insert

from pt2hub.domain.digests import Digest
from pt2hub.domain.performance.measurements import NO_BATCH, environment_class
from pt2hub.server.db.performance_schema import Measurement as SQLMeasurement
from pt2hub.server.db.performance_schema import MeasurementPair as SQLPair
from pt2hub.server.db.performance_schema import Series as SQLSeries
from pt2hub.server.db.schema import Artifact as SQLArtifact
from pt2hub.server.db.schema import Build as SQLBuild
from pt2hub.server.db.schema import Version as SQLVersion
from pt2hub.server.db.stores.operations.workers import WorkerStore
from pt2hub.server.db.stores.values import moment, stamp, storable

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from sqlalchemy import Table
    from sqlalchemy.orm import Session

    from pt2hub.domain.performance.measurements import Measurement, MeasurementRun, Pair

_MOST_FIGURES = 200
"""A point is computed from its latest measurements, so that years of production reports stay cheap."""
# A nominal update, since DO NOTHING would neither return nor lock existing rows. In the given order, so that concurrent
# transactions wait for each other and never deadlock.
_HOLD = text("""
    INSERT INTO series (model_id, target, metric, batch, implementation, class_digest, unit)
    SELECT model_id, target, metric, batch, implementation, class_digest, unit
    FROM unnest(
        CAST(:model_id AS bigint[]), CAST(:target AS text[]), CAST(:metric AS text[]), CAST(:batch AS bigint[]),
        CAST(:implementation AS text[]), CAST(:class_digest AS text[]), CAST(:unit AS text[])
    ) WITH ORDINALITY AS given (model_id, target, metric, batch, implementation, class_digest, unit, place)
    ORDER BY place
    ON CONFLICT (model_id, metric, target, batch, implementation, class_digest, unit)
        DO UPDATE SET changed_at = clock_timestamp()
    RETURNING model_id, target, metric, batch, implementation, class_digest, unit, id
""")
_ADD = insert(cast("Table", SQLMeasurement.__table__)).on_conflict_do_nothing()
_ADD_PAIRS = insert(cast("Table", SQLPair.__table__)).on_conflict_do_nothing()
# A version's measurement is that of its latest run, see `services.performance.history`. OFFSET makes the planner use the
# index of runs: by time it might read everything that production reported since.
_SUM_UP = text("""
    WITH made AS (
        INSERT INTO series_points (series_id, number, artifact, value, low, high, count, measured_at)
        SELECT point.series_id, point.number, summed.*
        FROM unnest(CAST(:series AS bigint[]), CAST(:numbers AS integer[])) AS point (series_id, number)
        CROSS JOIN LATERAL (
            SELECT max(artifact), coalesce(
                    (
                        SELECT value FROM (
                            SELECT value, measured_at, id FROM measurements
                            WHERE series_id = point.series_id AND number = point.number AND run IS NOT NULL OFFSET 0
                        ) AS runs ORDER BY measured_at DESC, id DESC LIMIT 1
                    ),
                    percentile_cont(0.5) WITHIN GROUP (ORDER BY value)
                ),
                min(least(value, (SELECT min(one) FROM unnest(replicates) AS one))),
                max(greatest(value, (SELECT max(one) FROM unnest(replicates) AS one))),
                count(*), max(measured_at)
            FROM (
                SELECT artifact, value, replicates, measured_at FROM measurements
                WHERE series_id = point.series_id AND number = point.number
                ORDER BY measured_at DESC, id DESC LIMIT :most
            ) AS latest
            HAVING count(*) > 0
        ) AS summed
        ON CONFLICT (series_id, number) DO UPDATE SET
            artifact = excluded.artifact, value = excluded.value, low = excluded.low, high = excluded.high,
            count = excluded.count, measured_at = excluded.measured_at
        RETURNING series_id, measured_at
    )
    UPDATE series SET newest_at = newest.at
    FROM (SELECT series_id, max(measured_at) AS at FROM made GROUP BY series_id) AS newest
    WHERE series.id = newest.series_id AND (series.newest_at IS NULL OR series.newest_at < newest.at)
""")


class SeriesKey(NamedTuple):
    """The identity of a series: measurements that differ in any of these fields are never mixed.

    Attributes:
        batch: Batch size, `NO_BATCH` where there is none.
        implementation: `artifact`, or a baseline.
    """

    model_id: int
    target: str
    metric: str
    batch: int
    implementation: str
    class_digest: str
    unit: str


@dataclass(frozen=True, slots=True)
class MeasuredArtifact:
    """The artifact that measurements belong to."""

    artifact: Digest
    model_id: int
    number: int
    target: str


class PerformanceStore:
    """Measurements and their series."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def find_measured(self, digests: Iterable[Digest]) -> dict[Digest, MeasuredArtifact]:
        """Return the existing artifacts, by digest."""
        rows = self._session.execute(
            select(SQLArtifact.digest, SQLVersion.model_id, SQLVersion.number, SQLBuild.target)
            .join(SQLBuild, SQLBuild.id == SQLArtifact.build_id)
            .join(SQLVersion, SQLVersion.id == SQLBuild.version_id)
            .where(SQLArtifact.digest.in_(list(digests)))
        )
        return {
            Digest(digest): MeasuredArtifact(Digest(digest), model_id, number, target)
            for digest, model_id, number, target in rows
        }

    def add_run(self, artifact: Digest, run: MeasurementRun) -> None:
        """Add the measurements of an artifact and its baseline from a run; existing ones stay."""
        known = self.find_measured([artifact, *([run.baseline] if run.baseline else [])])
        own, baseline = known[artifact], known.get(run.baseline) if run.baseline else None
        in_class = environment_class(run.environment)
        # Before the series are locked: reports lock the two in this order, and another order could deadlock.
        environment = WorkerStore(self._session).add_environment(run.environment)
        figures = [(own, item) for item in run.measurements]
        figures += [(baseline, item) for item in run.baseline_measurements] if baseline else []
        pairs = run.pairs if baseline else []
        whats = [what_of(of, in_class, item) for of, item in figures]
        whats += [what_of(own, in_class, pair) for pair in pairs]
        held = self.hold(whats)
        series = [held[what] for what in whats]
        self._add(run, environment, figures, series[: len(figures)])
        self._add_pairs(own, run, pairs, series[len(figures) :])

    def runs(self, artifact: Digest) -> set[str]:
        """Return the runs that an artifact has measurements from."""
        statement = select(SQLMeasurement.run).where(SQLMeasurement.artifact == artifact).distinct()
        return {run for run in self._session.scalars(statement) if run}

    def of(self, artifact: Digest) -> list[dict[str, Any]]:
        """Return the measurements of an artifact as fields of `MeasurementView`, in the order they were added."""
        rows = self._session.execute(
            select(SQLMeasurement, SQLSeries)
            .join(SQLSeries, SQLSeries.id == SQLMeasurement.series_id)
            .where(SQLMeasurement.artifact == artifact)
            .order_by(SQLMeasurement.id)
        )
        return [_fields(measurement, series) for measurement, series in rows]

    def hold(self, whats: Iterable[SeriesKey]) -> dict[SeriesKey, int]:
        """Create missing series and lock all of them until the transaction ends.

        Measurements are added after this, followed by `sum_up` in the same transaction, which then sees what others
        committed before. Lock all series of a transaction in one call: several calls may deadlock.

        Args:
            whats: The series, in any order, possibly repeated.

        Returns:
            Their ids.
        """
        ordered = sorted(set(whats))
        if not ordered:
            return {}
        columns = dict(zip(SeriesKey._fields, map(list, zip(*ordered, strict=True)), strict=True))
        return {SeriesKey(*what): row for *what, row in self._session.execute(_HOLD, columns)}

    def sum_up(self, points: Iterable[tuple[int, int]]) -> None:
        """Recompute points from their latest measurements; the series must be locked (see `hold`)."""
        ordered = sorted(set(points))
        if ordered:
            series, numbers = map(list, zip(*ordered, strict=True))
            self._session.execute(_SUM_UP, {"series": series, "numbers": numbers, "most": _MOST_FIGURES})

    def _add(
        self,
        run: MeasurementRun,
        environment: Digest,
        figures: Sequence[tuple[MeasuredArtifact, Measurement]],
        series: Sequence[int],
    ) -> None:
        if not figures:
            return
        shared = {
            "environment": environment,
            "source": run.source,
            "run": run.id,
            "measured_at": moment(run.measured_at),
        }
        rows = [
            {
                **shared,
                "series_id": row,
                "number": of.number,
                "artifact": of.artifact,
                "value": item.value,
                "replicates": item.replicates,
                "samples": storable(item.samples),
            }
            for row, (of, item) in zip(series, figures, strict=True)
        ]
        self._session.execute(_ADD, rows)
        self.sum_up((row, of.number) for row, (of, _) in zip(series, figures, strict=True))

    def _add_pairs(
        self, of: MeasuredArtifact, run: MeasurementRun, pairs: Sequence[Pair], series: Sequence[int]
    ) -> None:
        if not pairs:
            return
        shared = {
            "artifact": of.artifact,
            "baseline": run.baseline,
            "run": run.id,
            "measured_at": moment(run.measured_at),
        }
        rows = [
            {**shared, "series_id": row, "ratios": pair.ratios}
            for row, pair in zip(series, pairs, strict=True)
        ]
        self._session.execute(_ADD_PAIRS, rows)


def what_of(of: MeasuredArtifact, class_digest: Digest, item: Measurement | Pair) -> SeriesKey:
    """Return the series that a measurement of an artifact belongs to."""
    implementation = getattr(item, "implementation", "artifact")  # pairs consist of artifacts
    return SeriesKey(
        of.model_id, of.target, item.metric, item.batch or NO_BATCH, implementation, class_digest, item.unit
    )


def _fields(measurement: SQLMeasurement, series: SQLSeries) -> dict[str, Any]:
    return {
        "metric": series.metric,
        "value": measurement.value,
        "unit": series.unit,
        "implementation": series.implementation,
        "measured_at": stamp(measurement.measured_at),
        "batch": series.batch or None,
        "samples": measurement.samples,
        "replicates": measurement.replicates,
        "source": measurement.source,
        "environment": measurement.environment,
    }
