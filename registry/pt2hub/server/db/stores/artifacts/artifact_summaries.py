"""Artifact summaries of a version, with one statement for the artifacts and one for their measurements."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy import select

from pt2hub.domain.artifacts import Toolchain
from pt2hub.domain.builds import BuildKind
from pt2hub.domain.digests import Digest
from pt2hub.server.db.performance_schema import Series as SQLSeries
from pt2hub.server.db.performance_schema import SeriesPoint as SQLPoint
from pt2hub.server.db.schema import Artifact as SQLArtifact
from pt2hub.server.db.schema import Build as SQLBuild
from pt2hub.server.db.schema import Environment as SQLEnvironment
from pt2hub.server.db.stores.values import stamp
from pt2hub.server.views.artifact_summaries import ArtifactSummary, Figure

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from sqlalchemy.orm import Session

LATENCY = "latency_p50"
_TOOLS = ("torch", "python", "compiler", "libc", "pt2hub", "triton", "cuda", "driver")


class ArtifactSummaryStore:
    """Summaries of a version's artifacts."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def artifacts(
        self,
        version_id: int,
        latencies: Mapping[str, Figure],
        weights_form: Callable[[Mapping[str, Any]], str],
    ) -> list[ArtifactSummary]:
        """Return a version's artifacts, in the order the targets were submitted.

        Args:
            latencies: Latency measurements, by digest.
        """
        rows = self._session.execute(
            select(SQLArtifact, SQLBuild.target, SQLBuild.request, SQLEnvironment.fields)
            .join(SQLBuild, SQLBuild.id == SQLArtifact.build_id)
            .join(SQLEnvironment, SQLEnvironment.digest == SQLArtifact.environment)
            .where(SQLBuild.version_id == version_id, SQLBuild.kind == BuildKind.BUILD)
            .order_by(SQLBuild.position, SQLBuild.target)
        )
        return [
            _brief(artifact, target, weights_form(request), environment, latencies.get(artifact.digest))
            for artifact, target, request, environment in rows
        ]

    def latencies(self, model_id: int, number: int, batch: int | None) -> dict[str, Figure]:
        """Return the latest latency of a version's artifacts, by digest.

        Args:
            batch: The batch size if there are several, None for the smallest.
        """
        rows = self._session.execute(
            select(SQLPoint, SQLSeries.unit, SQLSeries.batch)
            .join(SQLSeries, SQLSeries.id == SQLPoint.series_id)
            .where(SQLSeries.model_id == model_id, SQLSeries.metric == LATENCY)
            .where(SQLSeries.implementation == "artifact", SQLPoint.number == number)
            .order_by(SQLSeries.batch != (batch or 0), SQLSeries.batch, SQLPoint.measured_at.desc())
        )
        found: dict[str, Figure] = {}
        for point, unit, size in rows:
            figure = Figure(LATENCY, point.value, point.low, point.high, unit, size or None)
            found.setdefault(point.artifact, figure)
        return found


def _brief(
    row: SQLArtifact, target: str, weights_form: str, environment: dict[str, Any], latency: Figure | None
) -> ArtifactSummary:
    return ArtifactSummary(
        target=target,
        digest=Digest(row.digest),
        created_at=stamp(row.created_at),
        program_key=Digest(row.program_key),
        config=Digest(row.config),
        code_bytes=row.code_bytes,
        weights_bytes=row.weights_bytes,
        single_file_bytes=row.single_file_bytes,
        weights_form=weights_form,
        toolchain=Toolchain(**{name: getattr(row, name) for name in _TOOLS}),
        dtype=row.dtype,
        environment=environment,
        verification=row.verification,
        provenance=row.provenance,
        latency=latency,
    )
