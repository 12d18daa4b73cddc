"""The build queue: procrastinate, one queue per target.

The queue only delivers; the `builds` table is the truth. So a job may come twice, or for a build that is long
finished: claiming it decides.
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
_POLL_SECONDS = 1.0
"""Only a safety net: jobs are announced by NOTIFY, but not to one who has just begun to listen."""
_FIRST_PAUSE = 0.5
_LONGEST_PAUSE = 15.0
_HEARTBEAT_SECONDS = 3.0
"""How often a consumer says that it lives. Behind it, `undeliverable` believes that its jobs are in good hands."""
_FORGOTTEN_SECONDS = 3600.0
"""Silence after which a consumer is struck off, with the jobs it took. One that comes back even then starts anew."""
_log = logging.getLogger(__name__)

_UNDELIVERABLE = text("""
    SELECT builds.id FROM builds
    WHERE builds.state = 'queued'
    AND greatest(builds.queued_at, builds.not_before) < now() - :silence
    AND NOT EXISTS (
        SELECT 1 FROM procrastinate_jobs AS jobs
        LEFT JOIN procrastinate_workers AS holders ON holders.id = jobs.worker_id
        WHERE jobs.args ->> 'build_id' = builds.id AND jobs.task_name = :task
        AND (jobs.status = 'todo' OR (
            jobs.status = 'doing' AND holders.last_heartbeat BETWEEN now() - :silence AND now() + :silence
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
    """Puts builds into the queue, inside the caller's transaction.

    Attributes:
        database_url: `postgresql://...`.
    """

    def __init__(self, database_url: str) -> None:
        """Opens no connection: jobs are written over those of the callers' transactions.

        Args:
            database_url: `postgresql://...`.
        """
        self.database_url = database_url
        # An App of its own: copies of another one keep that one's connector, and fail here.
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
        """Adds a job; it exists, and wakes a worker, when the session's transaction commits.

        Args:
            session: The transaction that changes the build.
            build_id: The build to do.
            queue: The target's name.
            priority: Higher comes first; jobs of one priority come in the order in which they were added.
            not_before: By the database's clock: when it may be delivered; at once where omitted.

        Raises:
            DatabaseUnavailable: The database did not answer.
        """
        session.flush()
        connection = session.connection().connection.dbapi_connection
        try:
            self._app.configure_task(
                TASK, queue=queue, priority=priority, schedule_at=not_before, connection=connection
            ).defer(build_id=build_id)
        except ConnectorException as exc:
            raise DatabaseUnavailable(f"The queue did not take build {build_id}") from exc

    def withdraw(self, session: Session, build_id: str) -> None:
        """Removes the jobs of a build that nobody has taken yet.

        Args:
            session: The transaction that takes the build out of the queue, or queues it anew.
            build_id: The build.
        """
        session.execute(_WITHDRAW, {"build": build_id, "task": TASK})

    def raise_priority(self, session: Session, build_ids: Sequence[str], priority: int) -> None:
        """Puts the jobs of queued builds further ahead.

        Args:
            session: The transaction that does the same with the builds.
            build_ids: The builds.
            priority: Their priority from now on.
        """
        session.execute(_RAISE, {"builds": list(build_ids), "priority": priority, "task": TASK})

    def undeliverable(self, session: Session, *, silence: timedelta) -> list[str]:
        """Builds that wait in vain: queued, and due, but no job leads to them.

        A worker that dies, or loses the database, between taking a job and claiming its build leaves one.

        Args:
            session: The transaction that will defer them again; it holds their locks.
            silence: How long a build must have waited, and a job's holder been silent.
        """
        return list(session.scalars(_UNDELIVERABLE, {"silence": silence, "task": TASK}))

    def sweep(self, session: Session) -> None:
        """Deletes jobs that deliver nothing any more: whose handler raised, or whose holder is gone.

        The builds they led to are found by `undeliverable`, or are over.

        Args:
            session: A transaction.
        """
        session.execute(_SWEEP_WORKERS, {"seconds": _FORGOTTEN_SECONDS})
        session.execute(_SWEEP_JOBS, {"task": TASK})


class BuildConsumer:
    """Takes the builds of one queue and hands each to a function."""

    def __init__(
        self, database_url: str, *, queue: str, handler: Callable[[str], None], concurrency: int = 1
    ) -> None:
        """Opens nothing before `run`.

        Args:
            database_url: `postgresql://...`.
            queue: The target's name.
            handler: Called with a build's id, in a thread; what it raises is logged and the job not repeated.
            concurrency: Builds at a time.
        """
        self._conninfo = engines.conninfo(database_url)
        self._queue = queue
        self._handler = handler
        self._concurrency = concurrency
        self._stopping = False
        self._wake: Callable[[], object] | None = None

    def run(self) -> None:
        """Works until `stop`; then waits for the running handlers. A lost database is waited for."""
        asyncio.run(self._run())

    def stop(self) -> None:
        """Asks `run` to end; from any thread or signal handler, before or during it."""
        self._stopping = True  # no lock: this may be a signal handler
        wake = self._wake
        if wake:
            with contextlib.suppress(RuntimeError):  # the loop has just been closed
                wake()

    async def _run(self) -> None:
        loop, stopped = asyncio.get_running_loop(), asyncio.Event()
        # asyncio's own pool has a few threads more than there are cores; each slot needs one for as long as it builds.
        loop.set_default_executor(ThreadPoolExecutor(self._concurrency + 4, thread_name_prefix="slot"))
        self._wake = lambda: loop.call_soon_threadsafe(stopped.set)
        pause = _FIRST_PAUSE
        while not self._stopping:
            began = loop.time()
            await self._work_until(stopped)
            if self._stopping:
                break
            # The database went away: come back at once after a long life, ever more slowly otherwise.
            pause = _FIRST_PAUSE if loop.time() - began > _LONGEST_PAUSE else min(2 * pause, _LONGEST_PAUSE)
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
                    fetch_job_polling_interval=_POLL_SECONDS,
                    delete_jobs="successful",
                    update_heartbeat_interval=_HEARTBEAT_SECONDS,
                    install_signal_handlers=False,
                )
        except (ConnectorException, psycopg.Error, psycopg_pool.PoolTimeout) as exc:
            _log.warning("The queue %s lost the database: %r", self._queue, exc)

    def _handle(self, build_id: str) -> None:
        self._handler(
            build_id
        )  # in a thread, since this function is not async; procrastinate logs what it raises
