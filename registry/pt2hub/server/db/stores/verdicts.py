"""What verdicts are made of: the figures of artifacts, side by side, and what is usual in their series."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, cast

from sqlalchemy import select, text, tuple_

from pt2hub.domain.artifacts import KEY_SCHEMA, Environment
from pt2hub.domain.codec import decode
from pt2hub.domain.digests import Digest
from pt2hub.domain.measurements import class_fields
from pt2hub.server.db.schema import AutotuneChoice as SQLAutotuneChoice
from pt2hub.server.db.schema import Version as SQLVersion

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from sqlalchemy import Table, TextClause
    from sqlalchemy.orm import Session

_RUNS = 10
"""Newest figures of a version in a series that are looked at: production may report thousands."""
_USUAL = 50
"""Versions before that say what is usual."""
_MOST_PAIRS = 2000
_MOST_AGAIN = 100
"""Artifacts of a series that were measured again, the newest, which say how much runs differ."""
# As `ProgramKey.binds_kernels_with`: code calls operators that are not torch's own by name, and the key names their content.
_BUILT = f"""CASE
        WHEN coalesce((a.provenance ->> 'key_schema')::int, 1) >= {KEY_SCHEMA} AND a.provenance ->> 'never_reused' IS NULL
        THEN concat_ws(
            ' ', a.code, CASE WHEN coalesce(a.provenance -> 'operators', '[]') <> '[]' THEN a.program_key END,
            a.torch, a.python, a.compiler, a.libc, a.pt2hub, a.triton, a.cuda, a.driver
        ) ELSE '' END"""
_LATEST = f"""
    SELECT p.artifact, p.series_id AS series, p.number, p.value AS typical, s.metric, s.unit, s.batch, s.class_digest,
        m.value, m.replicates, m.run, m.measured_at, e.fields,
        {_BUILT} AS built
    FROM series_points AS p
    JOIN series AS s ON s.id = p.series_id
    JOIN LATERAL (
        SELECT * FROM measurements AS own WHERE own.series_id = p.series_id AND own.number = p.number
        ORDER BY own.measured_at DESC, own.id DESC LIMIT :runs
    ) AS m ON true
    JOIN environments AS e ON e.digest = m.environment
    JOIN artifacts AS a ON a.digest = p.artifact
"""  # noqa: S608  # a text of our own
_OF_ARTIFACTS = text(
    f"{_LATEST} WHERE p.artifact = ANY(:artifacts) AND s.subject = 'artifact' "
    "AND (:all OR s.metric = ANY(:metrics)) ORDER BY m.measured_at DESC, p.series_id"
)
_OF_RUNS = text(f"""
    SELECT p.artifact, p.series_id AS series, p.number, p.value AS typical, s.metric, s.unit, s.batch, s.class_digest,
        m.value, m.replicates, m.run, m.measured_at, e.fields,
        {_BUILT} AS built
    FROM series_points AS p
    JOIN series AS s ON s.id = p.series_id
    JOIN measurements AS m ON m.series_id = p.series_id AND m.number = p.number AND m.run = ANY(:wanted)
    JOIN environments AS e ON e.digest = m.environment
    JOIN artifacts AS a ON a.digest = p.artifact
    WHERE p.artifact = ANY(:artifacts) AND s.subject = 'artifact' AND (:all OR s.metric = ANY(:metrics))
""")  # noqa: S608  # a text of our own
_AT_POINTS = text(
    f"{_LATEST} JOIN unnest(CAST(:series AS bigint[]), CAST(:numbers AS int[])) AS wanted (series_id, number) "
    "ON wanted.series_id = p.series_id AND wanted.number = p.number ORDER BY m.measured_at DESC, p.series_id"
)
_PAIRS = text("""
    SELECT p.series_id AS series, p.artifact, p.baseline, p.run, p.ratios, s.metric, s.unit, s.batch, s.class_digest
    FROM measurement_pairs AS p JOIN series AS s ON s.id = p.series_id
    WHERE p.artifact = ANY(:artifacts) AND p.baseline = ANY(:artifacts) AND s.subject = 'artifact'
        AND (:all OR p.series_id = ANY(:series))
    ORDER BY p.measured_at DESC, p.id DESC LIMIT :most
""")
# Two runs of one job follow one another at once, and differ less than two days do. Reports have no run: where a series
# holds nothing else, those of different moments tell it.
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
class Figure:
    """A figure of an artifact, with the series it stands in.

    Attributes:
        artifact: Manifest digest.
        series: The series' row.
        number: The version's number.
        typical: The version's figure in the series, which `services.performance` says the rule of.
        metric: What was measured.
        unit: Its unit.
        batch: Batch size, 0 where there is none.
        class_digest: The environment class.
        value: The figure.
        replicates: One figure of each fresh process, or None.
        run: The build or measuring job and its attempt, or None for what was reported.
        measured_at: When it was taken.
        fields: Fields of the environment class.
        built: The artifact's code, what that calls by name, and toolchain: no kernel differs between figures that have it
            in common. Empty where that is not known.
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
    """Two artifacts in the same fresh processes.

    Attributes:
        series: The series' row.
        artifact: Whose figures stand above the line of the ratios.
        baseline: Whose stand below it.
        run: The build or measuring job and its attempt.
        ratios: One of each process.
        metric: What was measured.
        unit: Its unit.
        batch: Batch size, 0 where there is none.
        class_digest: The environment class.
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


class EvidenceStore:
    """Figures and pairs, a statement for each whatever the number of metrics."""

    def __init__(self, session: Session) -> None:
        """Works in the caller's transaction."""
        self._session = session

    def of_artifacts(
        self, artifacts: Collection[Digest], metrics: Collection[str] | None = None
    ) -> list[Figure]:
        """The newest figures of artifacts in each of their series, newest first.

        Args:
            artifacts: Manifest digests.
            metrics: Only of these; of all where omitted.
        """
        wanted = {"artifacts": list(artifacts), "all": metrics is None, "metrics": list(metrics or ())}
        return self._figures(_OF_ARTIFACTS, wanted)

    def of_runs(
        self, artifacts: Collection[Digest], runs: Collection[str], metrics: Collection[str] | None = None
    ) -> list[Figure]:
        """The figures of artifacts that some runs took, in no order.

        Args:
            artifacts: Manifest digests.
            runs: Builds or measuring jobs with their attempts.
            metrics: Only of these; of all where omitted.
        """
        chosen = {"all": metrics is None, "metrics": list(metrics or ())}
        return self._figures(_OF_RUNS, {"artifacts": list(artifacts), "wanted": sorted(runs), **chosen})

    def at_points(self, points: Collection[tuple[int, int]]) -> list[Figure]:
        """The newest figures of versions in series, newest first.

        Args:
            points: Rows of series, each with a version's number.
        """
        if not points:
            return []
        series, numbers = zip(*points, strict=True)
        return self._figures(_AT_POINTS, {"series": list(series), "numbers": list(numbers)})

    def pairs(self, artifacts: Iterable[Digest], series: Collection[int] | None = None) -> list[PairRow]:
        """Where two of these artifacts ran beside each other, newest first.

        Args:
            artifacts: Manifest digests.
            series: Only in these; in all where omitted.
        """
        chosen = {"all": series is None, "series": list(series or ())}
        wanted = {**chosen, "artifacts": sorted(set(artifacts)), "most": _MOST_PAIRS}
        return [PairRow(**row._mapping) for row in self._session.execute(_PAIRS, wanted)]  # noqa: SLF001  # SQLAlchemy's public name

    def values_before(self, bounds: Mapping[int, int]) -> dict[int, list[float]]:
        """What series say of the last versions before a number, oldest first.

        Args:
            bounds: That number, by the rows of series.
        """
        if not bounds:
            return {}
        wanted = {"series": list(bounds), "numbers": list(bounds.values()), "most": _USUAL}
        found: dict[int, list[float]] = {series: [] for series in bounds}
        for series, value in self._session.execute(_BEFORE, wanted):
            found[series].append(value)
        return found

    def again(self, series: Collection[int]) -> dict[int, list[float]]:
        """How much figures of one artifact differ from one job to the next, as logarithms.

        Args:
            series: Rows of series.

        Returns:
            The differences in each series of its newest versions; no entry where there is none.
        """
        found: dict[int, list[float]] = {}
        if series:
            wanted = {"series": sorted(series), "most": _MOST_AGAIN}
            for row, difference in self._session.execute(_AGAIN, wanted):
                found.setdefault(row, []).append(difference)
        return found

    def specs(self, versions: Collection[tuple[int, int]]) -> dict[tuple[int, int], dict[str, Any]]:
        """The specs of versions, by the model's row and the version's number."""
        place = (SQLVersion.model_id, SQLVersion.number)
        rows = self._session.execute(
            select(*place, SQLVersion.spec).where(tuple_(*place).in_(list(versions)))
        )
        return {(model_id, number): spec for model_id, number, spec in rows}

    def choices(self, artifacts: Sequence[Digest]) -> dict[Digest, list[dict[str, Any]]]:
        """What was timed for the operations of artifacts, in the order of the compiler's work."""
        found: dict[Digest, list[dict[str, Any]]] = {digest: [] for digest in artifacts}
        table = cast("Table", SQLAutotuneChoice.__table__)
        statement = select(table).where(table.c.artifact.in_(artifacts)).order_by(table.c.id)
        for row in self._session.execute(statement).mappings():
            found[Digest(row["artifact"])].append(dict(row))
        return found

    def _figures(self, statement: TextClause, wanted: dict[str, Any]) -> list[Figure]:
        rows = self._session.execute(statement, {**wanted, "runs": _RUNS}).mappings()
        known: dict[str, dict[str, Any]] = {}
        found = []
        for row in rows:
            given = dict(row)
            said = given.pop("fields")
            key = given["class_digest"]  # fields of one class are equal, so that one reading serves all
            if key not in known:
                known[key] = class_fields(decode(Environment, said))
            found.append(Figure(fields=known[key], **given))
        return found
