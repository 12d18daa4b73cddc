"""A real PostgreSQL for the tests: one server per session, a fresh database per test."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import psycopg
import pytest

from pt2hub.server.db import migrations
from pt2hub.server.db.embedded import EmbeddedPostgres

if TYPE_CHECKING:
    from collections.abc import Iterator

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedPostgres]:
    """The session's server."""
    with EmbeddedPostgres(tmp_path_factory.mktemp("pg"), durable=False) as server:
        with psycopg.connect(
            server.url, autocommit=True
        ) as connection:  # no vacuum through a thousand databases
            connection.execute("ALTER SYSTEM SET autovacuum = off")
            connection.execute("SELECT pg_reload_conf()")
        yield server


def create_database(postgres: EmbeddedPostgres, *, template: str = "template1") -> str:
    """Creates a database and returns its URL."""
    name = f"test_{next(_numbers)}"
    with psycopg.connect(postgres.url, autocommit=True) as connection:
        # A copy of files takes half the time of a copy through the log.
        connection.execute(f"CREATE DATABASE {name} TEMPLATE {template} STRATEGY file_copy")
    return postgres.url.replace("/pt2hub?", f"/{name}?")


def drop_database(postgres: EmbeddedPostgres, url: str) -> None:
    """Drops a test's database: a thousand of them fill ten gigabytes."""
    name = url.partition("?")[0].rpartition("/")[2]
    with psycopg.connect(postgres.url, autocommit=True) as connection:
        connection.execute(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture
def database_url(postgres: EmbeddedPostgres) -> Iterator[str]:
    """URL of an empty database of its own."""
    url = create_database(postgres)
    yield url
    drop_database(postgres, url)


@pytest.fixture(scope="session")
def migrated_template(postgres: EmbeddedPostgres) -> str:
    """Name of a migrated database that others are copied from: ten times faster than migrating each."""
    url = create_database(postgres)
    migrations.upgrade(url)
    return url.partition("?")[0].rpartition("/")[2]


@pytest.fixture
def migrated_url(postgres: EmbeddedPostgres, migrated_template: str) -> Iterator[str]:
    """URL of a migrated, empty database of its own."""
    url = create_database(postgres, template=migrated_template)
    yield url
    drop_database(postgres, url)
