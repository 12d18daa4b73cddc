"""Measurement states of artifacts, in one statement for any number of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import text

from pt2hub.domain.builds import BuildState
from pt2hub.domain.digests import Digest
from pt2hub.domain.performance.measurements import MEASURED_BY, measurement_state
from pt2hub.wire.responses import MeasurementStatus

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sqlalchemy.orm import Session


def is_measured(artifact: str) -> str:
    """Return the SQL condition that a run measured an artifact, given by an expression; `:metric` is `MEASURED_BY`."""
    return f"""EXISTS (
        SELECT FROM measurements AS figure JOIN series ON series.id = figure.series_id
        WHERE figure.artifact = {artifact} AND figure.run IS NOT NULL
            AND series.metric = :metric AND series.implementation = 'artifact'
    )"""


# Jobs are found by their version, for which there is an index.
_STATES = text(f"""
    SELECT artifact.digest, job.id, job.state, job.error ->> 'message' AS reason, {is_measured("artifact.digest")} AS measured
    FROM artifacts AS artifact
    JOIN builds AS build ON build.id = artifact.build_id
    LEFT JOIN LATERAL (
        SELECT own.id, own.state, own.error FROM builds AS own
        WHERE own.version_id = build.version_id AND own.kind = 'measure'
            AND own.request ->> 'artifact' = artifact.digest
        ORDER BY own.state = 'running' DESC, own.state = 'queued' DESC, own.created_at DESC, own.id
        LIMIT 1
    ) AS job ON true
    WHERE artifact.digest = ANY(:artifacts)
""")  # noqa: S608  # of constants


class MeasurementStateStore:
    """Measurement states of artifacts."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def of(self, artifacts: Iterable[str]) -> dict[Digest, MeasurementStatus]:
        """Return the measurement status of each existing artifact, by digest."""
        wanted = list(artifacts)
        if not wanted:
            return {}
        rows = self._session.execute(_STATES, {"artifacts": wanted, "metric": MEASURED_BY})
        return {
            Digest(digest): _status(job, state, reason, measured=is_)
            for digest, job, state, reason, is_ in rows
        }


def _status(job: str | None, state: str | None, reason: str | None, *, measured: bool) -> MeasurementStatus:
    job_state = BuildState(state) if state else None
    return MeasurementStatus(
        state=measurement_state(measured=measured, job=job_state).value,
        job=job,
        job_state=job_state,
        reason=reason if job_state in (BuildState.FAILED, BuildState.CANCELLED) else None,
    )
