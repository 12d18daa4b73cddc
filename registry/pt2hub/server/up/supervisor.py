"""Supervisor of `pt2hub up`, from the first check to stopping the last process."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, NoReturn

from pt2hub.errors import Unauthorized
from pt2hub.server.container import open_container
from pt2hub.server.db import migrations, worker_role
from pt2hub.server.db.embedded import EmbeddedPostgres
from pt2hub.server.operator import operator
from pt2hub.server.up.children import HAND_BACK_SECONDS, api_services, await_service, worker_service
from pt2hub.server.up.database_supervision import Database
from pt2hub.server.up.isolation import confining, warning
from pt2hub.server.up.port import Probe, listen_for_each
from pt2hub.server.up.supervised_services import Service, stop_all, tend_all
from pt2hub.system.home import Home
from pt2hub.system.interrupts import Interrupted, Interrupts

if TYPE_CHECKING:
    from pathlib import Path

    from pt2hub.server.config import ServerConfig
    from pt2hub.server.container import Container
    from pt2hub.server.up.isolation import IsolationSetup

_WORKER_BEGINS = (
    "starting the worker (about 10 s; the first time on a machine a minute more, or several on a busy one)"
)


@dataclass(frozen=True, slots=True)
class Started:
    """Information about a started server.

    Attributes:
        url: Where the API answers.
        storage: Where blobs are kept.
        isolation: How the worker confines models' code: `sandbox` or `process`; `none` where it runs none, None
            where no worker was started.
        token: The admin token when it was made in this start, else None: it is shown once.
    """

    url: str
    home: str
    storage: str
    targets: tuple[str, ...]
    isolation: str | None
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
    """Options of `run`.

    Attributes:
        api_seconds: How long the API may take to answer.
        worker_seconds: How long the worker may take to appear. The first one on a machine compiles PyTorch's headers:
            one minute when the machine is idle (166 s seen during other builds).
        announce: Shows what runs, once all of it does.
    """

    worker: bool = True
    api_seconds: float = 60.0
    worker_seconds: float = 600.0
    announce: Callable[[Started], None] = field(default=_print)
    report: Callable[[str], None] = field(default=_complain)
    progress: Callable[[str], None] = field(default=_say)


def run(config: ServerConfig, options: UpOptions | None = None) -> int:
    """Run the whole server until SIGINT or SIGTERM; call it from the main thread.

    Returns:
        The exit code: 0 after a signal.

    Raises:
        HomeUnusable: The home cannot be written.
        HomeInUse: Another server holds the home.
        PortTaken: Another program listens on the port.
        SchemaNewer: A newer pt2hub wrote the database.
        NamespacesRefused: The embedded PostgreSQL cannot run as root here.
        DatabaseUnavailable: The database does not answer, or ended again and again.
        BadConfiguration, StorageUnsafe, StorageUnavailable: The storage does not do what we rely on.
        BadConfiguration: Reads would be public to other machines, and only one setting says so.
        InternalError: The API or the worker did not start; the error carries the tail of its log.
    """
    chosen, interrupts = options or UpOptions(), Interrupts()
    with interrupts.install(), contextlib.suppress(Interrupted), ExitStack() as stack:
        # Signals are ignored while stopping: it takes bounded time, and a second Ctrl-C must not interrupt it.
        _serve(config, chosen, stack, interrupts)
    chosen.progress("stopped")
    return 0


def _serve(config: ServerConfig, options: UpOptions, stack: ExitStack, interrupts: Interrupts) -> NoReturn:
    """Start everything in order; the stack stops it in reverse order."""
    config.check_exposure()
    home = Home(config.home, config.client_settings)
    stack.enter_context(home.held())
    listeners = [
        stack.enter_context(opened)
        for opened in listen_for_each(config.host, config.port, processes=config.api_processes)
    ]
    probe = Probe(listeners[0])
    home.announce(probe.url)
    database = None if config.database_url else EmbeddedPostgres(home.database, pause=interrupts.pause)
    database_url = _start_database(database, options, stack) if database else str(config.database_url)
    options.progress("upgrading the database schema")
    interrupts.call(partial(migrations.upgrade, database_url))
    if database:
        interrupts.call(partial(worker_role.ensure, database_url))
    confined = confining(config.isolation, listeners[0])
    token = interrupts.call(partial(_prepare, config, database_url, confined, home, probe.url))
    probe.sign_in(home.settings_file.read().get("token"))
    environ = _environ(config, database_url, confined.worker)
    apis = api_services(
        listeners, environ, log=home.logs / "api.log", grace=config.grace_seconds, report=options.report
    )
    workers = _workers(
        config,
        options,
        environ | ({"PT2HUB_DATABASE_URL": database.worker_url} if database else {}),
    )
    _start_services(apis, options, stack, begins=f"starting the API on {probe.url}", ends="stopping the API")
    if workers:
        ends = f"stopping the worker; a running build is handed back ({_hand_back(config):g} s at most)"
        _start_services(workers, options, stack, begins=_WORKER_BEGINS, ends=ends)
    isolation = _await_services(apis, workers, probe, options, interrupts)
    if isolation == "process":
        _warn(config, options, confined)
    elif isolation == "sandbox" and confined.worker == "auto":
        interrupts.call(partial(_demand_sandbox, config, database_url))
    targets = interrupts.call(probe.live_targets)
    options.announce(
        Started(
            url=probe.url,
            home=str(home.path),
            storage=config.storage,
            targets=targets,
            isolation=isolation,
            settings=str(home.settings_file.path),
            token=token,
        )
    )
    watched = [Database(database, report=options.report, pause=interrupts.pause).tend] if database else []
    tend_all([*apis, *workers], *watched, pause=interrupts.pause)


def _prepare(
    config: ServerConfig, database_url: str, confined: IsolationSetup, home: Home, url: str
) -> str | None:
    """Check the storage, record the required isolation, and return a new admin token, if created."""
    with open_container(config, database_url=database_url) as container:
        container.health.check_storage()
        container.isolation.allow(confined.required)
        return _ensure_token(container, home, url)


def _warn(config: ServerConfig, options: UpOptions, confined: IsolationSetup) -> None:
    """Warn if models' code is not sandboxed, with the reason."""
    for line in warning(_worker_log(config) if confined.worker == "auto" else None):
        options.progress(line)


def _demand_sandbox(config: ServerConfig, database_url: str) -> None:
    """Require the sandbox from now on, since it works on this machine."""
    with open_container(config, database_url=database_url) as container:
        container.isolation.allow("sandbox")


def _start_database(database: EmbeddedPostgres, options: UpOptions, stack: ExitStack) -> str:
    options.progress("starting PostgreSQL")
    stack.callback(database.stop)
    stack.callback(options.progress, "stopping PostgreSQL")
    return database.start()


def _start_services(
    services: list[Service], options: UpOptions, stack: ExitStack, *, begins: str, ends: str
) -> None:
    options.progress(begins)
    stack.callback(stop_all, services)
    for service in services:
        service.start()
    stack.callback(options.progress, ends)


def _ensure_token(container: Container, home: Home, url: str) -> str | None:
    """Write the client's settings; create a token unless they contain a valid one, and return a new token."""
    known = home.settings_file.read().get("token")
    if isinstance(known, str):
        with contextlib.suppress(Unauthorized):
            container.access.verify(known)
            home.settings_file.write(url=url)
            return None
    made = container.access.create_token("up", admin=True, by=operator())
    home.settings_file.write(url=url, token=made)
    return made


def _environ(config: ServerConfig, database_url: str, isolation: str) -> dict[str, str]:
    """Return the children's environment: settings that this process decided override their own."""
    return os.environ | {
        "PT2HUB_HOME": str(config.home),
        "PT2HUB_DATABASE_URL": database_url,
        "PT2HUB_STORAGE": config.storage,
        "PT2HUB_ISOLATION": isolation,
        "PT2HUB_READ": config.reading,
        # Who presses Ctrl-C does not want to wait for a compile; the build goes on at the next start.
        "PT2HUB_DRAIN_SECONDS": f"{config.drain_seconds or 0:g}",
    }


def _workers(config: ServerConfig, options: UpOptions, environ: dict[str, str]) -> list[Service]:
    if not options.worker:
        return []
    log = _worker_log(config)
    # Workers run models' code, and sign nobody in.
    environ = {name: value for name, value in environ.items() if not name.startswith("PT2HUB_OIDC_")}
    return [worker_service(environ, log=log, drain=config.drain_seconds or 0, report=options.report)]


def _worker_log(config: ServerConfig) -> Path:
    return Home(config.home).logs / "worker.log"


def _hand_back(config: ServerConfig) -> float:
    return HAND_BACK_SECONDS + (config.drain_seconds or 0)


def _await_services(
    apis: list[Service], workers: list[Service], probe: Probe, options: UpOptions, interrupts: Interrupts
) -> str | None:
    """Wait until the API is ready and the worker registered, and return the worker's isolation."""
    for api in apis:
        await_service(api, probe.ready, options.api_seconds, interrupts)
    found = [
        await_service(worker, partial(probe.isolation_of, worker.pid), options.worker_seconds, interrupts)
        for worker in workers
    ]
    return found[0] if found else None
