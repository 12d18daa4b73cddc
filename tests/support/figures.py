"""Figures put straight into a registry's database, as a worker's run or a report would."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING

from pt2hub.domain.artifacts import Environment
from pt2hub.domain.digests import Digest, digest_bytes
from pt2hub.domain.performance.measurements import RUN_SCHEMA, Measurement, MeasurementRun, Pair, RunSource
from pt2hub.server.db import engine as engines
from pt2hub.server.db.stores.performance.measurements import PerformanceStore
from support.registry import ENVIRONMENT

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy.orm import Session

    from support.registry import Registry

_RUNS = count(1)


@dataclass(frozen=True)
class Run:
    """What was measured on one day after the builds of `support.registry`, and where."""

    figures: Sequence[Measurement] = ()
    environment: Environment = ENVIRONMENT
    day: int = 0
    source: RunSource = "again"
    baseline: Digest | None = None
    beside: Sequence[Measurement] = ()
    pairs: Sequence[Pair] = field(default=())


def latency(*replicates: float, batch: int = 8, metric: str = "latency_p50", unit: str = "ms") -> Measurement:
    """A figure with one replicate of each process; a single one without."""
    middle = sorted(replicates)[len(replicates) // 2]
    several = [float(value) for value in replicates] if len(replicates) > 1 else None
    return Measurement(metric, float(middle), unit, "artifact", batch or None, None, several)


def ratios(*values: float, batch: int = 8, metric: str = "latency_p50", unit: str = "ms") -> Pair:
    """An artifact's figure over its baseline's, one of each process."""
    return Pair(metric, unit, [float(value) for value in values], batch or None)


def measured(registry: Registry, artifact: Digest, *figures: Measurement, run: Run | None = None) -> None:
    """Adds figures of an artifact.

    Args:
        registry: Where to.
        artifact: Its manifest digest.
        *figures: The figures, besides those of `run`.
        run: Where and when they were taken, and what ran beside.
    """
    given = run or Run()
    taken = MeasurementRun(
        schema=RUN_SCHEMA,
        id=f"{digest_bytes(artifact.encode())[7:19]}.{next(_RUNS)}:1",
        source=given.source,
        measured_at=f"2026-12-{given.day + 1:02}T10:00:00+00:00",
        environment=given.environment,
        conditions={},
        measurements=[*figures, *given.figures],
        baseline=given.baseline,
        baseline_measurements=list(given.beside),
        pairs=list(given.pairs),
    )
    with transaction(registry) as session:
        PerformanceStore(session).add_run(artifact, taken)


def steady(registry: Registry, artifact: Digest, *figures: Measurement, run: Run | None = None) -> None:
    """Adds figures of an artifact that six jobs found, so that the series says that they differ by nothing."""
    for _ in range(6):
        measured(registry, artifact, *figures, run=run)


@contextmanager
def transaction(registry: Registry) -> Iterator[Session]:
    """A transaction of a registry's database."""
    engine = engines.create(registry.database_url)
    try:
        with engines.Sessions(engine).begin() as session:
            yield session
    finally:
        engine.dispose()


def versions(registry: Registry, many: int, **changes: object) -> list[Digest]:
    """The artifacts of so many further versions, oldest first."""
    first = len(registry.sql("SELECT 1 FROM versions"))
    return [
        registry.published(
            registry.submit(checks={"tolerance": 0.001 * (seed + 1)}, **changes), code=f"code {seed}".encode()
        )
        for seed in range(first, first + many)
    ]
