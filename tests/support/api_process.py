"""The API as it runs in production: gunicorn in a process of its own, spoken to over raw sockets."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import sys
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pt2hub.server.config import ServerConfig
from pt2hub.server.container import open_container
from pt2hub.server.up.port import listen
from pt2hub.system.processes import spawn
from support.postgres import create_database
from support.registry import SILENCE, Registry

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from contextlib import AbstractContextManager

    from pt2hub.server.db.embedded import EmbeddedPostgres


@dataclass(frozen=True)
class ApiProcess:
    """A running API, and a test's handles on it."""

    port: int
    pid: int
    token: str
    registry: Registry
    folder: Path

    @property
    def log(self) -> str:
        """What its processes wrote."""
        return (self.folder / "api.log").read_text()

    def stored(self) -> list[Path]:
        """Every file of the storage but the journal, which is written beside requests, as the API's own process sees it."""
        root = Path(f"/proc/{self.pid}/root{self.folder}/blobs")
        journal = root / "journal"
        return [path for path in root.rglob("*") if path.is_file() and journal not in path.parents]

    def head(self, method: str, path: str, *headers: str, token: bool = True) -> bytes:
        """The headers of a request."""
        lines = [f"{method} {path} HTTP/1.1", "Host: registry.example:8400", *headers]
        lines += [f"Authorization: Bearer {self.token}"] if token else []
        return "\r\n".join([*lines, "", ""]).encode()

    def connect(self) -> socket.socket:
        """A connection of its own."""
        return socket.create_connection(("127.0.0.1", self.port), timeout=20)

    def ask(self, method: str, path: str, **headers: str) -> tuple[http.client.HTTPResponse, bytes]:
        """An answer and its body."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)
        try:
            connection.request(method, path, headers=headers)
            response = connection.getresponse()
            return response, response.read()
        finally:
            connection.close()


def answer(connection: socket.socket) -> tuple[int, dict[str, Any]]:
    """Status and JSON of the answer that comes over a connection."""
    response = http.client.HTTPResponse(connection)
    response.begin()
    return response.status, json.loads(response.read())


@contextmanager
def running_api(
    folder: Path, database_url: str, *, before: Sequence[str] = (), **settings: str
) -> Iterator[ApiProcess]:
    """Runs the API.

    Args:
        folder: For its storage and its log.
        database_url: A migrated database.
        before: Words in front of its command line, for another namespace.
        settings: Further variables.
    """
    (folder / "blobs").mkdir(exist_ok=True)
    (folder / "tmp").mkdir()
    given = {
        "PT2HUB_HOME": str(folder / "home"),
        "PT2HUB_STORAGE": str(folder / "blobs"),
        "PT2HUB_DATABASE_URL": database_url,
        "PT2HUB_LOST_WORKER_SECONDS": str(SILENCE.total_seconds()),
    } | settings
    environ = os.environ | given | {"PYTHONPATH": os.pathsep.join(sys.path), "TMPDIR": str(folder / "tmp")}
    config = ServerConfig.from_environ(given)
    with listen("127.0.0.1", 0) as listener, open_container(config, database_url=database_url) as container:
        number = listener.fileno()
        argv = [*before, sys.executable, "-m", "pt2hub.server.serve", "--fd", str(number)]
        child = spawn(argv, log=folder / "api.log", environ=environ, keep_open=[number])
        try:
            made = ApiProcess(
                listener.getsockname()[1],
                child.pid,
                container.access.create_token("test"),
                Registry(container, database_url),
                folder,
            )
            made.ask("GET", "/healthz")
            yield made
        finally:
            child.stop((signal.SIGTERM, 10))


@pytest.fixture(scope="module")
def start_api(
    tmp_path_factory: pytest.TempPathFactory, postgres: EmbeddedPostgres, migrated_template: str
) -> Callable[..., AbstractContextManager[ApiProcess]]:
    """Starts an API over a database of its own, with settings such as `PT2HUB_MAX_WAITS=18`."""

    def start(**settings: str) -> AbstractContextManager[ApiProcess]:
        url = create_database(postgres, template=migrated_template)
        return running_api(tmp_path_factory.mktemp("api"), url, **settings)

    return start


@pytest.fixture(scope="module")
def own_api(start_api: Callable[..., AbstractContextManager[ApiProcess]]) -> Iterator[ApiProcess]:
    """An API that the tests of one file have for themselves, with nothing in it at first."""
    with start_api() as running:
        yield running
