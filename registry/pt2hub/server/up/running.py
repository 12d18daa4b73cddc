"""The run of `pt2hub up`, from the first check to the last process stopped."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, NoReturn

from pt2hub.errors import DatabaseUnavailable, Unauthorized
from pt2hub.server.container import open_container
from pt2hub.server.db import migrating
from pt2hub.server.db.embedded import EmbeddedPostgres
from pt2hub.server.home import Home
from pt2hub.server.processes import spawn
from pt2hub.server.up.interrupts import Interrupted, Interrupts
from pt2hub.server.up.listening import Probe, listen_for_each
from pt2hub.server.up.services import Service, describe_exit

if TYPE_CHECKING:
    import socket

    from pt2hub.server.config import ServerConfig
    from pt2hub.server.processes import Child

_TICK_SECONDS = 0.1
_API_PATIENCE = 10.0
_WORKER_PATIENCE = 20.0
"""A worker stops its build and hands it back within this time."""
_WORKER_BEGINS = "worker starts (it imports torch: about 10 s)"
_WORKER_ENDS = f"worker stops; a build that runs is handed back ({_WORKER_PATIENCE:g} s at most)"


@dataclass(frozen=True, slots=True)
class Started:
    """What runs now.

    Attributes:
        url: Where the API answers.
        home: The home directory.
        storage: Where blobs are kept.
        targets: Names of the targets that live workers offer.
        settings: The file with the token and the URL, which the client on this machine reads.
        token: The admin token when it was made in this start, else None: it is shown once.
    """

    url: str
    home: str
    storage: str
    targets: tuple[str, ...]
    settings: str
    token: str | None = field(repr=False)


def _print(started: Started) -> None:
    lines = [
        f"pt2hub serves {started.url}",
        f"  home     {started.home}",
        f"  storage  {started.storage}",
        f"  targets  {', '.join(started.targets) or 'none: no worker was started'}",
        f"  token    {started.token}  (shown once)" if started.token else f"  token    in {started.settings}",
        "Press Ctrl-C to stop.",
    ]
    print("\n".join(lines), flush=True)


def _complain(line: str) -> None:
    with contextlib.suppress(
        OSError
    ):  # the terminal has gone: no reason to stop the server, or to stop stopping
        print(line, file=sys.stderr, flush=True)


def _say(line: str) -> None:
    _complain(f"up: {line}")


@dataclass(frozen=True, slots=True)
class UpOptions:
    """What a caller may choose.

    Attributes:
        worker: Whether to start a worker for this machine's target.
        api_seconds: How long the API may take to answer.
        worker_seconds: How long the worker may take to appear; importing torch is slow on a cold disk.
        announce: Shows what runs, once all of it does.
        report: Takes lines about children that were started again.
        progress: Takes lines about what starts and stops.
    """

    worker: bool = True
    api_seconds: float = 60.0
    worker_seconds: float = 180.0
    announce: Callable[[Started], None] = field(default=_print)
    report: Callable[[str], None] = field(default=_complain)
    progress: Callable[[str], None] = field(default=_say)


def run(config: ServerConfig, options: UpOptions | None = None) -> int:
    """Runs the whole server until SIGINT or SIGTERM; call it from the main thread.

    Args:
        config: The server's settings.
        options: What the caller chose.

    Returns:
        The exit code: 0 after a signal.

    Raises:
        HomeUnusable: The home cannot be written.
        HomeInUse: Another server holds the home.
        PortTaken: Another program listens on the port.
        SchemaNewer: A newer pt2hub wrote the database.
        NamespacesRefused: The embedded PostgreSQL cannot run as root here.
        DatabaseUnavailable: The database does not answer, or ended.
        InternalError: The API or the worker did not start; the error carries the tail of its log.
    """
    chosen, interrupts = options or UpOptions(), Interrupts()
    with interrupts.installed(), contextlib.suppress(Interrupted), ExitStack() as stack:
        try:
            _serve(config, chosen, stack)
        finally:
            interrupts.disarm()  # stopping takes bounded time: a second Ctrl-C must not tear it
    chosen.progress("stopped")
    return 0


def _serve(config: ServerConfig, options: UpOptions, stack: ExitStack) -> NoReturn:
    """Starts one thing after the other; the stack stops them in the opposite order."""
    home = Home(config.home)
    stack.enter_context(home.held())
    listeners = [
        stack.enter_context(opened)
        for opened in listen_for_each(config.host, config.port, processes=config.api_processes)
    ]
    probe = Probe(listeners[0])
    home.announce(probe.url)
    database = None if config.database_url else EmbeddedPostgres(home.database)
    database_url = _start_database(database, options, stack) if database else str(config.database_url)
    options.progress("the database's schema is brought up to date")
    migrating.upgrade(database_url)
    token = _ensure_token(config, home, probe.url, database_url)
    environ = _environ(config, database_url)
    apis = _apis(config, options, listeners, environ)
    workers = [_worker(config, options, environ)] if options.worker else []
    _start_services(apis, options, stack, begins=f"API starts on {probe.url}", ends="API stops")
    if workers:
        _start_services(workers, options, stack, begins=_WORKER_BEGINS, ends=_WORKER_ENDS)
    targets = _await_services(apis, workers, probe, options)
    options.announce(Started(probe.url, str(home.path), config.storage, targets, str(home.settings), token))
    _supervise([*apis, *workers], database)


def _start_database(database: EmbeddedPostgres, options: UpOptions, stack: ExitStack) -> str:
    options.progress("PostgreSQL starts")
    stack.callback(database.stop)
    stack.callback(options.progress, "PostgreSQL stops")
    return database.start()


def _start_services(
    services: list[Service], options: UpOptions, stack: ExitStack, *, begins: str, ends: str
) -> None:
    options.progress(begins)
    for service in services:
        stack.callback(service.stop)
        service.start()
    stack.callback(options.progress, ends)


def _ensure_token(config: ServerConfig, home: Home, url: str, database_url: str) -> str | None:
    """Writes the client's settings; makes a token unless they hold a valid one, and returns a new one."""
    known = home.read_settings().get("token")
    with open_container(config, database_url=database_url) as container:
        if isinstance(known, str):
            with contextlib.suppress(Unauthorized):
                container.access.verify(known)
                home.write_settings(url=url)
                return None
        made = container.access.create_token("up")
    home.write_settings(url=url, token=made)
    return made


def _environ(config: ServerConfig, database_url: str) -> dict[str, str]:
    """What the children get: they read their own settings from the environment; these three we decided."""
    return os.environ | {
        "PT2HUB_HOME": str(config.home),
        "PT2HUB_DATABASE_URL": database_url,
        "PT2HUB_STORAGE": config.storage,
    }


def _apis(
    config: ServerConfig, options: UpOptions, listeners: list[socket.socket], environ: dict[str, str]
) -> list[Service]:
    """One process for each socket."""
    log = Home(config.home).logs / "api.log"

    def launch(number: int) -> Child:
        argv = [sys.executable, "-m", "pt2hub.server.api.serve", "--fd", str(number)]
        return spawn(argv, log=log, environ=environ, keep_open=[number])

    return [
        Service("API", partial(launch, listener.fileno()), patience=_API_PATIENCE, report=options.report)
        for listener in listeners
    ]


def _worker(config: ServerConfig, options: UpOptions, environ: dict[str, str]) -> Service:
    log = Home(config.home).logs / "worker.log"

    def launch() -> Child:
        return spawn([sys.executable, "-m", "pt2hub_workers"], log=log, environ=environ)

    return Service("worker", launch, patience=_WORKER_PATIENCE, report=options.report)


def _await_services(
    apis: list[Service], workers: list[Service], probe: Probe, options: UpOptions
) -> tuple[str, ...]:
    """Waits until the API is ready and, where there is a worker, until it offers a target."""
    for api in apis:
        _await(api, probe.ready, options.api_seconds)
    for worker in workers:
        _await(worker, lambda: bool(probe.live_targets()), options.worker_seconds)
    return probe.live_targets()


def _await(service: Service, condition: Callable[[], bool], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        service.require_running()
        if time.monotonic() > deadline:
            raise service.failure(f"was not ready within {seconds:g} s")
        time.sleep(_TICK_SECONDS)


def _supervise(services: list[Service], database: EmbeddedPostgres | None) -> NoReturn:
    while True:
        if database and (code := database.exit_code()) is not None:
            raise DatabaseUnavailable(
                f"The embedded PostgreSQL ended with {describe_exit(code)}, so everything was stopped.",
                where=str(database.log),
                hint="Read the log, then start pt2hub again; what was committed is kept.",
            )
        for service in services:
            service.tend()
        time.sleep(_TICK_SECONDS)
