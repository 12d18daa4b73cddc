"""Reported figures: what they are of, which have come before, and adding them many at a time."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, cast

from sqlalchemy import bindparam, func, select, text
from sqlalchemy.dialects.postgresql import JSONB, distinct_on

from pt2hub.domain.digests import Digest
from pt2hub.domain.measurements import Measurement
from pt2hub.server.db.performance_schema import Measurement as SQLMeasurement
from pt2hub.server.db.performance_schema import Series as SQLSeries
from pt2hub.server.db.schema import Environment as SQLEnvironment
from pt2hub.server.db.schema import Worker as SQLWorker
from pt2hub.server.db.stores.performance import Measured, PerformanceStore, What, what_of
from pt2hub.server.db.stores.values import stamp

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from sqlalchemy.orm import Session


# One JSON value instead of sixty thousand parameters, which take psycopg longer than PostgreSQL. In the order of keys:
# two deliveries that share some wait for each other once and not for ever.
_ADD = text("""
    INSERT INTO measurements
        (series_id, number, artifact, environment, source, reporter, key, value, replicates, samples, measured_at)
    SELECT series_id, number, artifact, environment, 'report', :reporter, key, value, replicates, samples, measured_at
    FROM jsonb_to_recordset(:figures) AS given (
        series_id bigint, number integer, artifact text, environment text, key text, value double precision,
        replicates double precision[], samples jsonb, measured_at timestamptz
    )
    ORDER BY key
    ON CONFLICT (reporter, key) WHERE key IS NOT NULL DO NOTHING
    RETURNING key
""").bindparams(bindparam("figures", type_=JSONB))
_ARTIFACTS = """
    SELECT artifacts.digest, models.name, models.id, versions.number, builds.target, artifacts.created_at
    FROM artifacts
    JOIN builds ON builds.id = artifacts.build_id
    JOIN versions ON versions.id = builds.version_id
    JOIN models ON models.id = versions.model_id
"""
_BY_DIGEST = text(f"{_ARTIFACTS} WHERE artifacts.digest = ANY(:digests)")
_BY_VERSION = text(f"""
    {_ARTIFACTS}
    JOIN unnest(CAST(:models AS text[]), CAST(:numbers AS integer[])) AS wanted (name, number)
        ON models.name = wanted.name AND versions.number = wanted.number
    ORDER BY builds.position, builds.target
""")


@dataclass(frozen=True, slots=True)
class Candidate:
    """An artifact that figures may be of.

    Attributes:
        of: What the history knows it as.
        model: The model's name.
        created_at: When it was built.
    """

    of: Measured
    model: str
    created_at: datetime


@dataclass(frozen=True, slots=True)
class Place:
    """Where figures were taken.

    Attributes:
        environment: Digest of all that is known of the machine.
        class_digest: Digest of what makes figures comparable.
    """

    environment: Digest
    class_digest: Digest


@dataclass(frozen=True, slots=True)
class KeyedFigure:
    """A figure that is to be kept.

    Attributes:
        key: Its reporter's name for it.
        of: The artifact.
        place: Where it was taken.
        measurement: The figure.
        measured_at: When it was taken.
        dated: Whether its reporter said when.
    """

    key: str
    of: Measured
    place: Place
    measurement: Measurement
    measured_at: datetime
    dated: bool

    @property
    def what(self) -> What:
        """The series it belongs to."""
        return what_of(self.of, self.place.class_digest, self.measurement)


@dataclass(frozen=True, slots=True)
class Delivered:
    """A figure that came before.

    Attributes:
        artifact: Manifest digest.
        environment: Digest of the machine's.
        series: Metric, unit, batch and subject.
        figures: Value, replicates and samples.
        measured_at: When it was taken.
    """

    artifact: str
    environment: str
    series: tuple[str, str, int, str]
    figures: tuple[Any, ...]
    measured_at: datetime

    def same(self, figure: KeyedFigure) -> bool:
        """Whether a figure that comes now is this one; one whose time nobody said may have come at any."""
        item, what = figure.measurement, figure.what
        return (
            self.artifact == figure.of.artifact
            and self.environment == figure.place.environment
            and self.series == (what.metric, what.unit, what.batch, what.subject)
            and self.figures == (item.value, item.replicates, item.samples)
            and (not figure.dated or self.measured_at == figure.measured_at)
        )


class ReportStore:
    """Reported figures."""

    def __init__(self, session: Session) -> None:
        """Works in the caller's transaction."""
        self._session = session

    def now(self) -> datetime:
        """The database's clock."""
        return cast("datetime", self._session.scalars(select(func.clock_timestamp())).one())

    def by_digest(self, digests: Collection[str]) -> dict[str, Candidate]:
        """Artifacts by manifest digest; those that there are not are left out."""
        if not digests:
            return {}
        rows = self._session.execute(_BY_DIGEST, {"digests": list(digests)})
        return {row[0]: _candidate(*row) for row in rows}

    def by_version(self, versions: Collection[tuple[str, int]]) -> dict[tuple[str, int], list[Candidate]]:
        """The artifacts of versions, by the model's name and the number, in the order of their targets."""
        found: dict[tuple[str, int], list[Candidate]] = {}
        if versions:
            models, numbers = zip(*versions, strict=True)
            wanted = {"models": list(models), "numbers": list(numbers)}
            for row in self._session.execute(_BY_VERSION, wanted):
                found.setdefault((row[1], row[3]), []).append(_candidate(*row))
        return found

    def delivered(self, by: str, keys: Collection[str]) -> dict[str, Delivered]:
        """What a reporter delivered under these keys before."""
        series = SQLSeries
        rows = self._session.execute(
            select(SQLMeasurement, series.metric, series.unit, series.batch, series.subject)
            .join(series, series.id == SQLMeasurement.series_id)
            .where(SQLMeasurement.reporter == by, SQLMeasurement.key == func.any(list(keys)))
        )
        return {str(row.key): _delivered(row, tuple(of)) for row, *of in rows}

    def add(self, by: str, figures: Sequence[KeyedFigure]) -> set[str]:
        """Adds figures whose keys are new, and makes their points anew.

        Args:
            by: Who reports them.
            figures: Each key once.

        Returns:
            The keys of those added: another transaction may have added some meanwhile.
        """
        held = PerformanceStore(self._session).hold(figure.what for figure in figures)
        rows = [_row(figure, held[figure.what]) for figure in figures]
        added = set(self._session.scalars(_ADD, {"reporter": by, "figures": rows}))
        PerformanceStore(self._session).sum_up(
            (held[figure.what], figure.of.number) for figure in figures if figure.key in added
        )
        return added

    def units(self, metrics: Collection[str], models: Collection[int]) -> dict[tuple[int, str], set[str]]:
        """The units that metrics of models have so far, by the model's row and the metric."""
        found: dict[tuple[int, str], set[str]] = {}
        if metrics:
            rows = self._session.execute(
                select(SQLSeries.model_id, SQLSeries.metric, SQLSeries.unit)
                .where(SQLSeries.model_id.in_(models), SQLSeries.metric.in_(metrics))
                .distinct()
            )
            for model, metric, unit in rows:
                found.setdefault((model, metric), set()).add(unit)
        return found

    def metrics(self, models: Collection[int]) -> set[str]:
        """The metrics that models have figures of."""
        return set(
            self._session.scalars(select(SQLSeries.metric).where(SQLSeries.model_id.in_(models)).distinct())
        )

    def classes(self, models: Collection[int]) -> dict[Digest, dict[str, Any]]:
        """The environment classes that models have figures of, each with the fields of one of its machines."""
        known = select(SQLSeries.class_digest).where(SQLSeries.model_id.in_(models)).distinct()
        rows = self._session.execute(
            select(SQLEnvironment.class_digest, SQLEnvironment.fields)
            .where(SQLEnvironment.class_digest.in_(known))
            .ext(distinct_on(SQLEnvironment.class_digest))
            .order_by(SQLEnvironment.class_digest)
        )
        return {Digest(digest): fields for digest, fields in rows}

    def targets_of(self, gpus: Collection[str]) -> dict[str, set[str]]:
        """The targets that workers with a GPU of these names ever offered, by the GPU's name."""
        found: dict[str, set[str]] = {}
        if gpus:
            gpu = SQLEnvironment.fields["gpu"].astext
            rows = self._session.execute(
                select(gpu, SQLWorker.target)
                .join(SQLEnvironment, SQLEnvironment.digest == SQLWorker.environment)
                .where(gpu.in_(gpus))
                .distinct()
            )
            for name, target in rows:
                found.setdefault(name, set()).add(target)
        return found


def _candidate(
    digest: str, model: str, model_id: int, number: int, target: str, created_at: datetime
) -> Candidate:
    return Candidate(Measured(Digest(digest), model_id, number, target), model, created_at)


def _delivered(row: SQLMeasurement, of: tuple[Any, ...]) -> Delivered:
    # PostgreSQL writes large floats as whole numbers, which Python reads exactly: no longer the float that was reported.
    samples = row.samples and [[float(call) for call in process] for process in row.samples]
    figures = (row.value, row.replicates, samples)
    return Delivered(row.artifact, row.environment, of, figures, row.measured_at)


def _row(figure: KeyedFigure, series: int) -> dict[str, Any]:
    item = figure.measurement
    samples = (
        {} if item.samples is None else {"samples": item.samples}
    )  # absent it is NULL, and not JSON's null
    return samples | {
        "series_id": series,
        "number": figure.of.number,
        "artifact": figure.of.artifact,
        "environment": figure.place.environment,
        "key": figure.key,
        "value": item.value,
        "replicates": item.replicates,
        "measured_at": stamp(figure.measured_at),
    }
