"""Reported measurements: their artifacts, detection of duplicates, and bulk inserts."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, cast

from sqlalchemy import bindparam, func, select, text
from sqlalchemy.dialects.postgresql import JSONB

from pt2hub.domain.digests import Digest
from pt2hub.domain.performance.measurements import Measurement
from pt2hub.server.db.performance_schema import Measurement as SQLMeasurement
from pt2hub.server.db.performance_schema import Series as SQLSeries
from pt2hub.server.db.stores.performance.measurements import (
    MeasuredArtifact,
    PerformanceStore,
    SeriesKey,
    what_of,
)
from pt2hub.server.db.stores.values import stamp

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from sqlalchemy.orm import Session


# One JSON value instead of sixty thousand parameters, which take psycopg longer than PostgreSQL. In the order of keys, so
# that concurrent deliveries wait for each other and never deadlock.
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
    """An artifact that a report may name, with its creation time."""

    of: MeasuredArtifact
    model: str
    created_at: datetime


@dataclass(frozen=True, slots=True)
class KeyedMeasurement:
    """A measurement to store.

    Attributes:
        dated: Whether its reporter gave its time.
    """

    key: str
    of: MeasuredArtifact
    environment: Digest
    class_digest: Digest
    measurement: Measurement
    measured_at: datetime
    dated: bool

    @property
    def what(self) -> SeriesKey:
        """The series of the measurement."""
        return what_of(self.of, self.class_digest, self.measurement)

    def is_same(self, content: tuple[Any, ...], measured_at: datetime) -> bool:
        """Return whether a stored measurement has the same content; an undated one matches any time.

        Args:
            content: As returned by `ReportStore.find_delivered`.
        """
        item, what = self.measurement, self.what
        own = (self.of.artifact, self.environment, what.metric, what.unit, what.batch, what.implementation)
        same = content == (*own, item.value, item.replicates, item.samples)
        return same and (not self.dated or measured_at == self.measured_at)


class ReportStore:
    """Reported measurements."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def now(self) -> datetime:
        """Return the database's time."""
        return cast("datetime", self._session.scalars(select(func.clock_timestamp())).one())

    def by_digest(self, digests: Collection[str]) -> dict[str, Candidate]:
        """Return the existing artifacts, by manifest digest."""
        if not digests:
            return {}
        rows = self._session.execute(_BY_DIGEST, {"digests": list(digests)})
        return {row[0]: _candidate(*row) for row in rows}

    def by_version(self, versions: Collection[tuple[str, int]]) -> dict[tuple[str, int], list[Candidate]]:
        """Return the artifacts of versions, by the model's name and the number, in the order of their targets."""
        found: dict[tuple[str, int], list[Candidate]] = {}
        if versions:
            models, numbers = zip(*versions, strict=True)
            wanted = {"models": list(models), "numbers": list(numbers)}
            for row in self._session.execute(_BY_VERSION, wanted):
                found.setdefault((row[1], row[3]), []).append(_candidate(*row))
        return found

    def find_delivered(self, by: str, keys: Collection[str]) -> dict[str, tuple[tuple[Any, ...], datetime]]:
        """Return content and time of the measurements that a reporter delivered under these keys before."""
        series = SQLSeries
        rows = self._session.execute(
            select(SQLMeasurement, series.metric, series.unit, series.batch, series.implementation)
            .join(series, series.id == SQLMeasurement.series_id)
            .where(SQLMeasurement.reporter == by, SQLMeasurement.key == func.any(list(keys)))
        )
        return {str(row.key): (_content(row, tuple(of)), row.measured_at) for row, *of in rows}

    def add(self, by: str, figures: Sequence[KeyedMeasurement]) -> set[str]:
        """Add measurements whose keys are new, and recompute their points.

        Args:
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


def _candidate(
    digest: str, model: str, model_id: int, number: int, target: str, created_at: datetime
) -> Candidate:
    return Candidate(MeasuredArtifact(Digest(digest), model_id, number, target), model, created_at)


def _content(row: SQLMeasurement, of: tuple[Any, ...]) -> tuple[Any, ...]:
    # PostgreSQL writes large floats as integers, which Python reads exactly: no longer the float that was reported.
    samples = row.samples and [[float(call) for call in process] for process in row.samples]
    return (row.artifact, row.environment, *of, row.value, row.replicates, samples)


def _row(figure: KeyedMeasurement, series: int) -> dict[str, Any]:
    item = figure.measurement
    return {
        "series_id": series,
        "number": figure.of.number,
        "artifact": figure.of.artifact,
        "environment": figure.environment,
        "key": figure.key,
        "value": item.value,
        "replicates": item.replicates,
        **(
            {} if item.samples is None else {"samples": item.samples}
        ),  # absent it is NULL, and not JSON's null
        "measured_at": stamp(figure.measured_at),
    }
