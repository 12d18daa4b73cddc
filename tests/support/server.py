"""The server's parts for the tests: a container over a migrated database, the API in front."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pt2hub.server.api.app import create_app
from pt2hub.server.config import ServerConfig
from pt2hub.server.container import Container, open_container
from support.registry import SILENCE

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from flask.testing import FlaskClient

MAX_BLOB_BYTES = 1 << 20


@pytest.fixture
def config(tmp_path: Path, migrated_url: str) -> ServerConfig:
    """Settings of a server with a local storage."""
    return ServerConfig(
        home=tmp_path / "home",
        storage=str(tmp_path / "blobs"),
        database_url=migrated_url,
        max_blob_bytes=MAX_BLOB_BYTES,
        lost_worker_seconds=SILENCE.total_seconds(),
    )


@pytest.fixture
def container(config: ServerConfig) -> Iterator[Container]:
    """The services over a real database and a local storage."""
    with open_container(config, database_url=str(config.database_url)) as container:
        yield container


@pytest.fixture
def api(container: Container, config: ServerConfig) -> FlaskClient:
    """A client of the API, without a token."""
    return create_app(container, config).test_client()


@pytest.fixture
def bearer(container: Container) -> dict[str, str]:
    """Headers that may change things."""
    return {"Authorization": f"Bearer {container.access.create_token('test')}"}
