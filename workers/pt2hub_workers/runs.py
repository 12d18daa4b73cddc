"""Measurement runs: figures, where and when they were taken."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING

import structlog

from pt2hub.domain.measurements import RUN_SCHEMA, Measurement, MeasurementRun

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pt2hub.domain.artifacts import ArtifactConfig, Environment
    from pt2hub.domain.builds import Claim
    from pt2hub.server.container import Container
    from pt2hub_workers.replicating import Figures

_log = structlog.get_logger()


def build_run(config: ArtifactConfig, at: float, measurements: Sequence[Measurement]) -> MeasurementRun:
    """Return the run that holds what a build knows of its artifact without timing it.

    Args:
        config: The artifact's.
        at: When, in seconds since the epoch by the database's clock.
        measurements: Sizes, seconds of steps, the verified error.
    """
    provenance = config.provenance
    return MeasurementRun(
        schema=RUN_SCHEMA,
        id=f"{provenance['build']}:{provenance['attempt']}",
        source="build",
        measured_at=_moment(at),
        environment=config.environment,
        conditions={},
        measurements=list(measurements),
    )


def make_run(
    figures: Figures,
    *,
    claim: Claim,
    at: float,
    environment: Environment,
    others: Sequence[Measurement] = (),
    suffix: str = "",
) -> MeasurementRun:
    """The run of some figures.

    Args:
        figures: What was measured.
        claim: The attempt that measured; its build and attempt name the run.
        at: When, in seconds since the epoch by the database's clock (`Journal.now`).
        environment: The worker's.
        others: What was measured elsewhere, as of eager and torch.compile.
        suffix: Of the id, such as `:2` for the second run of one attempt.
    """
    return MeasurementRun(
        schema=RUN_SCHEMA,
        id=f"{claim.build}:{claim.attempt}{suffix}",
        source="again",
        measured_at=_moment(at),
        environment=environment,
        conditions=figures.conditions,
        measurements=[*figures.measurements, *others],
        baseline=figures.baseline,
        beside=figures.beside,
        pairs=figures.pairs,
        note=figures.note,
    )


def _moment(at: float) -> str:
    return dt.datetime.fromtimestamp(at, dt.UTC).isoformat(timespec="milliseconds")


def compare(container: Container) -> None:
    """Has new figures compared at once, after they were kept; `UpkeepService.tidy` does it later in any case."""
    try:
        container.comparing.examine()
    except Exception as error:  # noqa: BLE001  # what is published stays published
        _log.warning("the new figures are compared later", error=str(error))
