"""Figures: the series they belong to, what stands beside each other, and the points that charts read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from sqlalchemy import select, text
from sqlalchemy.dialects.postgresql import insert

from pt2hub.domain.digests import Digest
from pt2hub.domain.measurements import NO_BATCH, environment_class
from pt2hub.server.db.performance_schema import Measurement as SQLMeasurement
from pt2hub.server.db.performance_schema import MeasurementPair as SQLPair
from pt2hub.server.db.performance_schema import Series as SQLSeries
from pt2hub.server.db.schema import Artifact as SQLArtifact
from pt2hub.server.db.schema import Build as SQLBuild
from pt2hub.server.db.schema import Version as SQLVersion
from pt2hub.server.db.stores.values import moment, stamp, storable
from pt2hub.server.db.stores.workers import WorkerStore

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from sqlalchemy import Table
    from sqlalchemy.orm import Session

    from pt2hub.domain.measurements import Measurement, MeasurementRun, Pair

_MOST_FIGURES = 200
"""A point spans its latest figures: a version that production reports on for years must not become dear."""
# An update that changes little, where doing nothing would return no row and hold none. In the order given, so that two
# transactions that meet wait for each other once and not for ever.
_HOLD = text("""
    INSERT INTO series (model_id, target, metric, batch, subject, class_digest, unit)
    SELECT model_id, target, metric, batch, subject, class_digest, unit
    FROM unnest(
        CAST(:model_id AS bigint[]), CAST(:target AS text[]), CAST(:metric AS text[]), CAST(:batch AS bigint[]),
        CAST(:subject AS text[]), CAST(:class_digest AS text[]), CAST(:unit AS text[])
    ) WITH ORDINALITY AS given (model_id, target, metric, batch, subject, class_digest, unit, place)
    ORDER BY place
    ON CONFLICT (model_id, metric, target, batch, subject, class_digest, unit)
        DO UPDATE SET changed_at = clock_timestamp()
    RETURNING model_id, target, metric, batch, subject, class_digest, unit, id
""")
_ADD = insert(cast("Table", SQLMeasurement.__table__)).on_conflict_do_nothing()
_ADD_PAIRS = insert(cast("Table", SQLPair.__table__)).on_conflict_do_nothing()
# A version's figure is that of its latest run; `services.performance` says why. OFFSET keeps the planner at the index of
# runs: by time it might walk through all that production reported since.
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


class What(NamedTuple):
    """What makes a series: figures of another value of any of these are never mixed with its own.

    Attributes:
        model_id: Row of the model.
        target: The target's name.
        metric: What is measured.
        batch: Batch size, `NO_BATCH` where there is none.
        subject: `artifact`, or what ran beside it.
        class_digest: The environment class.
        unit: The figures' unit.
    """

    model_id: int
    target: str
    metric: str
    batch: int
    subject: str
    class_digest: str
    unit: str


@dataclass(frozen=True, slots=True)
class Measured:
    """The artifact that figures are of.

    Attributes:
        artifact: Manifest digest.
        model_id: Row of its model.
        number: Its version's number.
        target: Its target's name.
    """

    artifact: Digest
    model_id: int
    number: int
    target: str


class PerformanceStore:
    """Figures and their series."""

    def __init__(self, session: Session) -> None:
        """Works in the caller's transaction."""
        self._session = session

    def measured(self, digests: Iterable[Digest]) -> dict[Digest, Measured]:
        """What is known of artifacts, by digest; those that there are not are left out."""
        rows = self._session.execute(
            select(SQLArtifact.digest, SQLVersion.model_id, SQLVersion.number, SQLBuild.target)
            .join(SQLBuild, SQLBuild.id == SQLArtifact.build_id)
            .join(SQLVersion, SQLVersion.id == SQLBuild.version_id)
            .where(SQLArtifact.digest.in_(list(digests)))
        )
        return {
            Digest(digest): Measured(Digest(digest), model_id, number, target)
            for digest, model_id, number, target in rows
        }

    def add_run(self, artifact: Digest, run: MeasurementRun) -> None:
        """Adds what was measured of an artifact, and of its baseline beside it; what is there already stays.

        Args:
            artifact: Manifest digest; the artifact's row is there.
            run: The figures.
        """
        known = self.measured([artifact, *([run.baseline] if run.baseline else [])])
        own, beside = known[artifact], known.get(run.baseline) if run.baseline else None
        in_class = environment_class(run.environment)
        # Before the series are held: reports ask for the two in this order, and would wait for ever in the other.
        environment = WorkerStore(self._session).add_environment(run.environment)
        figures = [(own, item) for item in run.measurements]
        figures += [(beside, item) for item in run.beside] if beside else []
        pairs = run.pairs if beside else []
        whats = [what_of(of, in_class, item) for of, item in figures]
        whats += [what_of(own, in_class, pair) for pair in pairs]
        held = self.hold(whats)
        series = [held[what] for what in whats]
        self._add(run, environment, figures, series[: len(figures)])
        self._add_pairs(own, run, pairs, series[len(figures) :])

    def runs(self, artifact: Digest) -> set[str]:
        """The runs that an artifact has figures of."""
        statement = select(SQLMeasurement.run).where(SQLMeasurement.artifact == artifact).distinct()
        return {run for run in self._session.scalars(statement) if run}

    def of(self, artifact: Digest) -> list[dict[str, Any]]:
        """The figures of an artifact as `MeasurementView` has them, in the order they came."""
        rows = self._session.execute(
            select(SQLMeasurement, SQLSeries)
            .join(SQLSeries, SQLSeries.id == SQLMeasurement.series_id)
            .where(SQLMeasurement.artifact == artifact)
            .order_by(SQLMeasurement.id)
        )
        return [_fields(measurement, series) for measurement, series in rows]

    def hold(self, whats: Iterable[What]) -> dict[What, int]:
        """Makes sure of series, and holds them until the transaction ends: nobody else adds figures meanwhile.

        Whoever adds figures does it after this, and calls `sum_up` in the same transaction: what others committed
        before is then seen. Ask for every series of a transaction at once: those that ask in pieces may deadlock.

        Args:
            whats: What is wanted, in any order, the same one any number of times.

        Returns:
            Their rows.
        """
        ordered = sorted(set(whats))
        if not ordered:
            return {}
        columns = dict(zip(What._fields, map(list, zip(*ordered, strict=True)), strict=True))
        return {What(*what): row for *what, row in self._session.execute(_HOLD, columns)}

    def sum_up(self, points: Iterable[tuple[int, int]]) -> None:
        """Makes points anew, each from its latest figures; the series must be held (see `hold`).

        Args:
            points: Series and version's number of each; the same one any number of times.
        """
        ordered = sorted(set(points))
        if ordered:
            series, numbers = map(list, zip(*ordered, strict=True))
            self._session.execute(_SUM_UP, {"series": series, "numbers": numbers, "most": _MOST_FIGURES})

    def _add(
        self,
        run: MeasurementRun,
        environment: Digest,
        figures: Sequence[tuple[Measured, Measurement]],
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
        self, of: Measured, run: MeasurementRun, pairs: Sequence[Pair], series: Sequence[int]
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


def what_of(of: Measured, class_digest: Digest, item: Measurement | Pair) -> What:
    """The series that a figure of an artifact belongs to.

    Args:
        of: The artifact.
        class_digest: The environment class that it was measured in.
        item: The figure.
    """
    subject = getattr(item, "subject", "artifact")  # pairs are of artifacts
    return What(of.model_id, of.target, item.metric, item.batch or NO_BATCH, subject, class_digest, item.unit)


def _fields(measurement: SQLMeasurement, series: SQLSeries) -> dict[str, Any]:
    return {
        "metric": series.metric,
        "value": measurement.value,
        "unit": series.unit,
        "subject": series.subject,
        "measured_at": stamp(measurement.measured_at),
        "batch": series.batch or None,
        "samples": measurement.samples,
        "replicates": measurement.replicates,
        "source": measurement.source,
        "environment": measurement.environment,
    }
