"""Measurement states of versions and totals for the overview, with a fixed number of statements."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import func, select, text

from pt2hub.domain.performance.measurements import MeasurementState
from pt2hub.server.db.reading import readable
from pt2hub.server.db.schema import Worker as SQLWorker
from pt2hub.server.db.stores.builds.measurement_states import MeasurementStateStore
from pt2hub.server.db.stores.operations.workers import lives
from pt2hub.server.views.overview import CHANGED_DAYS, FAILED_DAYS, MOST, Totals

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import timedelta

    from sqlalchemy.orm import Session

_ARTIFACTS = text("""
    SELECT given.name, artifacts.digest
    FROM unnest(CAST(:names AS text[]), CAST(:numbers AS integer[])) AS given (name, number)
    JOIN models ON models.name = given.name
    JOIN versions ON versions.model_id = models.id AND versions.number = given.number
    JOIN builds ON builds.version_id = versions.id AND builds.kind = 'build'
    JOIN artifacts ON artifacts.build_id = builds.id
""")
_UNMEASURED = (
    MeasurementState.MEASURING,
    MeasurementState.WAITING,
    MeasurementState.FAILED,
    MeasurementState.NOT_MEASURED,
)
# `readable` has the ids of the models that may be read; it is left out where that is every model.
_TOTALS = """
    SELECT
        (SELECT count(*) FROM (SELECT 1 FROM models {models} LIMIT :most) AS counted),
        (SELECT count(*) FROM (
            SELECT DISTINCT model_id FROM aliases WHERE version_id IS NOT NULL {of_model} LIMIT :most
        ) AS counted),
        (SELECT count(*) FROM (SELECT 1 FROM builds WHERE state = 'running' {of_version} LIMIT :most) AS counted),
        (SELECT count(*) FROM (SELECT 1 FROM builds WHERE state = 'queued' {of_version} LIMIT :most) AS counted),
        (SELECT count(*) FROM (
            SELECT 1 FROM builds WHERE state = 'failed' AND finished_at > now() - make_interval(days => :failed)
            {of_version} LIMIT :most
        ) AS counted),
        changes.worse, changes.better
    FROM (
        SELECT count(DISTINCT (model_id, number)) FILTER (WHERE outcome = 'worse') AS worse,
            count(DISTINCT (model_id, number)) FILTER (WHERE outcome = 'better') AS better
        FROM (
            SELECT model_id, number, outcome FROM performance_events
            WHERE at > now() - make_interval(days => :changed) {of_model}
            ORDER BY at DESC LIMIT :most
        ) AS counted
    ) AS changes
"""
_ALL_TOTALS = text(_TOTALS.format(models="", of_model="", of_version=""))
_READABLE_TOTALS = text(
    _TOTALS.format(
        models="WHERE name ~ :readable",
        of_model="AND model_id IN (SELECT id FROM models WHERE name ~ :readable)",
        of_version="AND version_id IN (SELECT versions.id FROM versions JOIN models ON models.id = model_id WHERE name ~ :readable)",
    )
)


def _foremost(states: set[str]) -> str:
    return next((state for state in _UNMEASURED if state in states), "")


class OverviewStore:
    """Measurement states of versions, and totals."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def measurements(self, versions: Mapping[str, int]) -> dict[str, str]:
        """Return where versions stand that are not measured whole, by the model's name.

        The state is the first of `measuring`, `waiting`, `failed` and `not_measured` that one of the artifacts has.

        Args:
            versions: Number of the version by the model's name.
        """
        given = {"names": list(versions), "numbers": list(versions.values())}
        rows = self._session.execute(_ARTIFACTS, given).all()
        measured = MeasurementStateStore(self._session).of(row.digest for row in rows)
        states: dict[str, set[str]] = {}
        for name, digest in rows:
            states.setdefault(name, set()).add(measured[digest].state)
        return {name: _foremost(found) for name, found in states.items()}

    def totals(self, heartbeat_timeout: timedelta) -> Totals:
        """Return counts of what may be read: models, builds and changes, and of workers; each up to a maximum."""
        limit, wanted = readable(), {"most": MOST, "failed": FAILED_DAYS, "changed": CHANGED_DAYS}
        statement = _ALL_TOTALS if limit.everything else _READABLE_TOTALS
        given = wanted if limit.everything else {**wanted, "readable": limit.expression}
        models, aliased, running, queued, failed, worse, better = self._session.execute(
            statement, given
        ).one()
        alive = select(func.count(), func.count(SQLWorker.target.distinct())).where(lives(heartbeat_timeout))
        workers, targets = self._session.execute(alive).one()
        return Totals(models, aliased, running, queued, failed, worse, better, workers, targets)
