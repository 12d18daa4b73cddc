"""Measurement runs: figures, where and when they were taken."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING

import structlog

from pt2hub.domain.measurements import RUN_SCHEMA, Measurement, MeasurementRun, RunSource

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pt2hub.domain.artifacts import Environment
    from pt2hub.domain.builds import Claim
    from pt2hub.server.container import Container
    from pt2hub_workers.replicating import Figures

_log = structlog.get_logger()


def make_run(  # noqa: PLR0913  # a run has that many parts, all of them named
    figures: Figures,
    *,
    claim: Claim,
    source: RunSource,
    at: float,
    environment: Environment,
    others: Sequence[Measurement] = (),
    suffix: str = "",
) -> MeasurementRun:
    """The run of some figures.

    Args:
        figures: What was measured.
        claim: The attempt that measured; its build and attempt name the run.
        source: `build` or `again`.
        at: When, in seconds since the epoch by the database's clock (`Journal.now`).
        environment: The worker's.
        others: What was measured elsewhere, as in the build's own process.
        suffix: Of the id, such as `:2` for the second run of one attempt.
    """
    moment = dt.datetime.fromtimestamp(at, dt.UTC)
    return MeasurementRun(
        schema=RUN_SCHEMA,
        id=f"{claim.build}:{claim.attempt}{suffix}",
        source=source,
        measured_at=moment.isoformat(timespec="milliseconds"),
        environment=environment,
        conditions=figures.conditions,
        measurements=[*figures.measurements, *others],
        baseline=figures.baseline,
        beside=figures.beside,
        pairs=figures.pairs,
        note=figures.note,
    )


def compare(container: Container) -> None:
    """Has new figures compared at once, after they were kept; `UpkeepService.tidy` does it later in any case."""
    try:
        container.comparing.examine()
    except Exception as error:  # noqa: BLE001  # what is published stays published
        _log.warning("the new figures are compared later", error=str(error))
