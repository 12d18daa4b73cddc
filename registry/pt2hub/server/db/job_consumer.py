"""Calls handlers for the jobs of one queue of procrastinate, through outages of the database."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import procrastinate
import psycopg
import psycopg_pool
from procrastinate.exceptions import ConnectorException

from pt2hub.server.db import engine as engines

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_POLL_INTERVAL_S = 1.0
"""Only a safety net: NOTIFY announces jobs, but not to a consumer that has just begun to listen."""
_MIN_RETRY_PAUSE_S = 0.5
_MAX_RETRY_PAUSE_S = 15.0
_HEARTBEAT_INTERVAL_S = 3.0
"""How often a consumer reports that it is live; `BuildQueue.undeliverable` ignores the jobs of live consumers."""
_log = logging.getLogger(__name__)


class JobConsumer:
    """Calls a handler for each job of a queue.

    Args:
        handlers: Function by name of the task, called in a thread with the job's arguments.
        poll_interval: Seconds between two looks for jobs that nothing announced, such as those that became due.
    """

    def __init__(
        self,
        database_url: str,
        *,
        queue: str,
        handlers: Mapping[str, Callable[..., Any]],
        concurrency: int = 1,
        poll_interval: float = _POLL_INTERVAL_S,
    ) -> None:
        self._conninfo = engines.conninfo(database_url)
        self._queue = queue
        self._handlers = handlers
        self._concurrency = concurrency
        self._poll_interval = poll_interval
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
        for task, handler in self._handlers.items():
            # In a thread, since these functions are not async; procrastinate logs what they raise.
            app.task(name=task)(handler)
        try:
            async with app.open_async():
                await app.run_worker_async(
                    queues=[self._queue],
                    concurrency=self._concurrency,
                    fetch_job_polling_interval=self._poll_interval,
                    delete_jobs="successful",
                    update_heartbeat_interval=_HEARTBEAT_INTERVAL_S,
                    install_signal_handlers=False,
                )
        except (ConnectorException, psycopg.Error, psycopg_pool.PoolTimeout) as exc:
            _log.warning("The queue %s lost the database: %r", self._queue, exc)
