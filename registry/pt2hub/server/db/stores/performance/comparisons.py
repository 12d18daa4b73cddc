"""Data for comparisons: measurements and pairs of artifacts, and the noise of their series."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, cast

from sqlalchemy import select, text, tuple_

from pt2hub.domain.artifacts import KEY_SCHEMA, Environment
from pt2hub.domain.codec import decode
from pt2hub.domain.digests import Digest
from pt2hub.domain.performance.measurements import class_fields
from pt2hub.server.db.schema import AutotuneChoice as SQLAutotuneChoice
from pt2hub.server.db.schema import Version as SQLVersion

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from sqlalchemy import Table, TextClause
    from sqlalchemy.orm import Session

_RUNS = 10
"""Newest measurements per version and series that are read: production may report thousands."""
_USUAL = 50
"""Earlier versions that determine the usual noise."""
_MOST_PAIRS = 2000
"""Newest runs with two artifacts that are read, of each two."""
_MOST_AGAIN = 100
"""Newest repeated measurements of a series that determine the spread between runs."""
# As `ProgramKey.binds_kernels_with`: code calls foreign operators by name, and the key identifies their content.
BUILT = f"""CASE
        WHEN coalesce((a.provenance ->> 'key_schema')::int, 1) >= {KEY_SCHEMA} AND a.provenance ->> 'never_reused' IS NULL
        THEN concat_ws(
            ' ', a.code, CASE WHEN coalesce(a.provenance -> 'operators', '[]') <> '[]' THEN a.program_key END,
            a.torch, a.python, a.compiler, a.libc, a.pt2hub, a.triton, a.cuda, a.driver
        ) ELSE '' END"""
_FIGURES = f"""
    SELECT p.artifact, p.series_id AS series, p.number, p.value AS typical, s.metric, s.unit, s.batch, s.class_digest,
        m.value, m.replicates, m.run, m.measured_at, e.fields,
        {BUILT} AS built
    FROM series_points AS p
    JOIN series AS s ON s.id = p.series_id
    JOIN LATERAL (
        SELECT * FROM measurements AS own WHERE own.series_id = p.series_id AND own.number = p.number {{which}}
    ) AS m ON true
    JOIN environments AS e ON e.digest = m.environment
    JOIN artifacts AS a ON a.digest = p.artifact
"""  # noqa: S608  # a text of our own
_LATEST = _FIGURES.format(which="ORDER BY own.measured_at DESC, own.id DESC LIMIT :runs")
_CHOSEN = "WHERE p.artifact = ANY(:artifacts) AND s.implementation = 'artifact' AND (:all OR s.metric = ANY(:metrics))"
_OF_ARTIFACTS = text(f"{_LATEST} {_CHOSEN} ORDER BY m.measured_at DESC, p.series_id")
_OF_RUNS = text(f"{_FIGURES.format(which='AND own.run = ANY(:wanted)')} {_CHOSEN}")
_AT_POINTS = text(
    f"{_LATEST} JOIN unnest(CAST(:series AS bigint[]), CAST(:numbers AS int[])) AS wanted (series_id, number) "
    "ON wanted.series_id = p.series_id AND wanted.number = p.number ORDER BY m.measured_at DESC, p.series_id"
)
_PAIRS = text("""
    SELECT p.series_id AS series, p.artifact, p.baseline, p.run, p.ratios, s.metric, s.unit, s.batch, s.class_digest
    FROM measurement_pairs AS p JOIN series AS s ON s.id = p.series_id
    WHERE p.artifact = ANY(:artifacts) AND p.baseline = ANY(:artifacts) AND s.implementation = 'artifact'
        AND (:all OR p.series_id = ANY(:series))
    ORDER BY p.measured_at DESC, p.id DESC LIMIT :most
""")
# Runs of one job follow each other immediately and differ less than runs of different days, so only runs of different
# jobs count. Reports have no run: in a series of reports only, those of different times count.
_AGAIN = text("""
    SELECT wanted.series_id, ln(two.value) - ln(two.before)
    FROM unnest(CAST(:series AS bigint[])) AS wanted (series_id)
    JOIN LATERAL (
        SELECT * FROM (
            SELECT own.*, lag(own.value) OVER of_version AS before, lag(own.job) OVER of_version AS job_before
            FROM (
                (
                    SELECT number, split_part(run, ':', 1) AS job, value, measured_at, id FROM measurements
                    WHERE series_id = wanted.series_id AND run IS NOT NULL AND value > 0
                        AND cardinality(replicates) > 1
                    ORDER BY number DESC, run DESC LIMIT 2 * :most
                ) UNION ALL (
                    SELECT number, CAST(measured_at AS text) AS job, value, measured_at, id FROM measurements
                    WHERE series_id = wanted.series_id AND value > 0 AND cardinality(replicates) > 1
                        AND NOT EXISTS (
                            SELECT 1 FROM measurements AS own
                            WHERE own.series_id = wanted.series_id AND own.run IS NOT NULL
                        )
                    ORDER BY number DESC, measured_at DESC, id DESC LIMIT 2 * :most
                )
            ) AS own
            WINDOW of_version AS (PARTITION BY own.number ORDER BY own.measured_at, own.id)
        ) AS runs
        WHERE job <> job_before ORDER BY measured_at DESC, id DESC LIMIT :most
    ) AS two ON true
""")
_BEFORE = text("""
    SELECT wanted.series_id, p.value
    FROM unnest(CAST(:series AS bigint[]), CAST(:numbers AS int[])) AS wanted (series_id, number)
    JOIN LATERAL (
        SELECT own.number, own.value FROM series_points AS own
        WHERE own.series_id = wanted.series_id AND own.number < wanted.number
        ORDER BY own.number DESC LIMIT :most
    ) AS p ON true
    ORDER BY wanted.series_id, p.number
""")


@dataclass(frozen=True, slots=True)
class ComparableMeasurement:
    """A measurement of an artifact, with its series.

    Attributes:
        typical: The version's measurement in the series, by the rule in `services.performance.history`.
        batch: Batch size, 0 where there is none.
        replicates: One value per fresh process, or None.
        run: The build or measuring job and its attempt, or None if reported.
        measured_at: When it was measured.
        built: Identifies the artifact's code, what it calls by name, and the toolchain: equal values mean equal kernels.
            Empty if unknown.
    """

    artifact: Digest
    series: int
    number: int
    typical: float
    metric: str
    unit: str
    batch: int
    class_digest: Digest
    value: float
    replicates: list[float] | None
    run: str | None
    measured_at: datetime
    fields: dict[str, Any]
    built: str = ""


@dataclass(frozen=True, slots=True)
class PairRow:
    """A run of two artifacts in the same fresh processes.

    Attributes:
        artifact: The artifact in the numerator of the ratios.
        run: The build or measuring job and its attempt.
        batch: Batch size, 0 where there is none.
    """

    series: int
    artifact: Digest
    baseline: Digest
    run: str
    ratios: list[float]
    metric: str
    unit: str
    batch: int
    class_digest: Digest


class ComparisonStore:
    """Measurements and pairs, each in one statement for any number of metrics."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def of_artifacts(
        self, artifacts: Collection[Digest], metrics: Collection[str] | None = None
    ) -> list[ComparableMeasurement]:
        """Return the newest measurements of artifacts in each of their series, newest first.

        Args:
            metrics: Only these; all where omitted.
        """
        wanted = {"artifacts": list(artifacts), "all": metrics is None, "metrics": list(metrics or ())}
        return self._figures(_OF_ARTIFACTS, wanted)

    def of_runs(
        self, artifacts: Collection[Digest], runs: Collection[str], metrics: Collection[str] | None = None
    ) -> list[ComparableMeasurement]:
        """Return the measurements of artifacts from some runs, unordered.

        Args:
            runs: Builds or measuring jobs with their attempts.
            metrics: Only these; all where omitted.
        """
        chosen = {"all": metrics is None, "metrics": list(metrics or ())}
        return self._figures(_OF_RUNS, {"artifacts": list(artifacts), "wanted": sorted(runs), **chosen})

    def at_points(self, points: Collection[tuple[int, int]]) -> list[ComparableMeasurement]:
        """Return the newest measurements of versions in series, newest first."""
        if not points:
            return []
        series, numbers = zip(*points, strict=True)
        return self._figures(_AT_POINTS, {"series": list(series), "numbers": list(numbers)})

    def pairs(self, artifacts: Iterable[Digest], series: Collection[int] | None = None) -> list[PairRow]:
        """Return the runs with two of these artifacts in the same processes, newest first.

        Args:
            series: Only in these; all where omitted.
        """
        chosen = {"all": series is None, "series": list(series or ())}
        both = sorted(set(artifacts))
        wanted = {**chosen, "artifacts": both, "most": _MOST_PAIRS * max(1, len(both) // 2)}
        return [PairRow(**row._mapping) for row in self._session.execute(_PAIRS, wanted)]  # noqa: SLF001  # SQLAlchemy's public name

    def values_before(self, bounds: Mapping[int, int]) -> dict[int, list[float]]:
        """Return the values of series at the last versions before a number, oldest first."""
        if not bounds:
            return {}
        wanted = {"series": list(bounds), "numbers": list(bounds.values()), "most": _USUAL}
        found: dict[int, list[float]] = {series: [] for series in bounds}
        for series, value in self._session.execute(_BEFORE, wanted):
            found[series].append(value)
        return found

    def again(self, series: Collection[int]) -> dict[int, list[float]]:
        """Return the differences between measurements of one artifact by different jobs, as logarithms.

        Returns:
            The differences by series, for its newest versions; series without repeated measurements are left out.
        """
        found: dict[int, list[float]] = {}
        if series:
            wanted = {"series": sorted(series), "most": _MOST_AGAIN}
            for row, difference in self._session.execute(_AGAIN, wanted):
                found.setdefault(row, []).append(difference)
        return found

    def specs(self, versions: Collection[tuple[int, int]]) -> dict[tuple[int, int], dict[str, Any]]:
        """Return the specs of versions, by the model's id and the version's number."""
        place = (SQLVersion.model_id, SQLVersion.number)
        rows = self._session.execute(
            select(*place, SQLVersion.spec).where(tuple_(*place).in_(list(versions)))
        )
        return {(model_id, number): spec for model_id, number, spec in rows}

    def choices(self, artifacts: Sequence[Digest]) -> dict[Digest, list[dict[str, Any]]]:
        """Return the autotune tables of artifacts, in the compiler's order."""
        found: dict[Digest, list[dict[str, Any]]] = {digest: [] for digest in artifacts}
        table = cast("Table", SQLAutotuneChoice.__table__)
        statement = select(table).where(table.c.artifact.in_(artifacts)).order_by(table.c.id)
        for row in self._session.execute(statement).mappings():
            found[Digest(row["artifact"])].append(dict(row))
        return found

    def _figures(self, statement: TextClause, wanted: dict[str, Any]) -> list[ComparableMeasurement]:
        rows = self._session.execute(statement, {**wanted, "runs": _RUNS}).mappings()
        known: dict[str, dict[str, Any]] = {}
        found = []
        for row in rows:
            given = dict(row)
            said = given.pop("fields")
            key = given["class_digest"]  # fields of one class are equal, so they are decoded once
            if key not in known:
                known[key] = class_fields(decode(Environment, said))
            found.append(ComparableMeasurement(fields=known[key], **given))
        return found
