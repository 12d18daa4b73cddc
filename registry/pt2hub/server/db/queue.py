"""The build queue: procrastinate, one queue per target.

The queue only delivers; the `builds` table is the truth. A job may be delivered twice, or for a finished build: the
claim decides.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import procrastinate
import psycopg
import psycopg_pool
from procrastinate.exceptions import ConnectorException
from sqlalchemy import text

from pt2hub.errors import DatabaseUnavailable
from pt2hub.server.db import engine as engines

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import datetime, timedelta

    from sqlalchemy.orm import Session

TASK = "pt2hub.build"
_POLL_INTERVAL_S = 1.0
"""Only a safety net: NOTIFY announces jobs, but not to a consumer that has just begun to listen."""
_MIN_RETRY_PAUSE_S = 0.5
_MAX_RETRY_PAUSE_S = 15.0
_HEARTBEAT_INTERVAL_S = 3.0
"""How often a consumer reports that it is live; `undeliverable` ignores the jobs of live consumers."""
_CONSUMER_TIMEOUT_S = 3600.0
"""Time without a heartbeat after which a consumer is removed with its jobs. If it comes back, it starts anew."""
_log = logging.getLogger(__name__)

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


class BuildConsumer:
    """Calls a handler for each build of one queue."""

    def __init__(
        self, database_url: str, *, queue: str, handler: Callable[[str], None], concurrency: int = 1
    ) -> None:
        self._conninfo = engines.conninfo(database_url)
        self._queue = queue
        self._handler = handler
        self._concurrency = concurrency
        self._stopping = False
        self._wake: Callable[[], object] | None = None

    def run(self) -> None:
        """Work until `stop`, through outages of the database; then wait for the running handlers."""
        asyncio.run(self._run())

    def stop(self) -> None:
        """Request `run` to end, from any thread or signal handler, before or during it."""
        self._stopping = True  # no lock: this may be a signal handler
        wake = self._wake
        if wake:
            with contextlib.suppress(RuntimeError):  # the loop has just been closed
                wake()

    async def _run(self) -> None:
        loop, stopped = asyncio.get_running_loop(), asyncio.Event()
        # asyncio's own pool is sized by the number of cores; each slot needs a thread for as long as it builds.
        loop.set_default_executor(ThreadPoolExecutor(self._concurrency + 4, thread_name_prefix="slot"))
        self._wake = lambda: loop.call_soon_threadsafe(stopped.set)
        pause = _MIN_RETRY_PAUSE_S
        while not self._stopping:
            began = loop.time()
            await self._work_until(stopped)
            if self._stopping:
                break
            # The database is unavailable: retry at once after a long connection, otherwise with growing pauses.
            pause = (
                _MIN_RETRY_PAUSE_S
                if loop.time() - began > _MAX_RETRY_PAUSE_S
                else min(2 * pause, _MAX_RETRY_PAUSE_S)
            )
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(stopped.wait(), pause)

    async def _work_until(self, stopped: asyncio.Event) -> None:
        worker = asyncio.create_task(self._work())
        stop = asyncio.create_task(stopped.wait())
        await asyncio.wait({worker, stop}, return_when=asyncio.FIRST_COMPLETED)
        stop.cancel()
        worker.cancel()  # procrastinate's own way to stop: it waits for running handlers
        with contextlib.suppress(asyncio.CancelledError):
            await worker

    async def _work(self) -> None:
        connector = procrastinate.PsycopgConnector(
            conninfo=self._conninfo, min_size=1, max_size=self._concurrency + 3, timeout=10.0
        )
        app = procrastinate.App(connector=connector)
        app.task(name=TASK)(self._handle)
        try:
            async with app.open_async():
                await app.run_worker_async(
                    queues=[self._queue],
                    concurrency=self._concurrency,
                    fetch_job_polling_interval=_POLL_INTERVAL_S,
                    delete_jobs="successful",
                    update_heartbeat_interval=_HEARTBEAT_INTERVAL_S,
                    install_signal_handlers=False,
                )
        except (ConnectorException, psycopg.Error, psycopg_pool.PoolTimeout) as exc:
            _log.warning("The queue %s lost the database: %r", self._queue, exc)

    def _handle(self, build_id: str) -> None:
        self._handler(
            build_id
        )  # in a thread, since this function is not async; procrastinate logs what it raises
