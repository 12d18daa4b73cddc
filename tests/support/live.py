"""The API behind a real socket, for the client's tests."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest
from structlog.testing import capture_logs
from werkzeug.serving import WSGIRequestHandler, make_server

from pt2hub.client.client import Client
from pt2hub.client.config import ClientConfig
from pt2hub.server.api import waits
from pt2hub.server.api.app import create_app
from support.registry import Registry

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pt2hub.server.config import ServerConfig
    from pt2hub.server.container import Container


class _Quiet(WSGIRequestHandler):
    def log_request(self, *args: object) -> None:
        pass


@pytest.fixture
def served(container: Container, config: ServerConfig) -> Registry:
    """The services behind `url`, with a test's handles on them."""
    return Registry(container, str(config.database_url))


@pytest.fixture
def url(container: Container, config: ServerConfig) -> Iterator[str]:
    """Address of a running API."""
    with serving(container, config) as url:
        yield url


@contextmanager
def serving(container: Container, config: ServerConfig) -> Iterator[str]:
    """Address of an API that runs meanwhile."""
    app = create_app(container, config)
    server = make_server("127.0.0.1", 0, app, threaded=True, request_handler=_Quiet)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    with capture_logs():  # in production they go to a file of the API's process, never to a client's stdout
        yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()
    waits.stop(app)


@pytest.fixture
def client(tmp_path: Path, url: str, container: Container) -> Iterator[Client]:
    """A client that may publish."""
    token = container.access.create_token("client", admin=True)  # as `pt2hub up` writes one
    with Client(ClientConfig(home=tmp_path / "client", url=url, token=token)) as client:
        yield client
