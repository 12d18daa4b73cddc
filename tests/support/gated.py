"""Versions whose figures are what a test of gates wants, with their noise and their machine."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import count
from typing import TYPE_CHECKING

from pt2hub.domain.performance.measurements import RUN_SCHEMA, Measurement, MeasurementRun, Pair
from pt2hub.server.db import engine as engines
from pt2hub.server.db.stores.performance.measurements import PerformanceStore
from support.registry import ENVIRONMENT, V4

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pt2hub.domain.artifacts import Environment
    from pt2hub.domain.digests import Digest
    from support.registry import Registry

QUIET = (0.999, 1.0, 1.001, 1.0, 1.0)
"""Processes of a quiet machine: each one's figure over the typical one."""
NOISY = (0.6, 1.0, 1.5, 0.8, 1.4)
OFTEN = 6
"""Jobs that found the same: from then on the series says itself how little two of them differ."""
_RUNS = count(1)


def latency(value: float, *, batch: int = 2, noise: Sequence[float] = QUIET) -> Measurement:
    """A median latency over five processes, in milliseconds."""
    return replicated("latency_p50", value, "ms", batch=batch, noise=noise)


def replicated(
    metric: str, value: float, unit: str, *, batch: int | None = None, noise: Sequence[float] = QUIET
) -> Measurement:
    """A figure over five processes."""
    return Measurement(metric, value, unit, "artifact", batch, replicates=[value * part for part in noise])


def measure(
    registry: Registry,
    artifact: Digest,
    *measurements: Measurement,
    environment: Environment = ENVIRONMENT,
    beside: tuple[Digest, float] | None = None,
    times: int = 1,
) -> None:
    """Keeps runs of an artifact, as a worker's measuring jobs leave them.

    Args:
        registry: The services.
        artifact: What was measured.
        *measurements: Its figures.
        environment: The machine.
        beside: An artifact that ran in the same processes, and how many times slower than it this one was.
        times: So many jobs found the same.
    """
    pairs = [Pair("latency_p50", "ms", [beside[1] * part for part in QUIET], 2)] if beside else []
    runs = [
        MeasurementRun(
            schema=RUN_SCHEMA,
            id=f"test{next(_RUNS)}:1",
            source="again",
            measured_at=datetime.now(UTC).isoformat(),
            environment=environment,
            conditions={},
            measurements=list(measurements),
            baseline=beside[0] if beside else None,
            pairs=pairs,
        )
        for _ in range(times)
    ]
    engine = engines.create(registry.database_url)
    with engines.Sessions(engine).begin() as session:
        for run in runs:
            PerformanceStore(session).add_run(artifact, run)
    engine.dispose()


def version(registry: Registry, *measurements: Measurement, target: str = V4) -> Digest:
    """A further version with one artifact, of which nothing but this was measured."""
    seed = registry.sql("SELECT count(*) FROM versions")[0][0]
    registry.worker("w1", target)
    view = registry.submit(source={"factory": "torchvision.models:resnet18", "seed": seed}, targets=[target])
    digest = registry.published(view, code=f"code {seed}".encode(), key=f"key {seed}")
    only(registry, digest, *measurements)
    return digest


def only(registry: Registry, artifact: Digest, *measurements: Measurement) -> None:
    """Forgets what the build measured of an artifact, and keeps this in its place, found so often that it is sure."""
    registry.sql("DELETE FROM series_points WHERE artifact = %s", artifact)
    registry.sql("DELETE FROM measurements WHERE artifact = %s", artifact)
    if measurements:
        measure(registry, artifact, *measurements, times=OFTEN)
