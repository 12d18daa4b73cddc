"""What the front page shows beside lists that there are already: a fixed number of statements, whatever there is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlalchemy import func, select, text

from pt2hub.domain.builds import BuildState, readiness
from pt2hub.domain.measurements import MeasurementState
from pt2hub.server.db.schema import Worker as SQLWorker
from pt2hub.server.db.stores.measurement_states import MeasurementStateStore
from pt2hub.server.db.stores.values import optional_stamp
from pt2hub.server.db.stores.workers import lives
from pt2hub.wire.overview import CHANGED_DAYS, FAILED_DAYS, MOST, Totals

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import timedelta

    from sqlalchemy.orm import Session

    from pt2hub.wire.shapes import ModelView

# `ready` is the number of the newest ready version as the list of models says it.
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
_TOTALS = text("""
    SELECT
        (SELECT count(*) FROM (SELECT 1 FROM models LIMIT :most) AS counted),
        (SELECT count(*) FROM (
            SELECT DISTINCT model_id FROM aliases WHERE version_id IS NOT NULL LIMIT :most
        ) AS counted),
        (SELECT count(*) FROM (SELECT 1 FROM builds WHERE state = 'running' LIMIT :most) AS counted),
        (SELECT count(*) FROM (SELECT 1 FROM builds WHERE state = 'queued' LIMIT :most) AS counted),
        (SELECT count(*) FROM (
            SELECT 1 FROM builds WHERE state = 'failed' AND created_at > now() - make_interval(days => :failed)
            LIMIT :most
        ) AS counted),
        told.worse, told.better
    FROM (
        SELECT count(DISTINCT (model_id, number)) FILTER (WHERE verdict = 'worse') AS worse,
            count(DISTINCT (model_id, number)) FILTER (WHERE verdict = 'better') AS better
        FROM (
            SELECT model_id, number, verdict FROM performance_events
            WHERE at > now() - make_interval(days => :changed)
            ORDER BY at DESC LIMIT :most
        ) AS counted
    ) AS told
""")


@dataclass(frozen=True, slots=True)
class Standing:
    """Where a model's newest version stands.

    Attributes:
        state: Its readiness.
        at: When it was submitted, ISO 8601, UTC.
        ready_at: When the newest ready one was submitted, None where none is ready.
        failed: Targets that its build failed for.
        measurement: Where the artifacts of the newest ready one stand that are not measured: the state that comes first
            of `measuring`, `waiting`, `failed` and `not_measured`; empty where all are measured.
    """

    state: str
    at: str | None
    ready_at: str | None
    failed: tuple[str, ...] = ()
    measurement: str = ""


def _foremost(states: set[str]) -> str:
    return next((state for state in _UNMEASURED if state in states), "")


class OverviewStore:
    """What the front page shows."""

    def __init__(self, session: Session) -> None:
        """Works in the caller's transaction."""
        self._session = session

    def standings(self, models: Sequence[ModelView]) -> dict[str, Standing]:
        """Where the newest version of each model stands, by the model's name; models without versions are left out."""
        given = {"names": [model.name for model in models], "ready": [model.newest_ready for model in models]}
        rows = self._session.execute(_STANDINGS, given).all()
        measured = MeasurementStateStore(self._session).of(digest for row in rows for digest in row.artifacts)
        return {
            name: Standing(
                readiness([BuildState(state) for state in states]),
                optional_stamp(at),
                optional_stamp(ready_at),
                tuple(failed),
                _foremost({measured[digest].state for digest in artifacts}),
            )
            for name, at, states, failed, ready_at, artifacts in rows
        }

    def totals(self, silence: timedelta) -> Totals:
        """What there is and what goes on, each counted up to `MOST`.

        Args:
            silence: Time without a heartbeat after which a worker is lost.
        """
        wanted = {"most": MOST, "failed": FAILED_DAYS, "changed": CHANGED_DAYS}
        models, aliased, running, queued, failed, worse, better = self._session.execute(_TOTALS, wanted).one()
        alive = select(func.count(), func.count(SQLWorker.target.distinct())).where(lives(silence))
        workers, targets = self._session.execute(alive).one()
        return Totals(models, aliased, running, queued, failed, worse, better, workers, targets)
