"""The worker's main program: registers, takes builds, hands back what it cannot finish."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, NoReturn

import structlog

from pt2hub import __version__
from pt2hub.domain.workers import Registration
from pt2hub.errors import DatabaseUnavailable, Pt2hubError
from pt2hub.server import logs
from pt2hub.server.container import open_container
from pt2hub.server.db import migrating
from pt2hub.server.db.queue import BuildConsumer
from pt2hub.server.interrupts import Interrupted, Interrupts, release
from pt2hub.server.reaper import Reaper
from pt2hub.server.redaction import Redactor
from pt2hub_workers import headers, rooms
from pt2hub_workers.attempt import Tools
from pt2hub_workers.config import WorkerConfig, host
from pt2hub_workers.device import Device, device_path
from pt2hub_workers.draining import Drain
from pt2hub_workers.headers import Headers
from pt2hub_workers.overseer import Overseer
from pt2hub_workers.runner import BuildRunner
from pt2hub_workers.sandbox import open_launcher
from pt2hub_workers.toolchains import open_toolchain

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pt2hub_workers.sandbox import Launcher
    from pt2hub_workers.toolchains import Toolchain

WARM_SECONDS = 60.0
"""How long a worker waits for its first children before it offers itself."""
DATABASE_SECONDS = 60.0
"""How long a worker that starts waits for a database that may start beside it."""
_PAUSE_SECONDS = 3.0
_OPTIONS = {
    "target": "PT2HUB_WORKER_TARGET",
    "concurrency": "PT2HUB_CONCURRENCY",
    "toolchain": "PT2HUB_TOOLCHAIN",
    "drain_seconds": "PT2HUB_DRAIN_SECONDS",
    "isolation": "PT2HUB_ISOLATION",
}
"""Each option and the variable that it stands for: one place checks both."""
_log = structlog.get_logger()


def main(argv: Sequence[str]) -> int:
    """Runs a worker until SIGTERM, SIGINT or SIGHUP, or checks on one.

    Args:
        argv: The command line without the program.

    Returns:
        The exit code.
    """
    options = _options(argv)
    logs.configure()
    interrupts = Interrupts()
    try:
        config = WorkerConfig.from_environ({**os.environ, **_chosen(options)})
        if options.check:
            release()
            return _check(config, as_json=options.json)
        with interrupts.installed():
            _run(config, interrupts)
    except Interrupted:
        _leave()
    except Pt2hubError as error:
        if options.json:
            print(json.dumps({"error": error.as_dict()}))
        else:
            print(f"pt2hub worker: {error}", f"  [{error.code}]", sep="\n", file=sys.stderr)
        return 1
    return 0


def _options(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="pt2hub worker", description="Takes builds and does them.")
    for name in _OPTIONS:
        parser.add_argument(f"--{name.replace('_', '-')}")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--json", action="store_true")
    return parser.parse_args(argv)


def _chosen(options: argparse.Namespace) -> dict[str, str]:
    given = {variable: getattr(options, name) for name, variable in _OPTIONS.items()}
    return {variable: value for variable, value in given.items() if value is not None}


def _check(config: WorkerConfig, *, as_json: bool) -> int:
    """Says which workers of this machine are alive, as the database sees it; the exit code."""
    with open_container(config.server, database_url=config.database_url) as container:
        ours = [worker for worker in container.workers.workers().workers if worker.host == host()]
    alive = {worker.id: worker.state for worker in ours if worker.state in ("idle", "busy", "draining")}
    if as_json:
        print(json.dumps({"host": host(), "alive": alive}))
    elif alive:
        print("\n".join(f"{name} is {state}" for name, state in alive.items()))
    else:
        print(f"pt2hub worker: no worker of {host()} is alive", file=sys.stderr)
    return 0 if alive else 1


def _run(config: WorkerConfig, interrupts: Interrupts) -> None:
    with ExitStack() as stack:
        tools = interrupts.call(partial(_prepare, config, stack))
        _serve(config, tools, interrupts, stack)


def _prepare(config: WorkerConfig, stack: ExitStack) -> Tools:
    """Makes everything that a worker needs before it takes builds: minutes, the first time on a machine."""
    config.check_storage()
    rooms.prepare(config.scratch)
    launcher = _launcher(config)
    _await_database(config.database_url)
    toolchain = open_toolchain(config, launcher)
    stack.callback(toolchain.close)
    machine = toolchain.machine()
    container = stack.enter_context(open_container(config.server, database_url=config.database_url))
    container.health.check_storage()
    device = Device(device_path(machine.device))
    if launcher is not None:
        confining = launcher.for_device(machine.device)
        _log.info("how models' code is confined", profile=confining.profile, document=confining.document)
        prepared = Headers(config.headers, toolchain, config.child_environ)
        stack.callback(prepared.close)
        prepared.ensure(device)
    toolchain.refill()
    tools = Tools(
        container,
        machine,
        toolchain,
        device,
        config.server.factories,
        config.gate_seconds,
        Redactor(config.secrets),
        config.image,
    )
    if not toolchain.wait_warm(WARM_SECONDS):
        # Builds will say why; a slow disk is no reason to stay away.
        _log.warning("the children are not ready yet", seconds=WARM_SECONDS)
    return tools


def _leave() -> NoReturn:
    """Ends a worker that was told to stop before it served, whatever its preparation is still at.

    Nothing has begun that must be handed back, and children die with this process.
    """
    _log.info("stopped before it was ready")
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


def _launcher(config: WorkerConfig) -> Launcher | None:
    """What starts children, as far as the machine can confine them; None where nothing of others is run.

    Raises:
        SandboxUnavailable: It cannot, and the settings demand it.
    """
    if config.toolchain == "noop":
        return None
    headers.prepare(config.headers)
    launcher = open_launcher(config.sandbox, config.child_environ)
    launcher.keep_private(config.private)
    if launcher.reason is not None:
        _log.warning(f"isolation is only process: {launcher.reason}")  # `pt2hub up` looks for it
    return launcher


def _serve(config: WorkerConfig, tools: Tools, interrupts: Interrupts, stack: ExitStack) -> None:
    """Takes builds until a signal has ended it."""
    container, every = tools.container, config.server.heartbeat_seconds
    registration = _registration(config, tools.toolchain)
    overseer = Overseer(
        container, registration, database_url=config.database_url, every=every, on_refused=interrupts.end
    )
    reaper = Reaper(container, silence=config.server.lost_worker_seconds, every=every)
    consumer = BuildConsumer(
        config.database_url,
        queue=tools.machine.target.name,
        handler=BuildRunner(tools, overseer).run,
        concurrency=config.concurrency,
    )
    for part in (reaper, overseer):
        stack.callback(part.stop)
        part.start()
    Drain(interrupts, consumer, overseer, seconds=config.drain_seconds).start()
    _log.info(
        "worker ready",
        worker=config.worker_id,
        target=tools.machine.target.name,
        toolchain=config.toolchain,
        concurrency=config.concurrency,
        isolation=registration.isolation,
        isolation_profile=registration.isolation_profile,
    )
    consumer.run()
    if overseer.refused is not None:
        raise overseer.refused


def _registration(config: WorkerConfig, toolchain: Toolchain) -> Registration:
    machine = toolchain.machine()
    return Registration(
        worker_id=config.worker_id,
        target=machine.target,
        toolchain=machine.toolchain,
        environment=machine.environment,
        packages=machine.packages,
        host=host(),
        version=__version__,
        concurrency=config.concurrency,
        clock=time.time(),
        isolation=toolchain.isolation,
        isolation_profile=toolchain.isolation_profile,
    )


def _await_database(database_url: str) -> None:
    """Waits for a database that does not answer yet, and refuses one of another schema.

    Raises:
        SchemaOlder: It lacks revisions.
        SchemaNewer: It was written by a newer pt2hub.
        DatabaseUnavailable: It did not answer in time.
    """
    deadline = time.monotonic() + DATABASE_SECONDS
    while True:
        try:
            migrating.require(database_url)
        except DatabaseUnavailable as error:
            if time.monotonic() + _PAUSE_SECONDS > deadline:
                raise
            _log.warning("the database does not answer yet; waiting", error=error.message)
        else:
            return
        time.sleep(_PAUSE_SECONDS)
