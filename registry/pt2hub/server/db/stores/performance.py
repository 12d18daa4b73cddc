"""Figures: the series they belong to, what stands beside each other, and the points that charts read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from sqlalchemy import func, select, text
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

_SERIES = cast("Table", SQLSeries.__table__)
_WHAT = ("model_id", "target", "metric", "batch", "subject", "class_digest", "unit")
# An update that changes little, where doing nothing would return no row.
_ENSURE = (
    insert(_SERIES)
    .on_conflict_do_update(index_elements=_WHAT, set_={"changed_at": func.clock_timestamp()})
    .returning(_SERIES.c.id, sort_by_parameter_order=True)
)
_ADD = insert(cast("Table", SQLMeasurement.__table__)).on_conflict_do_nothing()
_ADD_PAIRS = insert(cast("Table", SQLPair.__table__)).on_conflict_do_nothing()
_SUM_UP = text("""
    INSERT INTO series_points (series_id, number, artifact, value, low, high, count, measured_at)
    SELECT series_id, number, max(artifact), percentile_cont(0.5) WITHIN GROUP (ORDER BY value),
        min(least(value, (SELECT min(r) FROM unnest(replicates) AS r))),
        max(greatest(value, (SELECT max(r) FROM unnest(replicates) AS r))),
        count(*), max(measured_at)
    FROM measurements WHERE series_id = ANY(:series) AND number = ANY(:numbers)
    GROUP BY series_id, number
    ON CONFLICT (series_id, number) DO UPDATE SET
        artifact = excluded.artifact, value = excluded.value, low = excluded.low, high = excluded.high,
        count = excluded.count, measured_at = excluded.measured_at
""")


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
        self._add(known[artifact], run, run.measurements)
        if run.baseline in known:
            self._add(known[run.baseline], run, run.beside)
            self._add_pairs(known[artifact], run)

    def of(self, artifact: Digest) -> list[dict[str, Any]]:
        """The figures of an artifact as `MeasurementView` has them, in the order they came."""
        rows = self._session.execute(
            select(SQLMeasurement, SQLSeries)
            .join(SQLSeries, SQLSeries.id == SQLMeasurement.series_id)
            .where(SQLMeasurement.artifact == artifact)
            .order_by(SQLMeasurement.id)
        )
        return [_fields(measurement, series) for measurement, series in rows]

    def sum_up(self, series: Sequence[int], numbers: Sequence[int]) -> None:
        """Makes the points of series at these versions anew, from every figure."""
        self._session.execute(_SUM_UP, {"series": list(series), "numbers": list(numbers)})

    def ensure_series(
        self, of: Measured, class_digest: Digest, items: Sequence[Measurement | Pair]
    ) -> list[int]:
        """The series that figures belong to, made where they are missing, in the order of the figures."""
        wanted = [_what(of, class_digest, item) for item in items]
        # Sorted and once each: two transactions that meet must not wait for each other, nor one for itself.
        ordered = sorted({tuple(what.values()) for what in wanted})
        given = [dict(zip(_WHAT, values, strict=True)) for values in ordered]
        ids = list(self._session.scalars(_ENSURE, given)) if given else []
        by_what = dict(zip(ordered, ids, strict=True))
        return [by_what[tuple(what.values())] for what in wanted]

    def _add(self, of: Measured, run: MeasurementRun, measurements: Sequence[Measurement]) -> None:
        if not measurements:
            return
        environment = WorkerStore(self._session).add_environment(run.environment)
        series = self.ensure_series(of, environment_class(run.environment), measurements)
        shared = {
            "number": of.number,
            "artifact": of.artifact,
            "environment": environment,
            "source": run.source,
            "run": run.id,
            "measured_at": moment(run.measured_at),
        }
        rows = [
            {
                **shared,
                "series_id": own,
                "value": item.value,
                "replicates": item.replicates,
                "samples": storable(item.samples),
            }
            for own, item in zip(series, measurements, strict=True)
        ]
        self._session.execute(_ADD, rows)
        self.sum_up(series, [of.number])

    def _add_pairs(self, of: Measured, run: MeasurementRun) -> None:
        if not run.pairs:
            return
        series = self.ensure_series(of, environment_class(run.environment), run.pairs)
        shared = {
            "artifact": of.artifact,
            "baseline": run.baseline,
            "run": run.id,
            "measured_at": moment(run.measured_at),
        }
        rows = [
            {**shared, "series_id": own, "ratios": item.ratios}
            for own, item in zip(series, run.pairs, strict=True)
        ]
        self._session.execute(_ADD_PAIRS, rows)


def _what(of: Measured, class_digest: Digest, item: Measurement | Pair) -> dict[str, Any]:
    values = (
        of.model_id,
        of.target,
        item.metric,
        item.batch or NO_BATCH,
        getattr(item, "subject", "artifact"),
        class_digest,
        item.unit,
    )
    return dict(zip(_WHAT, values, strict=True))


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
