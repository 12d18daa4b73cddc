from __future__ import annotations

from typing import TYPE_CHECKING

import psycopg
import pytest

from pt2hub.domain.tokens import SERVER
from pt2hub.errors import BadConfiguration
from pt2hub.server.config import ServerConfig
from pt2hub.server.container import open_container
from support.registry import V4, a_spec

if TYPE_CHECKING:
    from pathlib import Path


def test_a_container_serves_and_leaves_no_connection_behind(migrated_url: str, tmp_path: Path) -> None:
    config = ServerConfig(home=tmp_path, storage=str(tmp_path / "blobs"))
    with open_container(config, database_url=migrated_url) as services:
        view = services.publish.submit(a_spec(), by=SERVER)
        assert view.builds[0].target == V4
    with psycopg.connect(migrated_url) as connection:
        others = connection.execute(
            "SELECT count(*) FROM pg_stat_activity "
            "WHERE datname = current_database() AND pid <> pg_backend_pid()"
        ).fetchone()
    assert others == (0,)


def test_an_unreadable_database_address_is_a_wrong_setting(tmp_path: Path) -> None:
    config = ServerConfig(home=tmp_path, storage=str(tmp_path / "blobs"))
    with (
        pytest.raises(BadConfiguration),
        open_container(config, database_url="postgresql://host/x?nonsense=1"),
    ):
        pass
