"""Series and their points, for charts and histories."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from sqlalchemy import exists, select, text

from pt2hub.domain.artifacts import Environment
from pt2hub.domain.builds import BuildKind
from pt2hub.domain.codec import decode
from pt2hub.domain.digests import Digest
from pt2hub.domain.performance.measurements import class_fields
from pt2hub.server.db.performance_schema import Measurement as SQLMeasurement
from pt2hub.server.db.performance_schema import PerformanceEvent as SQLEvent
from pt2hub.server.db.performance_schema import Series as SQLSeries
from pt2hub.server.db.schema import Artifact as SQLArtifact
from pt2hub.server.db.schema import Build as SQLBuild
from pt2hub.server.db.schema import Model as SQLModel
from pt2hub.server.db.schema import Version as SQLVersion
from pt2hub.server.db.stores.performance.comparisons import BUILT
from pt2hub.server.db.stores.values import stamp
from pt2hub.wire.performance import ChangeView, PointView

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from sqlalchemy.orm import Session

    from pt2hub.domain.performance.metrics import SeriesFilter

# The primary key is read from each series' newest end: the cost depends only on the number of points requested.
_POINTS = text("""
    SELECT given.id, point.number, point.artifact, point.value, point.low, point.high, point.count,
        point.measured_at
    FROM unnest(CAST(:series AS bigint[])) AS given (id)
    CROSS JOIN LATERAL (
        SELECT * FROM series_points WHERE series_id = given.id AND number < :before
        ORDER BY number DESC LIMIT :most
    ) AS point
""")
_VALUES = text("""
    SELECT given.id, point.number, point.value
    FROM unnest(CAST(:series AS bigint[]), CAST(:upto AS integer[])) AS given (id, upto)
    CROSS JOIN LATERAL (
        SELECT number, value FROM series_points WHERE series_id = given.id AND number <= given.upto
        ORDER BY number DESC LIMIT :most
    ) AS point
""")
# Literals, so that the partial index is used.
_FRONT_SERIES = text("""
    SELECT id, model_id, target, metric, batch, implementation, class_digest, unit, newest_at,
        NOT EXISTS (SELECT 1 FROM measurements WHERE series_id = series.id AND run IS NOT NULL) AS reported
    FROM series WHERE model_id = ANY(:models) AND metric = 'latency_p50' AND implementation = 'artifact'
        AND newest_at IS NOT NULL
    ORDER BY reported, newest_at DESC, id DESC
""")
# A version's latency on its main target: a GPU before a CPU, the batch size of the example inputs before others, runs before
# reports, and of these the newest.
_MAIN_SERIES = text("""
    SELECT DISTINCT ON (given.model) series.id, series.model_id, series.target, series.metric, series.batch,
        series.implementation, series.class_digest, series.unit, point.measured_at,
        NOT EXISTS (SELECT 1 FROM measurements WHERE series_id = series.id AND run IS NOT NULL) AS reported
    FROM unnest(CAST(:models AS bigint[]), CAST(:numbers AS integer[]), CAST(:batches AS integer[]))
        AS given (model, number, batch)
    JOIN series ON series.model_id = given.model AND series.metric = 'latency_p50'
        AND series.implementation = 'artifact' AND series.newest_at IS NOT NULL
    JOIN series_points AS point ON point.series_id = series.id AND point.number = given.number
    LEFT JOIN targets ON targets.name = series.target
    WHERE CAST(:target AS text) IS NULL OR series.target = :target
    ORDER BY given.model, targets.device IS DISTINCT FROM 'cuda', series.batch <> given.batch, reported,
        point.measured_at DESC, series.id
""")
_VALUES_OF = text("""
    SELECT series_id, number, value FROM series_points
    WHERE series_id = ANY(CAST(:series AS bigint[])) AND number = ANY(CAST(:numbers AS integer[]))
""")
_CODES = text(f"""
    SELECT builds.target, versions.number, {BUILT} AS code FROM versions
    JOIN builds ON builds.version_id = versions.id JOIN artifacts AS a ON a.build_id = builds.id
    WHERE versions.model_id = :model AND versions.number = ANY(CAST(:numbers AS integer[]))
    AND builds.target = ANY(CAST(:targets AS text[]))
""")  # noqa: S608  # a text of our own
# If a version has two events, the change point comes first, as in `pt2hub history`.
_LAST_CHANGES = text("""
    SELECT given.id, event.number, event.before, event.outcome, event.ratio, event.kind, event.method
    FROM unnest(CAST(:series AS bigint[]), CAST(:first AS integer[]), CAST(:upto AS integer[])) AS given (id, first, upto)
    CROSS JOIN LATERAL (
        SELECT number, before, outcome, ratio, kind, method FROM performance_events
        WHERE series_id = given.id AND number > given.first AND number <= given.upto
        ORDER BY number DESC, kind LIMIT 1
    ) AS event
""")
_NAMED = text("SELECT name, id FROM models WHERE name = ANY(CAST(:names AS text[]))")
_SPECS = text("""
    SELECT given.id, newest.shape, newest.dims
    FROM unnest(CAST(:models AS bigint[])) AS given (id)
    CROSS JOIN LATERAL (
        SELECT spec #> '{inputs,0,shape}' AS shape, spec -> 'dims' AS dims
        FROM versions WHERE model_id = given.id ORDER BY number DESC LIMIT 1
    ) AS newest
""")
_ENVIRONMENTS = text("""
    SELECT given.digest, found.fields
    FROM unnest(CAST(:classes AS text[])) AS given (digest)
    CROSS JOIN LATERAL (
        SELECT fields FROM environments WHERE class_digest = given.digest LIMIT 1
    ) AS found
""")
_EVERY_NUMBER = 2**31 - 1


@dataclass(frozen=True, slots=True)
class StoredSeries:
    """A series without its points.

    Attributes:
        batch: Batch size, 0 where there is none.
        implementation: `artifact`, or a baseline.
        newest_at: Time of the newest measurement.
    """

    id: int
    model_id: int
    target: str
    metric: str
    batch: int
    implementation: str
    class_digest: str
    unit: str
    newest_at: datetime
    reported: bool


_REPORTED = ~exists().where(SQLMeasurement.series_id == SQLSeries.id, SQLMeasurement.run.is_not(None))
_COLUMNS = (
    *(getattr(SQLSeries, name) for name in StoredSeries.__dataclass_fields__ if name != "reported"),
    _REPORTED,
)


class HistoryStore:
    """Series and their points."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def earlier_artifact(self, model: str, number: int, target: str) -> Digest | None:
        """Return the artifact for a target of the newest earlier version that has one."""
        found = self._session.scalar(
            select(SQLArtifact.digest)
            .join(SQLBuild, SQLBuild.id == SQLArtifact.build_id)
            .join(SQLVersion, SQLVersion.id == SQLBuild.version_id)
            .join(SQLModel, SQLModel.id == SQLVersion.model_id)
            .where(SQLModel.name == model, SQLVersion.number < number)
            .where(SQLBuild.target == target, SQLBuild.kind == BuildKind.BUILD)
            .order_by(SQLVersion.number.desc())
            .limit(1)
        )
        return Digest(found) if found else None

    def series(
        self, model_id: int, wanted: SeriesFilter | None = None, *, limit: int | None = None
    ) -> list[StoredSeries]:
        """Return the series of a model that have points, newest measurements first.

        Args:
            wanted: Filter; None for all.
            limit: Maximum number; None for all.
        """
        statement = select(*_COLUMNS).where(SQLSeries.model_id == model_id, SQLSeries.newest_at.is_not(None))
        if wanted:
            statement = statement.where(
                SQLSeries.metric == wanted.metric, SQLSeries.implementation == wanted.implementation
            )
            for name in ("target", "batch"):
                if (value := getattr(wanted, name)) is not None:
                    statement = statement.where(getattr(SQLSeries, name) == value)
            if wanted.environment is not None:
                statement = statement.where(
                    SQLSeries.class_digest.startswith(wanted.environment, autoescape=True)
                )
        ordered = statement.order_by(SQLSeries.newest_at.desc(), SQLSeries.id.desc()).limit(limit)
        return [StoredSeries(*row) for row in self._session.execute(ordered)]

    def points(
        self, series: Sequence[int], *, before: int | None = None, limit: int
    ) -> dict[int, list[PointView]]:
        """Return the last points of each series below a number, oldest first.

        Args:
            before: Exclusive upper bound of version numbers; None for the newest.
            limit: Maximum number per series.
        """
        below = _EVERY_NUMBER if before is None else before
        rows = self._session.execute(_POINTS, {"series": list(series), "before": below, "most": limit})
        found: dict[int, list[PointView]] = {}
        for row, number, artifact, value, low, high, count, at in rows:
            point = PointView(number, Digest(artifact), value, low, high, count, stamp(at))
            found.setdefault(row, []).append(point)
        for points in found.values():
            points.reverse()
        return found

    def values(
        self, series: Sequence[int], *, limit: int, upto: Sequence[int] | None = None
    ) -> dict[int, list[tuple[int, float]]]:
        """Return number and value of the last points of each series, oldest first.

        Args:
            upto: The last version number of each series; None for the newest.
        """
        found: dict[int, list[tuple[int, float]]] = {}
        last = [_EVERY_NUMBER] * len(series) if upto is None else list(upto)
        rows = self._session.execute(_VALUES, {"series": list(series), "upto": last, "most": limit})
        for row, number, value in rows:
            found.setdefault(row, []).append((number, value))
        for values in found.values():
            values.reverse()
        return found

    def changes(self, series: Sequence[int]) -> dict[int, list[ChangeView]]:
        """Return the flagged changes of each series, oldest first."""
        rows = self._session.execute(
            select(
                SQLEvent.series_id,
                SQLEvent.number,
                SQLEvent.before,
                SQLEvent.outcome,
                SQLEvent.ratio,
                SQLEvent.kind,
                SQLEvent.method,
            )
            .where(SQLEvent.series_id.in_(series))
            .order_by(
                SQLEvent.number, SQLEvent.kind.desc()
            )  # if a version has two events, the change point comes last
        )
        found: dict[int, list[ChangeView]] = {}
        for row, number, before, outcome, ratio, kind, method in rows:
            found.setdefault(row, []).append(ChangeView(number, before, outcome, ratio, kind, method))
        return found

    def last_changes(
        self, since: Mapping[int, int], upto: Mapping[int, int] | None = None
    ) -> dict[int, ChangeView]:
        """Return the newest flagged change of each series that has one, by the series' id.

        Args:
            since: Exclusive lower bound of version numbers, by the series' id.
            upto: The last version number of each series; None for the newest.
        """
        last = [_EVERY_NUMBER if upto is None else upto[series] for series in since]
        given = {"series": list(since), "first": list(since.values()), "upto": last}
        return {row: ChangeView(*fields) for row, *fields in self._session.execute(_LAST_CHANGES, given)}

    def rows(self, models: Sequence[str]) -> dict[str, int]:
        """Return the ids of models, by name."""
        found = self._session.execute(_NAMED, {"names": list(models)})
        return {name: row for name, row in found}  # noqa: C416  # rows are not pairs to mypy

    def environments(self, classes: Iterable[str]) -> dict[str, dict[str, Any]]:
        """Return the fields of each environment class, by digest."""
        rows = self._session.execute(_ENVIRONMENTS, {"classes": sorted(set(classes))})
        return {in_class: class_fields(decode(Environment, fields)) for in_class, fields in rows}

    def front_series(self, models: Sequence[int]) -> list[StoredSeries]:
        """Return the latency series of models, newest measurements first; series of reports only come last."""
        rows = self._session.execute(_FRONT_SERIES, {"models": list(models)})
        return [StoredSeries(*row) for row in rows]

    def main_series(
        self, versions: Mapping[int, int], batches: Mapping[int, int], target: str | None
    ) -> list[StoredSeries]:
        """Return the latency series of versions on their main targets; none where a version is not measured.

        Args:
            versions: Number of the version by its model's id.
            batches: Preferred batch sizes by the model's id.
            target: The target instead of the main one.
        """
        given = {
            "models": list(versions),
            "numbers": list(versions.values()),
            "batches": [batches.get(model, 0) for model in versions],
            "target": target,
        }
        return [StoredSeries(*row) for row in self._session.execute(_MAIN_SERIES, given)]

    def values_of(self, series: Sequence[int], numbers: Sequence[int]) -> dict[int, dict[int, float]]:
        """Return the values of some versions, by the series' id and the version's number."""
        found: dict[int, dict[int, float]] = {}
        for row, number, value in self._session.execute(
            _VALUES_OF, {"series": list(series), "numbers": list(numbers)}
        ):
            found.setdefault(row, {})[number] = value
        return found

    def codes(
        self, model_id: int, targets: Sequence[str], numbers: Sequence[int]
    ) -> dict[str, dict[int, str]]:
        """Return what identifies the code of some versions, by target and the version's number; empty where it is unknown."""
        given = {"model": model_id, "targets": list(targets), "numbers": list(numbers)}
        found: dict[str, dict[int, str]] = {}
        for target, number, code in self._session.execute(_CODES, given):
            found.setdefault(target, {})[number] = code
        return found

    def example_batches(self, models: Sequence[int]) -> dict[int, int]:
        """Return the batch size of the example inputs of each model's newest version, if it has one."""
        rows = self._session.execute(_SPECS, {"models": list(models)})
        batches = {row: _example(shape, dims) for row, shape, dims in rows}
        return {row: batch for row, batch in batches.items() if batch is not None}


def _example(shape: list[Any] | None, dims: dict[str, Any] | None) -> int | None:
    """Return the example size of the first input's first dimension."""
    first = shape[0] if shape else None
    size = (dims or {}).get(first, {}).get("example") if isinstance(first, str) else first
    return size if isinstance(size, int) else None
