"""Counts for monitoring. Ended attempts are added to stored sums once, so that reading does not slow down with history."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, fields
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from sqlalchemy import case, func, literal, select, text, union_all, update
from sqlalchemy.dialects.postgresql import insert as upsert

from pt2hub.domain.builds import UNFINISHED, BuildKind, BuildState, Outcome
from pt2hub.domain.statistics import (
    MANY_ATTEMPTS,
    STEP_BOUNDS,
    WORKER_STATES,
    Durations,
    QueueStatistics,
    RepeatedBuild,
    WorkerHeartbeat,
)
from pt2hub.errors import WorkerLost
from pt2hub.server.db.schema import Build as SQLBuild
from pt2hub.server.db.schema import BuildAttempt as SQLAttempt
from pt2hub.server.db.schema import BuildStep as SQLStep
from pt2hub.server.db.schema import BuildSum as SQLSum
from pt2hub.server.db.schema import Model as SQLModel
from pt2hub.server.db.schema import Target as SQLTarget
from pt2hub.server.db.schema import Version as SQLVersion
from pt2hub.server.db.schema import Worker as SQLWorker
from pt2hub.server.db.stores.operations.workers import lives

if TYPE_CHECKING:
    from sqlalchemy import CompoundSelect, FromClause
    from sqlalchemy.orm import Session

_LOCK = 8400_0003
"""Key of the advisory lock that lets one process at a time add up."""
_BATCH = 5_000
_LATE_REPORTS = timedelta(seconds=20)
"""Time after an attempt's end in which its last steps may still be reported, through an outage of the database."""
_LOST_WORKERS_SHOWN_FOR = timedelta(days=1)
_FAILURES = (Outcome.FAILED, Outcome.RETRIED, Outcome.LOST)
_MAX_REPEATED = 100


@dataclass(frozen=True, slots=True)
class AttemptTally:
    """A stored sum.

    Attributes:
        counter: `attempts`, `failures`, `successes` or `steps` of builds; `measuring_attempts` or `measuring_failures`
            of measuring jobs.
        scope: Name of a target or step.
        detail: An outcome, an error's code, whether code was reused, or a bound of `STEP_BOUNDS`.
        seconds: Total duration, for steps.
    """

    counter: str
    scope: str
    detail: str
    count: int
    seconds: float


_SUMMED = tuple(field.name for field in fields(AttemptTally))


class StatisticsStore:
    """Counts of queues, workers and attempts."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def lock(self) -> bool:
        """Lock adding up until the transaction ends; return False where another process has the lock."""
        statement = text("SELECT pg_try_advisory_xact_lock(:key)")
        return bool(self._session.execute(statement, {"key": _LOCK}).scalar_one())

    def add_up(self) -> bool:
        """Add a batch of ended attempts to the stored sums, each once.

        Returns:
            Whether there were any; if so, there may be more.
        """
        due = (
            select(SQLAttempt.build_id, SQLAttempt.attempt)
            .where(~SQLAttempt.counted, SQLAttempt.ended_at < func.now() - _LATE_REPORTS)
            .order_by(SQLAttempt.ended_at)
            .limit(_BATCH)
            .with_for_update(skip_locked=True)
            .cte("due")
        )
        taken = (
            update(SQLAttempt)
            .where(SQLAttempt.build_id == due.c.build_id, SQLAttempt.attempt == due.c.attempt)
            .values(counted=True)
            .returning(*_counted_columns())
            .cte("taken")
        )
        statement = upsert(SQLSum).from_select(_SUMMED, _tallies(taken))
        added = {
            "count": SQLSum.count + statement.excluded.count,
            "seconds": SQLSum.seconds + statement.excluded.seconds,
        }
        key = [SQLSum.counter, SQLSum.scope, SQLSum.detail]
        done = statement.on_conflict_do_update(index_elements=key, set_=added).returning(SQLSum.counter)
        return self._session.execute(done).first() is not None

    def tallies(self) -> list[AttemptTally]:
        """Return all sums, including attempts that were not added up yet."""
        fresh = select(*_counted_columns()).where(~SQLAttempt.counted).cte("fresh")
        # One statement, so that an attempt that is being added up is counted exactly once.
        parts = union_all(select(*(getattr(SQLSum, name) for name in _SUMMED)), _tallies(fresh))
        rows = parts.subquery("parts").c
        statement = select(
            rows.counter, rows.scope, rows.detail, func.sum(rows.count), func.sum(rows.seconds)
        ).group_by(rows.counter, rows.scope, rows.detail)
        found = self._session.execute(statement)
        return [AttemptTally(counter, scope, detail, int(n), s) for counter, scope, detail, n, s in found]

    def workers(self, heartbeat_timeout: timedelta) -> list[tuple[WorkerHeartbeat, str, int]]:
        """Return last heartbeat, state and slots of workers that are live or were lost within a day."""
        busy = (
            select(SQLBuild.id)
            .where(SQLBuild.worker_id == SQLWorker.id, SQLBuild.state == BuildState.RUNNING)
            .exists()
        )
        state = case(
            (~lives(heartbeat_timeout), "lost"),
            (SQLWorker.draining_at.is_not(None), "draining"),
            (busy, "busy"),
            else_="idle",
        )
        age = func.extract("epoch", func.now() - SQLWorker.last_seen)
        rows = self._session.execute(
            select(SQLWorker.id, SQLWorker.target, age, state, SQLWorker.concurrency)
            .where(SQLWorker.left_at.is_(None), SQLWorker.last_seen >= func.now() - _LOST_WORKERS_SHOWN_FOR)
            .order_by(SQLWorker.id)
        )
        return [
            (WorkerHeartbeat(worker, target, max(float(seconds), 0.0)), state, slots)
            for worker, target, seconds, state, slots in rows
        ]

    def queues(self, workers: list[tuple[WorkerHeartbeat, str, int]]) -> tuple[QueueStatistics, ...]:
        """Return every target with its queue.

        Args:
            workers: As `workers` returned them.
        """
        states: defaultdict[str, Counter[str]] = defaultdict(Counter)
        slots: Counter[str] = Counter()
        for beat, state, concurrency in workers:
            states[beat.target][state] += 1
            slots[beat.target] += concurrency if state in ("idle", "busy") else 0
        found = self._count_unfinished()

        def of(name: str, state: BuildState, kind: BuildKind) -> tuple[int, float]:
            return found.get((name, state, kind), (0, 0.0))

        return tuple(
            QueueStatistics(
                target=name,
                queued=of(name, BuildState.QUEUED, BuildKind.BUILD)[0],
                oldest_seconds=of(name, BuildState.QUEUED, BuildKind.BUILD)[1],
                running=of(name, BuildState.RUNNING, BuildKind.BUILD)[0],
                slots=slots[name],
                workers={state: states[name][state] for state in WORKER_STATES},
                measuring_queued=of(name, BuildState.QUEUED, BuildKind.MEASURE)[0],
                measuring_running=of(name, BuildState.RUNNING, BuildKind.MEASURE)[0],
            )
            for name in self._session.scalars(select(SQLTarget.name).order_by(SQLTarget.name))
        )

    def list_repeated(self) -> list[RepeatedBuild]:
        """Return the unfinished builds with several attempts, most attempts first."""
        last = (
            select(func.coalesce(SQLAttempt.error["code"].astext, SQLAttempt.outcome))
            .where(SQLAttempt.build_id == SQLBuild.id, SQLAttempt.outcome.is_not(None))
            .order_by(SQLAttempt.attempt.desc())
            .limit(1)
            .scalar_subquery()
        )
        rows = self._session.execute(
            select(SQLBuild, SQLModel.name, SQLVersion.number, last)
            .join(SQLVersion, SQLVersion.id == SQLBuild.version_id)
            .join(SQLModel, SQLModel.id == SQLVersion.model_id)
            .where(SQLBuild.state.in_(UNFINISHED))
            .where(SQLBuild.attempt >= MANY_ATTEMPTS)
            .order_by(SQLBuild.attempt.desc(), SQLBuild.id)
            .limit(_MAX_REPEATED)
        )
        return [_to_repeated_build(*row) for row in rows]

    def _count_unfinished(self) -> dict[tuple[str, str, str], tuple[int, float]]:
        """Return the number of queued and running builds and the longest wait in seconds, by target, state and kind.

        Rebuilds count as builds: they take as long.
        """
        age = func.extract("epoch", func.now() - func.min(SQLBuild.queued_at))
        kind = case((SQLBuild.kind == BuildKind.MEASURE, BuildKind.MEASURE), else_=BuildKind.BUILD)
        what = (SQLBuild.target, SQLBuild.state, kind)
        rows = self._session.execute(
            select(*what, func.count(), age).where(SQLBuild.state.in_(UNFINISHED)).group_by(*what)
        )
        return {
            (target, state, kind): (count, max(float(seconds), 0.0))
            for target, state, kind, count, seconds in rows
        }


def durations(tallies: list[AttemptTally]) -> dict[str, Durations]:
    """Return the durations of steps, from their sums."""
    made: defaultdict[str, Durations] = defaultdict(Durations)
    for tally in tallies:
        made[tally.scope] = made[tally.scope].plus(float(tally.detail), tally.count, tally.seconds)
    return dict(made)


def _counted_columns() -> list[Any]:
    return [
        SQLAttempt.build_id,
        SQLAttempt.attempt,
        SQLAttempt.outcome,
        SQLAttempt.error,
        SQLAttempt.reused,
    ]


def _tallies(attempts: FromClause) -> CompoundSelect[Any]:
    """Select what some attempts add to each sum."""
    code = func.coalesce(attempts.c.error["code"].astext, WorkerLost.code)
    reused = case((attempts.c.reused.is_(True), "true"), else_="false")
    bound = case(*((SQLStep.seconds <= most, f"{most:g}") for most in STEP_BOUNDS), else_="inf")
    step = (SQLStep.build_id == attempts.c.build_id) & (SQLStep.attempt == attempts.c.attempt)
    ended, raised = attempts.c.outcome.is_not(None), attempts.c.outcome.in_(_FAILURES)
    timed = (SQLStep.state == "done") & SQLStep.seconds.is_not(None)
    builds, jobs = BuildKind.BUILD, BuildKind.MEASURE
    parts: list[tuple[BuildKind, str, Any, Any, Any]] = [
        (builds, "attempts", SQLBuild.target, attempts.c.outcome, ended),
        (builds, "failures", SQLBuild.target, code, raised),
        (builds, "successes", SQLBuild.target, reused, attempts.c.outcome == Outcome.SUCCEEDED),
        (builds, "steps", SQLStep.name, bound, timed),
        (jobs, "measuring_attempts", SQLBuild.target, attempts.c.outcome, ended),
        (jobs, "measuring_failures", SQLBuild.target, code, raised),
    ]
    of_build = attempts.join(SQLBuild, SQLBuild.id == attempts.c.build_id)
    return union_all(
        *(
            select(
                literal(counter).label("counter"),
                scope.label("scope"),
                detail.label("detail"),
                func.count().label("count"),
                (func.sum(SQLStep.seconds) if counter == "steps" else literal(0.0)).label("seconds"),
            )
            .select_from(of_build.join(SQLStep, step) if counter == "steps" else of_build)
            .where(SQLBuild.kind == kind, condition)
            # By column number: PostgreSQL does not recognize the same expression with other parameters.
            .group_by(text("2"), text("3"))
            for kind, counter, scope, detail, condition in parts
        )
    )


def _to_repeated_build(row: SQLBuild, model: str, number: int, last: str | None) -> RepeatedBuild:
    return RepeatedBuild(
        id=row.id,
        model=model,
        number=number,
        target=row.target,
        state=row.state,
        attempt=row.attempt,
        failures=row.failures,
        worker=row.worker_id,
        last=last,
        kind=row.kind,
    )
