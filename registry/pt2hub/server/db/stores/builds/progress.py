"""Progress of attempts: steps and log lines that workers report. `LogStore` reads the logs."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from sqlalchemy import and_, select, text

from pt2hub.domain.builds import STEPS, Outcome
from pt2hub.domain.codec import encode
from pt2hub.server.db.schema import Build as SQLBuild
from pt2hub.server.db.schema import BuildAttempt as SQLAttempt
from pt2hub.server.db.schema import BuildStep as SQLBuildStep
from pt2hub.server.db.stores.values import stamp, storable
from pt2hub.wire.responses import StepView

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from sqlalchemy import TextClause
    from sqlalchemy.orm import Session

    from pt2hub.domain.builds import LogLine, StepReport

# One round trip for any number of rows, in plain SQL: every attempt reports several times a second, and building such
# statements in SQLAlchemy takes longer than PostgreSQL needs to run them.
_PUT_STEPS = text("""
    INSERT INTO build_steps (build_id, attempt, name, state, started_at, seconds, detail, waited)
    SELECT :build, :attempt, name, state, to_timestamp(started), seconds, detail, waited
    FROM jsonb_to_recordset(CAST(:rows AS jsonb))
        AS given (name text, state text, started float8, seconds float8, detail text, waited float8)
    ON CONFLICT (build_id, attempt, name) DO UPDATE SET state = excluded.state, seconds = excluded.seconds,
        detail = coalesce(excluded.detail, build_steps.detail),
        waited = coalesce(excluded.waited, build_steps.waited)
    WHERE EXISTS (
        SELECT 1 FROM build_attempts AS own
        WHERE own.build_id = build_steps.build_id AND own.attempt = build_steps.attempt AND own.ended_at IS NULL
    )
""")
_ADD_LINES = text("""
    INSERT INTO build_logs (build_id, attempt, seq, at, step, level, text)
    SELECT :build, :attempt, seq, at, step, level, text
    FROM jsonb_to_recordset(CAST(:rows AS jsonb))
        AS given (seq int, at float8, step text, level text, text text)
    ON CONFLICT DO NOTHING
""")
_INTERRUPTIONS = frozenset({Outcome.CANCELLED, Outcome.LOST, Outcome.HANDED_BACK, Outcome.POSTPONED})
"""Outcomes of attempts that are not failures of the current step."""
_STEP_ORDER = {name: index for index, name in enumerate((*STEPS[:-1], "measure", STEPS[-1]))}
"""Order of the steps of builds and measuring jobs."""


class ProgressStore:
    """Steps and log lines."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def put_steps(self, build_id: str, attempt: int, steps: Iterable[StepReport]) -> None:
        """Add or update steps; a step keeps its first start, and ends at the latest with its attempt.

        Args:
            steps: In the order in which they were reported.
        """
        merged: dict[str, StepReport] = {}
        for step in steps:
            before = merged.get(step.name, step)
            merged[step.name] = replace(step, started=before.started, detail=step.detail or before.detail)
        if merged:
            rows = [storable(encode(step)) for step in merged.values()]
            self._put(_PUT_STEPS, build_id, attempt, rows)

    def steps(self, build_ids: Sequence[str]) -> dict[str, list[StepView]]:
        """Return the steps of each build's latest attempt, in order."""
        same = and_(SQLAttempt.build_id == SQLBuildStep.build_id, SQLAttempt.attempt == SQLBuildStep.attempt)
        rows = self._session.execute(
            select(SQLBuildStep, SQLAttempt.outcome)
            .join(SQLBuild, SQLBuild.id == SQLBuildStep.build_id)
            .outerjoin(SQLAttempt, same)
            .where(SQLBuild.id.in_(build_ids), SQLBuildStep.attempt == SQLBuild.attempt)
        )
        found: dict[str, list[StepView]] = {}
        for row, outcome in sorted(rows, key=lambda row: _STEP_ORDER.get(row[0].name, len(_STEP_ORDER))):
            found.setdefault(row.build_id, []).append(_view(row, outcome))
        return found

    def add_lines(self, build_id: str, attempt: int, lines: Sequence[LogLine]) -> None:
        """Add log lines; those whose position exists are ignored."""
        if lines:
            self._put(_ADD_LINES, build_id, attempt, [storable(encode(line)) for line in lines])

    def _put(self, statement: TextClause, build_id: str, attempt: int, rows: list[dict[str, Any]]) -> None:
        self._session.execute(statement, {"build": build_id, "attempt": attempt, "rows": json.dumps(rows)})


def _view(row: SQLBuildStep, outcome: str | None) -> StepView:
    """Return a step; if its attempt was interrupted during it, its state is the attempt's outcome and not `failed`."""
    cut_off = row.state == "failed" and row.seconds is None and outcome in _INTERRUPTIONS
    state = outcome if cut_off and outcome else row.state
    return StepView(row.name, state, stamp(row.started_at), row.seconds, row.detail, row.waited)
