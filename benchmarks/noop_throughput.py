"""Builds a second through the whole state machine, with the no-op toolchain in place of a compiler.

Each build is a version of its own: submitted, announced, claimed, taken through every step, its blobs and manifests
written durably to a local storage, published with all of its rows. The database is one embedded PostgreSQL with
durable commits. Submissions go through the service, in this process; workers run in further ones, a slot and a device
each, as on as many machines.
"""

from __future__ import annotations

import argparse
import logging
import multiprocessing
import tempfile
import threading
import time
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import structlog
from sqlalchemy import text

from common import noop_spec, report, say
from pt2hub.domain.tokens import SERVER
from pt2hub.domain.workers import Registration
from pt2hub.server.config import ServerConfig
from pt2hub.server.container import open_container
from pt2hub.server.db import engine as engines
from pt2hub.server.db import migrations
from pt2hub.server.db.embedded import EmbeddedPostgres
from pt2hub.server.db.queue import BuildConsumer
from pt2hub.version import __version__
from pt2hub_workers.builds.job import WorkerContext
from pt2hub_workers.builds.noop_toolchain import NoopToolchain
from pt2hub_workers.operations.device_lock import DeviceLock
from pt2hub_workers.operations.heartbeat import HeartbeatMonitor
from pt2hub_workers.runner import BuildRunner

if TYPE_CHECKING:
    from collections.abc import Iterator
    from multiprocessing.synchronize import Event, Semaphore

    from pt2hub.server.container import Container

_LEFT = text("SELECT count(*) FROM builds WHERE state IN ('queued', 'running')")
_STATES = text("SELECT state, count(*) FROM builds GROUP BY state")
_ARTIFACTS = text("SELECT count(*), count(DISTINCT build_id) FROM artifacts")
_SPAN = text("SELECT extract(epoch FROM max(finished_at) - min(created_at)) FROM builds")


def main() -> None:
    """Run and prints."""
    options = _options()
    with tempfile.TemporaryDirectory(prefix="pt2hub-benchmark-") as name, ExitStack() as stack:
        folder = Path(name)
        url = stack.enter_context(EmbeddedPostgres(folder / "pg")).url
        migrations.upgrade(url)
        container = stack.enter_context(open_container(_config(folder), database_url=url))
        stack.enter_context(_workers(url, folder, options))
        say("submitting")
        _run(container, options)
        with engines.connect(url) as connection:
            states = {str(state): count for state, count in connection.execute(_STATES)}
            artifacts, built = connection.execute(_ARTIFACTS).one()
            seconds = float(connection.execute(_SPAN).scalar_one())
    if states != {"succeeded": options.builds} or (artifacts, built) != (options.builds, options.builds):
        raise SystemExit(f"wrong: {states}, {artifacts} artifacts of {built} builds")
    report(
        "noop_throughput",
        builds=options.builds,
        processes=options.processes,
        workers=options.processes * options.workers,
        seconds=round(seconds, 2),
        builds_a_second=round(options.builds / seconds, 1),
    )


def _config(folder: Path) -> ServerConfig:
    return ServerConfig.from_environ({"PT2HUB_STORAGE": str(folder / "blobs")})


@contextmanager
def _workers(url: str, folder: Path, options: argparse.Namespace) -> Iterator[None]:
    """Yield the processes with workers that are ready."""
    context = multiprocessing.get_context("spawn")
    stop, ready = context.Event(), context.Semaphore(0)
    processes = [
        context.Process(target=_serve, args=(url, folder, number, options.workers, ready, stop))
        for number in range(options.processes)
    ]
    for process in processes:
        process.start()
    for _ in processes:
        ready.acquire()
    try:
        yield
    finally:
        stop.set()
        for process in processes:
            process.join()


def _serve(url: str, folder: Path, number: int, workers: int, ready: Semaphore, stop: Event) -> None:
    """One process of workers."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    with ExitStack() as stack:
        container = stack.enter_context(open_container(_config(folder), database_url=url))
        for slot in range(workers):
            stack.enter_context(_Worker(container, url, folder / f"worker-{number}-{slot}"))
        ready.release()
        stop.wait()


def _run(container: Container, options: argparse.Namespace) -> None:
    """Submit from several threads and wait until nothing is left to do."""
    numbers = iter(range(options.builds))
    lock = threading.Lock()

    def submit() -> None:
        while True:
            with lock:
                number = next(numbers, None)
            if number is None:
                return
            container.publish.submit(noop_spec(f"bench/n{number}", seed=number), by=SERVER)

    threads = [threading.Thread(target=submit) for _ in range(options.submitters)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    say("all submitted")
    with engines.connect(container.database_url) as connection:
        connection.execution_options(isolation_level="AUTOCOMMIT")
        while left := connection.execute(_LEFT).scalar_one():
            say(f"{left} left")
            time.sleep(0.25)


class _Worker:
    """A worker as `pt2hub_workers.main` makes it, but in this process and on a device of its own."""

    def __init__(self, container: Container, url: str, folder: Path) -> None:
        toolchain = NoopToolchain(folder / "scratch")
        machine = toolchain.machine()
        folder.mkdir()
        registration = Registration(
            worker_id=folder.name,
            target=machine.target,
            toolchain=machine.toolchain,
            environment=machine.environment,
            packages=machine.packages,
            host="benchmark",
            version=__version__,
            concurrency=1,
            clock=time.time(),
            isolation="none",
        )
        context = WorkerContext(
            container, machine, toolchain, DeviceLock(folder / "device.lock"), (), verification_seconds=60.0
        )
        self._monitor = HeartbeatMonitor(
            container, registration, database_url=url, every=3.0, on_refused=lambda: None
        )
        runner = BuildRunner(context, self._monitor)
        self._consumer = BuildConsumer(url, queue=machine.target.name, handler=runner.run)
        self._thread = threading.Thread(target=self._consumer.run, name=folder.name)

    def __enter__(self) -> None:
        self._monitor.start()
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._consumer.stop()
        self._thread.join()
        self._monitor.stop()


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--processes", type=int, default=2, help="processes of workers (default 2)")
    parser.add_argument(
        "--workers",
        type=int,
        default=1,
        help="workers in each of them (default 1: more only wait for each other on two cores)",
    )
    parser.add_argument("--builds", type=int, default=1000, help="builds to do (default 1000)")
    parser.add_argument("--submitters", type=int, default=2, help="threads that submit (default 2)")
    return parser.parse_args()


if __name__ == "__main__":
    main()
