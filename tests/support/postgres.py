"""A real PostgreSQL for the tests: one server per session, an empty database per test."""

from __future__ import annotations

import itertools
import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import psycopg
import pytest

from pt2hub.server.db import migrations, worker_role
from pt2hub.server.db.embedded import EmbeddedPostgres
from pt2hub.server.db.worker_role import DEFAULT_ROLE

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

_numbers = itertools.count(1)
MAX_USES = 40
"""Tests that use a database after one another: deleted rows stay in its files, and slow later ones down."""
QUIET_TIMEOUT_S = 0.2
"""Time that closed connections have to be gone from the server."""
_CATALOGS = [
    "pg_attrdef",
    "pg_attribute",
    "pg_class",
    "pg_constraint",
    "pg_enum",
    "pg_extension",
    "pg_index",
    "pg_namespace",
    "pg_proc",
    "pg_rewrite",
    "pg_sequence",
    "pg_statistic",
    "pg_trigger",
    "pg_type",
]
"""PostgreSQL's tables of everything in a schema, and of the planner's statistics."""
_COUNT = "SELECT count(*), max(xmin::text::bigint) FROM {}"
"""A new or changed row has a newer `xmin`."""
_SETTINGS = """
SELECT count(*), 0 FROM pg_db_role_setting s JOIN pg_database d ON d.oid = s.setdatabase
WHERE datname = current_database()
"""
_TABLES = """
SELECT format('%I.%I', n.nspname, c.relname) FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind = 'r' AND n.nspname NOT IN ('pg_catalog', 'information_schema') ORDER BY 1
"""
_EMPTY = """
DO $$
DECLARE name text; has_rows boolean;
BEGIN
    SET LOCAL session_replication_role = replica;
    FOREACH name IN ARRAY ARRAY[{tables}]::text[] LOOP
        EXECUTE 'SELECT EXISTS (SELECT FROM ' || name || ')' INTO has_rows;
        IF has_rows THEN EXECUTE 'DELETE FROM ' || name; END IF;
    END LOOP;
    PERFORM setval(format('%I.%I', schemaname, sequencename)::regclass, start_value, false)
    FROM pg_sequences WHERE last_value IS NOT NULL;
END $$
"""
"""Deletes all rows without triggers, foreign keys' among them, and lets sequences begin again."""


@pytest.fixture(scope="session")
def postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedPostgres]:
    """The session's server."""
    with EmbeddedPostgres(tmp_path_factory.mktemp("pg"), durable=False) as server:
        with psycopg.connect(
            server.url, autocommit=True
        ) as connection:  # no vacuum through a thousand databases
            connection.execute("ALTER SYSTEM SET autovacuum = off")
            connection.execute(f"CREATE ROLE {DEFAULT_ROLE} LOGIN")
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
    CONSOLE.close()
    with psycopg.connect(postgres.url, autocommit=True) as connection:
        connection.execute(f"DROP DATABASE {_name(url)} WITH (FORCE)")


def _name(url: str) -> str:
    return url.partition("?")[0].rpartition("/")[2]


@pytest.fixture
def database_url(postgres: EmbeddedPostgres) -> Iterator[str]:
    """URL of an empty database of its own."""
    url = create_database(postgres)
    yield url
    drop_database(postgres, url)


@pytest.fixture
def empty_url(postgres: EmbeddedPostgres) -> Iterator[str]:
    """URL of another empty database."""
    url = create_database(postgres)
    yield url
    drop_database(postgres, url)


@pytest.fixture(scope="session")
def migrated_template(postgres: EmbeddedPostgres) -> str:
    """Name of a migrated database that others are copied from: ten times faster than migrating each."""
    url = create_database(postgres)
    migrations.upgrade(url)
    worker_role.ensure(url)
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("DELETE FROM server_settings")  # a test that sets one would cost its database
    return _name(url)


@dataclass
class DatabasePool:
    """Migrated databases that are emptied and used again: ten times faster than a copy of the template.

    A database gets a new name for each test, so that nothing that outlives a test finds the next one's rows. A database
    is dropped where a connection outlives its test, or where a test changed the schema, the statistics of the planner
    or the rows that migrations wrote.

    Attributes:
        free: Names of empty databases, with the number of tests that used each.
    """

    postgres: EmbeddedPostgres
    template: str
    free: list[tuple[str, int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Connects to the server, and notes the template's state, which nothing connects to afterwards."""
        self._server = psycopg.connect(self.postgres.url, autocommit=True)
        with psycopg.connect(self._url(self.template), autocommit=True) as connection:
            tables = [row[0] for row in connection.execute(_TABLES)]
            self._written = [
                name for name in tables if connection.execute(f"SELECT FROM {name} LIMIT 1").rowcount
            ]
            self._tables = [name for name in tables if name not in self._written]
            self._state = self._state_of(connection)

    def take(self) -> tuple[str, int]:
        """Return the URL of an empty database, and the number of tests that used it before."""
        if not self.free:
            return create_database(self.postgres, template=self.template), 0
        old, uses = self.free.pop()
        name = f"test_{next(_numbers)}"
        _wait_until_quiet(self._server, old)  # for the connection that emptied it
        self._server.execute(f"ALTER DATABASE {old} RENAME TO {name}")
        return self._url(name), uses

    def give_back(self, url: str, uses: int) -> None:
        """Empty a database for the next test, or drop it."""
        if uses < MAX_USES and _wait_until_quiet(self._server, _name(url)) and self._empty(url):
            self.free.append((_name(url), uses))
        else:
            drop_database(self.postgres, url)

    def close(self) -> None:
        """Close the connection to the server."""
        self._server.close()

    def _empty(self, url: str) -> bool:
        """Delete all rows; return whether the database is as a copy of the template."""
        with psycopg.connect(url, autocommit=True) as connection:
            if self._state_of(connection) != self._state:
                return False
            names = ", ".join(f"'{name}'" for name in self._tables)
            connection.execute(_EMPTY.replace("{tables}", names).encode())
        return True

    def _state_of(self, connection: psycopg.Connection[tuple[object, ...]]) -> list[tuple[object, ...]]:
        """Return what tells a changed schema, changed statistics and changed rows of migrations from a copy."""
        parts = [_SETTINGS, *(_COUNT.format(name) for name in (*_CATALOGS, *self._written))]
        return connection.execute(" UNION ALL ".join(parts).encode()).fetchall()

    def _url(self, name: str) -> str:
        return self.postgres.url.replace("/pt2hub?", f"/{name}?")


class Console:
    """A connection to the database of the present test, for its own statements: opening one takes longer than most of them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._url = ""
        self._connection: psycopg.Connection[tuple[Any, ...]] | None = None

    def run(self, url: str, statement: str, values: tuple[Any, ...]) -> list[tuple[Any, ...]]:
        """Run a statement in a transaction of its own; return its rows, if it has any."""
        with self._lock:
            try:
                cursor = self._connect(url).execute(statement.encode(), values)
            except psycopg.OperationalError:
                if self._connection and not self._connection.closed:
                    raise
                cursor = self._connect(url).execute(statement.encode(), values)  # a test cut all connections
            return cursor.fetchall() if cursor.description else []

    def close(self) -> None:
        """Close the connection, so that its database can be emptied, copied or dropped."""
        with self._lock:
            self._close()

    def _connect(self, url: str) -> psycopg.Connection[tuple[Any, ...]]:
        if self._connection is None or self._connection.closed or url != self._url:
            self._close()
            # Nothing is prepared: tests change tables between two equal statements.
            self._connection = psycopg.connect(url, autocommit=True, prepare_threshold=None)
            self._url = url
        return self._connection

    def _close(self) -> None:
        if self._connection is not None:
            self._connection.close()
        self._connection = None


CONSOLE = Console()


def _wait_until_quiet(connection: psycopg.Connection[tuple[object, ...]], name: str) -> bool:
    """Return whether no connection to a database is left, after some time where need be."""
    deadline = time.monotonic() + QUIET_TIMEOUT_S
    while connection.execute("SELECT FROM pg_stat_activity WHERE datname = %s", [name]).rowcount:
        if time.monotonic() > deadline:
            return False
        time.sleep(0.002)
    return True


@pytest.fixture(scope="session")
def database_pool(postgres: EmbeddedPostgres, migrated_template: str) -> Iterator[DatabasePool]:
    """The session's migrated databases."""
    pool = DatabasePool(postgres, migrated_template)
    yield pool
    pool.close()


@pytest.fixture
def migrated_url(database_pool: DatabasePool) -> Iterator[str]:
    """URL of a migrated, empty database of its own."""
    url, uses = database_pool.take()
    yield url
    CONSOLE.close()
    database_pool.give_back(url, uses + 1)
