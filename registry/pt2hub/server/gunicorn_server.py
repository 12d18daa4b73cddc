"""An API process under gunicorn.

The supervisor opens the socket, so that the port is reserved before anything else starts and connections wait in its
backlog while this process is replaced.
"""

from __future__ import annotations

import argparse
import atexit
import math
import os
import sys
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import structlog
from gunicorn.app.base import BaseApplication
from gunicorn.errors import AppImportError
from gunicorn.glogging import Logger
from gunicorn.http import message

from pt2hub.errors import BadConfiguration, Pt2hubError, TransientError
from pt2hub.server.api import request_bodies
from pt2hub.server.api.app import create_app
from pt2hub.server.api.gunicorn_worker import GunicornWorker
from pt2hub.server.config import ServerConfig
from pt2hub.server.container import open_container
from pt2hub.server.pages.installation import install
from pt2hub.server.reaper import Reaper
from pt2hub.server.startup_barrier import may_serve
from pt2hub.server.webhook_thread import WebhookThread
from pt2hub.system import interrupts, logging_setup

if TYPE_CHECKING:
    from collections.abc import Mapping
    from wsgiref.types import WSGIApplication

    from flask import Flask

    from pt2hub.server.container import Container

_log = structlog.get_logger(__name__)
THREADS = 16
"""For requests that have arrived; uploads have others (`gunicorn_worker.BODY_THREADS`)."""
_MAX_LINE_BYTES = 1 << 16
"""Bytes of an address that are read, several times those that the application takes: it says so to its readers, in a
page or a problem document, where gunicorn knows only that a line is too long."""


class _Log(Logger):  # type: ignore[misc]  # gunicorn publishes no types
    """gunicorn logger that uses the process's log format."""

    def setup(self, cfg: Any) -> None:
        super().setup(cfg)
        for log in (self.error_log, self.access_log):
            log.handlers.clear()
            log.propagate = True


_SETTINGS: dict[str, Any] = {
    "worker_class": GunicornWorker,
    "logger_class": _Log,
    "workers": 1,  # further processes are started next to this one, each with its own socket
    "threads": THREADS,
    "keepalive": 75,
    "timeout": 60,
    "limit_request_line": _MAX_LINE_BYTES,
    "loglevel": "warning",
    "control_socket_disable": True,  # it would lie in the user's home directory, which is not ours
    "preload_app": False,  # each process opens its own connections: none may be shared across a fork
    "pre_request": request_bodies.hold,
    "when_ready": lambda _arbiter: interrupts.release(),  # its handlers stand, and nothing was forked yet
    "forwarder_headers": "",  # else a header moves a request to a path that the proxy's own rules never saw
}


def application(environ: Mapping[str, str]) -> Flask:
    """Create the application for an environment; it is closed when the process exits.

    Args:
        environ: Usually `os.environ`; `PT2HUB_DATABASE_URL` must be set.

    Raises:
        BadConfiguration: A setting is wrong, no database is named, or the storage cannot be written with the settings.
        StorageUnsafe: The storage does not keep a promise that we rely on.
    """
    config = ServerConfig.from_environ(environ)
    if not config.database_url:
        raise BadConfiguration(
            "The database URL is required.",
            where="PT2HUB_DATABASE_URL",
            hint="Set it, or run pt2hub up, which includes a database.",
        )
    stack = ExitStack()
    atexit.register(stack.close)
    container = stack.enter_context(open_container(config, database_url=config.database_url))
    _try_storage(container)
    app = create_app(container, config)
    install(app)
    reaper = Reaper(container, heartbeat_timeout=config.lost_worker_seconds, every=config.heartbeat_seconds)
    stack.callback(reaper.stop)
    reaper.start()
    deliveries = WebhookThread(container)
    stack.callback(deliveries.stop)
    deliveries.start()
    return app


def _try_storage(container: Container) -> None:
    """Check the storage. An unavailable one does not prevent the start, since most reads do not need it."""
    try:
        container.health.check_storage()
        container.storage_acquaintance.check()
    except TransientError as error:
        _log.warning("not ready: the storage has not been checked yet", code=error.code, error=error.message)


class _Server(BaseApplication):  # type: ignore[misc]  # gunicorn publishes no types
    def __init__(self, bind: str, config: ServerConfig) -> None:
        self._chosen = {
            "bind": bind,
            "graceful_timeout": math.ceil(config.grace_seconds),
            "forwarded_allow_ips": ",".join(config.trusted_proxies),
        }
        super().__init__()

    def load_config(self) -> None:
        message.MAX_REQUEST_LINE = _MAX_LINE_BYTES  # gunicorn takes no setting above it but "without bound"
        for name, value in (_SETTINGS | self._chosen).items():
            if name in self.cfg.settings:  # older releases lack some
                self.cfg.set(name, value)

    def load(self) -> WSGIApplication:
        logging_setup.configure()
        try:
            return request_bodies.expect_body(application(os.environ))
        except Pt2hubError as error:  # gunicorn prints it as it is, and does not try again
            raise AppImportError(f"pt2hub api: {error}\n  [{error.code}]") from error


def main() -> int:
    """Serve until a signal; return the exit code if the start fails."""
    parser = argparse.ArgumentParser(prog="python -m pt2hub.server.serve", description=__doc__)
    parser.add_argument("--fd", type=int, required=True, help="file descriptor of the listening socket")
    parser.add_argument("--barrier", type=int, help="file descriptor of the startup barrier")
    given = parser.parse_args()
    if given.barrier is not None and not may_serve(given.barrier):
        return 0  # the supervisor says why
    logging_setup.configure()
    try:
        config = ServerConfig.from_environ(os.environ)
    except Pt2hubError as error:
        print(f"pt2hub api: {error}", file=sys.stderr)
        return 1
    _Server(f"fd://{given.fd}", config).run()
    return 0
