"""Main program of the worker: registers, runs builds and hands back the ones it cannot finish."""

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

from pt2hub.domain.workers import Registration
from pt2hub.errors import DatabaseUnavailable, Pt2hubError, UnknownTarget
from pt2hub.retry import generate_pauses, retry
from pt2hub.server.container import open_container
from pt2hub.server.db import migrations
from pt2hub.server.db.queue import BuildConsumer
from pt2hub.server.reaper import Reaper
from pt2hub.system import logging_setup
from pt2hub.system.interrupts import Interrupted, Interrupts, release
from pt2hub.system.redaction import Redactor
from pt2hub.version import __version__
from pt2hub_workers.builds import precompiled_headers
from pt2hub_workers.builds.aoti_toolchain import AotiToolchain
from pt2hub_workers.builds.autotune_tables import AutotuneTables
from pt2hub_workers.builds.job import WorkerContext
from pt2hub_workers.builds.noop_toolchain import NoopToolchain
from pt2hub_workers.builds.precompiled_headers import PrecompiledHeaders
from pt2hub_workers.config import WorkerConfig, host
from pt2hub_workers.operations.device_lock import DeviceLock, device_path
from pt2hub_workers.operations.heartbeat import HeartbeatMonitor
from pt2hub_workers.operations.machine import probe_machine
from pt2hub_workers.operations.shutdown import Drain
from pt2hub_workers.runner import BuildRunner
from pt2hub_workers.sandbox import open_launcher, workspaces

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pt2hub_workers.builds.toolchains import Toolchain
    from pt2hub_workers.sandbox import Launcher

WARM_SECONDS = 60.0
"""How long a worker waits for its first child processes before it takes builds."""
DATABASE_SECONDS = 60.0
"""How long a starting worker waits for a database that may be starting as well."""
_PAUSE_SECONDS = 3.0
_OPTIONS = {
    "target": "PT2HUB_WORKER_TARGET",
    "concurrency": "PT2HUB_CONCURRENCY",
    "toolchain": "PT2HUB_TOOLCHAIN",
    "drain_seconds": "PT2HUB_DRAIN_SECONDS",
    "isolation": "PT2HUB_ISOLATION",
}
"""Options and the environment variables they set, so that both are checked in one place."""
_log = structlog.get_logger()


def main(argv: Sequence[str]) -> int:
    """Run a worker until SIGTERM, SIGINT or SIGHUP; with `--check`, report which workers are alive."""
    options = _options(argv)
    logging_setup.configure()
    interrupts = Interrupts()
    try:
        config = WorkerConfig.from_environ({**os.environ, **_given_settings(options)})
        if options.check:
            release()
            return _check(config, as_json=options.json)
        with interrupts.install():
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
    parser = argparse.ArgumentParser(prog="pt2hub worker", description="Run builds from the queue.")
    for name in _OPTIONS:
        parser.add_argument(f"--{name.replace('_', '-')}")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--json", action="store_true")
    return parser.parse_args(argv)


def _given_settings(options: argparse.Namespace) -> dict[str, str]:
    given = {variable: getattr(options, name) for name, variable in _OPTIONS.items()}
    return {variable: value for variable, value in given.items() if value is not None}


def _check(config: WorkerConfig, *, as_json: bool) -> int:
    """Print which workers of this machine are alive according to the database; return the exit code."""
    with open_container(config.server, database_url=config.database_url) as container:
        ours = [worker for worker in container.workers.workers().workers if worker.host == host()]
    alive = {worker.id: worker.state for worker in ours if worker.state in ("idle", "busy", "draining")}
    if as_json:
        print(json.dumps({"host": host(), "alive": alive}))
    elif alive:
        print("\n".join(f"{name} is {state}" for name, state in alive.items()))
    else:
        print(f"pt2hub worker: no worker is alive on {host()}", file=sys.stderr)
    return 0 if alive else 1


def _run(config: WorkerConfig, interrupts: Interrupts) -> None:
    with ExitStack() as stack:
        context = interrupts.call(partial(_prepare, config, stack))
        _serve(config, context, interrupts, stack)


def _prepare(config: WorkerConfig, stack: ExitStack) -> WorkerContext:
    """Prepare everything a worker needs before it takes builds; the first time on a machine this takes minutes."""
    config.check_storage()
    workspaces.prepare(config.scratch)
    launcher = _launcher(config)
    _await_database(config.database_url)
    toolchain = _open_toolchain(config, launcher)
    stack.callback(toolchain.close)
    machine = toolchain.machine()
    container = stack.enter_context(open_container(config.server, database_url=config.database_url))
    container.health.check_storage()
    device = DeviceLock(device_path(machine.device))
    if launcher is not None:
        confining = launcher.for_device(machine.device)
        _log.info("sandbox profile of models' code", profile=confining.profile, document=confining.document)
        prepared = PrecompiledHeaders(config.headers, toolchain, config.child_environ)
        stack.callback(prepared.close)
        prepared.ensure(device)
    toolchain.refill()
    context = WorkerContext(
        container,
        machine,
        toolchain,
        device,
        config.server.factories,
        config.verification_seconds,
        Redactor(config.secrets),
        config.image,
        AutotuneTables(config.server.home / "autotune", machine),
    )
    if not toolchain.wait_warm(WARM_SECONDS):
        # Builds report the cause; a slow disk must not keep the worker away.
        _log.warning("child processes are not ready yet", seconds=WARM_SECONDS)
    return context


def _leave() -> NoReturn:
    """Exit a worker that was stopped during its preparation.

    No build has begun that must be handed back, and child processes die with this process.
    """
    _log.info("stopped before it was ready")
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


def _launcher(config: WorkerConfig) -> Launcher | None:
    """Return the launcher of child processes; None for the no-op toolchain, which runs no users' code."""
    if config.toolchain == "noop":
        return None
    precompiled_headers.prepare(config.headers)
    launcher = open_launcher(config.sandbox, config.child_environ)
    launcher.keep_private(config.private)
    if launcher.reason is not None:
        _log.warning(
            "isolation is only `process`", isolation_reason=launcher.reason
        )  # `pt2hub up` reads the field
    return launcher


def _open_toolchain(config: WorkerConfig, launcher: Launcher | None) -> Toolchain:
    """Return the configured toolchain."""
    if launcher is not None:
        environ = config.child_environ
        machine = probe_machine(launcher, environ, config.target)
        return AotiToolchain(launcher, machine, config.scratch, environ, concurrency=config.concurrency)
    toolchain = NoopToolchain(config.scratch, config.noop_pauses)
    only = toolchain.machine().target.name
    if config.target not in ("auto", only):
        raise UnknownTarget(
            f"the no-op toolchain cannot build for {config.target[:80]!r}",
            where="PT2HUB_WORKER_TARGET",
            hint=f"Use one of: auto, {only}.",
        )
    return toolchain


def _serve(config: WorkerConfig, context: WorkerContext, interrupts: Interrupts, stack: ExitStack) -> None:
    """Take builds until a signal ends the worker."""
    container, every = context.container, config.server.heartbeat_seconds
    registration = _registration(config, context.toolchain)
    monitor = HeartbeatMonitor(
        container, registration, database_url=config.database_url, every=every, on_refused=interrupts.end
    )
    timeout = config.server.lost_worker_seconds
    reaper = Reaper(container, heartbeat_timeout=timeout, every=every, tidies=False)
    consumer = BuildConsumer(
        config.database_url,
        queue=context.machine.target.name,
        handler=BuildRunner(context, monitor).run,
        concurrency=config.concurrency,
    )
    for part in (reaper, monitor):
        stack.callback(part.stop)
        part.start()
    Drain(interrupts, consumer, monitor, seconds=config.drain_seconds).start()
    _log.info(
        "worker ready",
        worker=config.worker_id,
        target=context.machine.target.name,
        toolchain=config.toolchain,
        concurrency=config.concurrency,
        isolation=registration.isolation,
        isolation_profile=registration.isolation_profile,
    )
    consumer.run()
    if monitor.refused is not None:
        raise monitor.refused


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
    """Wait until the database answers, and check its schema.

    Raises:
        SchemaOlder: The schema lacks revisions.
        SchemaNewer: The schema was written by a newer pt2hub.
        DatabaseUnavailable: The database did not answer in time.
    """
    retry(
        lambda: migrations.require(database_url),
        DatabaseUnavailable,
        generate_pauses(_PAUSE_SECONDS, longest=_PAUSE_SECONDS, total=DATABASE_SECONDS),
        on_error=lambda error: _log.warning("waiting for the database", error=error.message),
    )
