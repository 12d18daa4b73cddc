"""`pt2hub api`: the API alone in the foreground, for containers and service managers.

It keeps nothing on this machine: no home, no token, no files. Its processes log to its own output.
"""

from __future__ import annotations

import contextlib
import os
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import structlog

from pt2hub.errors import BadConfiguration
from pt2hub.server.startup_barrier import StartupBarrier
from pt2hub.server.up.children import api_services, await_service
from pt2hub.server.up.port import Probe, listen_for_each
from pt2hub.server.up.supervised_services import stop_all, tend_all
from pt2hub.system import logging_setup
from pt2hub.system.interrupts import Interrupted, Interrupts

if TYPE_CHECKING:
    from collections.abc import Callable

    from pt2hub.domain.workers import Required
    from pt2hub.server.config import ServerConfig
    from pt2hub.server.up.supervised_services import Service

_START_SECONDS = 60.0
_log = structlog.get_logger(__name__)


def run_api(config: ServerConfig, *, announce: Callable[[dict[str, Any]], None] | None = None) -> int:
    """Run the API until SIGINT or SIGTERM; call it from the main thread.

    Pending requests are finished within `grace_seconds` after the signal; later connections are refused.

    Args:
        config: The server's settings; they must name a database and a storage.
        announce: Called with the API's URL once it responds.

    Returns:
        The exit code: 0 after a signal.

    Raises:
        BadConfiguration: A setting is missing, or the storage cannot be written with those that are there.
        SchemaOlder: The database must be upgraded first.
        SchemaNewer: A newer pt2hub wrote the database.
        DatabaseUnavailable: The database does not answer.
        StorageUnsafe, StorageUnavailable: The storage lacks a guarantee or does not respond.
        PortTaken: Another program listens on the port.
        InternalError: The API did not start.
    """
    logging_setup.configure()
    config.check_exposure()
    database_url, demanded, interrupts = _database_of(config), _demanded_of(config), Interrupts()
    with interrupts.install(), contextlib.suppress(Interrupted), ExitStack() as stack:
        listeners = listen_for_each(config.host, config.port, processes=config.api_processes)
        barrier = StartupBarrier()
        # The children do not know the address that was given on the command line.
        environ = os.environ | {"PT2HUB_READ": config.reading}
        services = api_services(
            listeners, environ, log=None, grace=config.grace_seconds, report=_log.warning, barrier=barrier
        )
        stack.callback(stop_all, services)
        stack.enter_context(barrier)  # closed first: those that wait for it leave at once
        for listener in listeners:
            stack.enter_context(
                listener
            )  # closed before the processes stop: who comes later is refused at once
        for service in services:
            service.start()  # they import for a second or two, while the checks do the same
        interrupts.call(partial(_check, config, database_url, demanded))
        barrier.open()
        try:
            _serve(services, Probe(listeners[0]), announce, interrupts)
        finally:
            _log.info("the API stops", grace_seconds=config.grace_seconds)
    return 0


def _check(config: ServerConfig, database_url: str, demanded: Required) -> None:
    from pt2hub.server.container import open_container
    from pt2hub.server.db import migrations

    migrations.require(database_url)
    with open_container(config, database_url=database_url) as container:
        container.health.check_storage()
        container.isolation.allow(demanded)


def _serve(
    services: list[Service],
    probe: Probe,
    announce: Callable[[dict[str, Any]], None] | None,
    interrupts: Interrupts,
) -> NoReturn:
    for service in services:
        await_service(service, probe.alive, _START_SECONDS, interrupts)
    _log.info("the API answers", url=probe.url, processes=len(services))
    if announce:
        announce({"url": probe.url, "processes": len(services)})
    tend_all(services, pause=interrupts.pause)


def _database_of(config: ServerConfig) -> str:
    if not config.database_url:
        raise BadConfiguration(
            "pt2hub api requires the URL of a database.",
            where="PT2HUB_DATABASE_URL",
            hint="Use postgresql://user@host/database, or run pt2hub up, which includes a database.",
        )
    if config.storage_is_own:
        raise BadConfiguration(
            "pt2hub api requires a storage that it shares with the workers.",
            where="PT2HUB_STORAGE",
            hint="Use s3://bucket/prefix or a directory that all machines share.",
        )
    if "://" not in config.storage and not Path(config.storage).is_dir():
        raise BadConfiguration(  # creating it would hide that a share is not mounted
            f"Storage directory {config.storage} not found.",
            where="PT2HUB_STORAGE",
            hint="Mount it, or create it if the path is correct; blobs in another directory are not found here.",
        )
    return config.database_url


def _demanded_of(config: ServerConfig) -> Required:
    if config.isolation == "auto":
        raise BadConfiguration(
            "auto is only valid for workers and pt2hub up; the API must require one isolation of all workers.",
            where="PT2HUB_ISOLATION",
            hint="Use sandbox, the default, or process if you trust everyone who can publish.",
        )
    return "process" if config.isolation == "process" else "sandbox"
