"""The build queue: procrastinate, one queue per target.

The queue only delivers; the `builds` table is the truth. A job may be delivered twice, or for a finished build: the
claim decides.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import procrastinate
from procrastinate.exceptions import ConnectorException
from sqlalchemy import text

from pt2hub.errors import DatabaseUnavailable
from pt2hub.server.db import engine as engines
from pt2hub.server.db.job_consumer import JobConsumer

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import datetime, timedelta

    from sqlalchemy.orm import Session

TASK = "pt2hub.build"
_CONSUMER_TIMEOUT_S = 3600.0
"""Time without a heartbeat after which a consumer is removed with its jobs. If it comes back, it starts anew."""

_UNDELIVERABLE = text("""
    SELECT builds.id FROM builds
    WHERE builds.state = 'queued'
    AND greatest(builds.queued_at, builds.not_before) < now() - :heartbeat_timeout
    AND NOT EXISTS (
        SELECT 1 FROM procrastinate_jobs AS jobs
        LEFT JOIN procrastinate_workers AS holders ON holders.id = jobs.worker_id
        WHERE jobs.args ->> 'build_id' = builds.id AND jobs.task_name = :task
        AND (jobs.status = 'todo' OR (
            jobs.status = 'doing' AND holders.last_heartbeat BETWEEN now() - :heartbeat_timeout AND now() + :heartbeat_timeout
        ))
    )
    ORDER BY builds.id
    FOR NO KEY UPDATE OF builds SKIP LOCKED
""")
_WITHDRAW = text("""
    DELETE FROM procrastinate_jobs
    WHERE args ->> 'build_id' = :build AND task_name = :task AND status = 'todo'
""")
_RAISE = text("""
    UPDATE procrastinate_jobs SET priority = :priority
    WHERE args ->> 'build_id' = ANY(:builds) AND task_name = :task AND status = 'todo'
""")
_SWEEP_WORKERS = text("SELECT procrastinate_prune_stalled_workers_v1(:seconds)")
_SWEEP_JOBS = text("""
    DELETE FROM procrastinate_jobs
    WHERE task_name = :task
    AND (status NOT IN ('todo', 'doing') OR (status = 'doing' AND worker_id IS NULL))
""")


class BuildQueue:
    """Queues builds, in the caller's transaction."""

    def __init__(self, database_url: str) -> None:
        self.database_url = database_url
        # A separate App: a copy would keep the original's connector and fail here.
        connector = procrastinate.SyncPsycopgConnector(conninfo=engines.conninfo(database_url))
        self._app = procrastinate.App(connector=connector)

    def defer(
        self,
        session: Session,
        build_id: str,
        *,
        queue: str,
        priority: int = 0,
        not_before: datetime | None = None,
    ) -> None:
        """Add a job, which wakes a worker when the session's transaction commits.

        Args:
            priority: Higher comes first; jobs of equal priority are delivered in the order in which they were added.
            not_before: Earliest delivery, by the database's clock; at once where omitted.
        """
        session.flush()
        connection = session.connection().connection.dbapi_connection
        try:
            self._app.configure_task(
                TASK, queue=queue, priority=priority, schedule_at=not_before, connection=connection
            ).defer(build_id=build_id)
        except ConnectorException as exc:
            raise DatabaseUnavailable(f"Cannot queue build {build_id}") from exc

    def withdraw(self, session: Session, build_id: str) -> None:
        """Remove the undelivered jobs of a build.

        Args:
            session: The transaction that removes the build from the queue, or queues it again.
        """
        session.execute(_WITHDRAW, {"build": build_id, "task": TASK})

    def raise_priority(self, session: Session, build_ids: Sequence[str], priority: int) -> None:
        """Raise the priority of queued builds' jobs."""
        session.execute(_RAISE, {"builds": list(build_ids), "priority": priority, "task": TASK})

    def undeliverable(self, session: Session, *, heartbeat_timeout: timedelta) -> list[str]:
        """Return the builds that are queued and due, but have no job.

        A worker that dies or loses the database between taking a job and claiming its build leaves one behind.

        Args:
            heartbeat_timeout: Minimum time that the build has waited and that the job's consumer sent no heartbeat.
        """
        return list(session.scalars(_UNDELIVERABLE, {"heartbeat_timeout": heartbeat_timeout, "task": TASK}))

    def sweep(self, session: Session) -> None:
        """Delete jobs whose handler raised or whose consumer is gone.

        Their builds are found by `undeliverable`, or have ended.
        """
        session.execute(_SWEEP_WORKERS, {"seconds": _CONSUMER_TIMEOUT_S})
        session.execute(_SWEEP_JOBS, {"task": TASK})


class BuildConsumer(JobConsumer):
    """Calls a handler for each build of one queue."""

    def __init__(
        self, database_url: str, *, queue: str, handler: Callable[[str], None], concurrency: int = 1
    ) -> None:
        def handle(build_id: str) -> None:
            handler(build_id)

        super().__init__(database_url, queue=queue, handlers={TASK: handle}, concurrency=concurrency)
