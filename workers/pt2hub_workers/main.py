"""The worker's main program: registers, takes builds, hands back what it cannot finish."""

from __future__ import annotations

import os
import signal
import sys
import threading
from typing import TYPE_CHECKING

import structlog

from pt2hub.errors import Pt2hubError
from pt2hub.server import logs
from pt2hub.server.container import open_container
from pt2hub.server.db.queue import BuildConsumer
from pt2hub_workers.attempt import Tools
from pt2hub_workers.children import Pool
from pt2hub_workers.config import WorkerConfig
from pt2hub_workers.machine import probe_machine
from pt2hub_workers.runner import BuildRunner

if TYPE_CHECKING:
    from pt2hub.server.container import Container
    from pt2hub_workers.machine import Machine

WARM_SECONDS = 60.0
"""How long a worker waits for its first children before it offers itself."""

_log = structlog.get_logger()


def main() -> int:
    """Runs a worker until SIGTERM or SIGINT; returns the exit code."""
    logs.configure()
    try:
        config = WorkerConfig.from_environ(os.environ)
        machine = probe_machine(config.child_environ)
        with open_container(config.server, database_url=config.database_url) as container:
            _serve(config, machine, container)
    except Pt2hubError as error:
        print(f"pt2hub worker: {error}", file=sys.stderr)
        return 1
    return 0


def _serve(config: WorkerConfig, machine: Machine, container: Container) -> None:
    stop = threading.Event()
    pool = Pool(config.child_environ)
    tools = Tools(container, machine, pool, config.server.factories, config.gate_seconds, stop)
    runner = BuildRunner(tools, worker_id=config.worker_id, scratch=config.scratch)
    consumer = BuildConsumer(config.database_url, queue=machine.target.name, handler=runner.run)

    def on_signal(number: int, _frame: object) -> None:
        _log.info("stopping", signal=signal.Signals(number).name)
        stop.set()
        consumer.stop()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, on_signal)
    pool.refill()
    if not pool.wait_warm(WARM_SECONDS):  # builds will say why; a slow disk is no reason to stay away
        _log.warning("the children are not ready yet", seconds=WARM_SECONDS)
    container.workers.register(
        worker_id=config.worker_id,
        target=machine.target,
        toolchain=machine.toolchain,
        environment=machine.environment,
        packages=machine.packages,
    )
    heart = threading.Thread(target=_beat, args=(config, container, stop), daemon=True, name="heartbeat")
    heart.start()
    _log.info("worker ready", worker=config.worker_id, target=machine.target.name)
    try:
        consumer.run()
    finally:
        stop.set()
        pool.close()
        heart.join()
        container.workers.leave(config.worker_id)


def _beat(config: WorkerConfig, container: Container, stop: threading.Event) -> None:
    """Says that this worker lives, and gives builds of silent ones to others."""
    while not stop.wait(config.server.heartbeat_seconds):
        try:
            container.workers.heartbeat(config.worker_id)
            for build in container.workers.requeue_lost():
                _log.warning("build of a lost worker queued again", build=build)
        except Exception as error:  # noqa: BLE001  # a heart that stops looks like a dead worker to everyone else
            _log.warning("heartbeat failed", error=f"{type(error).__name__}: {error}")
