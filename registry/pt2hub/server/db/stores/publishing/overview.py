"""States of models and totals for the overview, with a fixed number of statements."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import func, select, text

from pt2hub.domain.builds import BuildState, readiness
from pt2hub.domain.performance.measurements import MeasurementState
from pt2hub.server.db.reading import readable
from pt2hub.server.db.schema import Worker as SQLWorker
from pt2hub.server.db.stores.builds.measurement_states import MeasurementStateStore
from pt2hub.server.db.stores.operations.workers import lives
from pt2hub.server.db.stores.values import optional_stamp
from pt2hub.server.views.overview import CHANGED_DAYS, FAILED_DAYS, MOST, ModelOverview, Totals

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import timedelta

    from sqlalchemy.orm import Session

    from pt2hub.wire.responses import ModelView

# `ready` is the number of the newest ready version, from the list of models.
_STANDINGS = text("""
    SELECT given.name, newest.created_at, newest.states, newest.failed, ready.created_at, ARRAY(
            SELECT artifacts.digest FROM builds JOIN artifacts ON artifacts.build_id = builds.id
            WHERE builds.version_id = ready.id AND builds.kind = 'build'
        ) AS artifacts
    FROM unnest(CAST(:names AS text[]), CAST(:ready AS integer[])) AS given (name, ready)
    JOIN models ON models.name = given.name
    JOIN LATERAL (
        SELECT versions.created_at, ARRAY(
            SELECT state FROM builds
            WHERE version_id = versions.id AND kind = 'build' AND first_submitted
        ) AS states, ARRAY(
            SELECT target FROM builds
            WHERE version_id = versions.id AND kind = 'build' AND state = 'failed'
            ORDER BY position
        ) AS failed
        FROM versions WHERE model_id = models.id ORDER BY number DESC LIMIT 1
    ) AS newest ON true
    LEFT JOIN versions AS ready ON ready.model_id = models.id AND ready.number = given.ready
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
            SELECT 1 FROM builds WHERE state = 'failed' AND created_at > now() - make_interval(days => :failed)
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
    """States of models, and totals."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def summaries(self, models: Sequence[ModelView]) -> dict[str, ModelOverview]:
        """Return the state of each model's newest version, by name; models without versions are left out.

        For unmeasured artifacts, the state is the first of `measuring`, `waiting`, `failed` and `not_measured`.
        """
        by_name = {model.name: model for model in models}
        given = {"names": [model.name for model in models], "ready": [model.newest_ready for model in models]}
        rows = self._session.execute(_STANDINGS, given).all()
        measured = MeasurementStateStore(self._session).of(digest for row in rows for digest in row.artifacts)
        return {
            name: ModelOverview(
                by_name[name],
                readiness([BuildState(state) for state in states]),
                optional_stamp(at),
                optional_stamp(ready_at),
                failed=tuple(failed),
                measurement=_foremost({measured[digest].state for digest in artifacts}),
            )
            for name, at, states, failed, ready_at, artifacts in rows
        }

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
