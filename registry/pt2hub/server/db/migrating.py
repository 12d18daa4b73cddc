"""The database's schema: where its revisions are, and applying them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import alembic.command
import alembic.config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import text

from pt2hub.errors import InternalError, SchemaNewer, SchemaOlder
from pt2hub.server.db import engine as engines

if TYPE_CHECKING:
    from collections.abc import Iterable

    import sqlalchemy

_LOCK = 8400_0001
"""Key of the advisory lock that lets one process at a time upgrade."""
_WAIT_FOR_OTHERS = "120s"
_TIMEOUTS = "SET lock_timeout = '5s'; SET statement_timeout = '60s'"
"""A revision that waits for a lock blocks every query behind it, so it gives up early; the next try is free."""


def migrations_directory(package: Path = Path(__file__).parent) -> Path:
    """Where Alembic's files are.

    Args:
        package: The folder of this package, for tests.

    Returns:
        The folder that a built wheel carries beside this file, else the checkout's `migrations/`.

    Raises:
        InternalError: Neither is there.
    """
    carried = package / "migrations"
    # This file lies in registry/pt2hub/server/db of a checkout.
    for directory in (carried, *(parent / "migrations" for parent in list(package.parents)[3:4])):
        if (directory / "env.py").is_file():
            return directory
    raise InternalError(
        "The database's migrations are missing from this installation",
        where=str(carried),
        hint="Install pt2hub again from a wheel, or run it from a whole checkout.",
    )


def upgrade(database_url: str) -> None:
    """Brings the schema to the newest revision; safe while other processes do the same.

    Args:
        database_url: `postgresql://...`.

    Raises:
        SchemaNewer: The database was written by a newer pt2hub.
        DatabaseUnavailable: The database did not answer, or a table stayed locked.
    """
    with engines.translated(), engines.connected(database_url) as connection:
        # Held by the session, not by a transaction: each revision commits on its own.
        connection.execute(text(f"SET lock_timeout = '{_WAIT_FOR_OTHERS}'; SET statement_timeout = 0"))
        connection.execute(text("SELECT pg_advisory_lock(:key)"), {"key": _LOCK})
        connection.execute(text(_TIMEOUTS))
        connection.commit()
        _refuse_newer(connection)
        connection.commit()
        alembic.command.upgrade(configuration(connection), "head")


def check(database_url: str) -> bool:
    """Whether the schema is at the newest revision.

    Args:
        database_url: `postgresql://...`.

    Raises:
        SchemaNewer: The database was written by a newer pt2hub.
        DatabaseUnavailable: The database did not answer.
    """
    with engines.translated(), engines.connected(database_url) as connection:
        current = _refuse_newer(connection)
        return current == set(ScriptDirectory(str(migrations_directory())).get_heads())


def require(database_url: str) -> None:
    """Refuses a database whose schema is not the one of this pt2hub; changes nothing.

    Args:
        database_url: `postgresql://...`.

    Raises:
        SchemaOlder: It lacks revisions.
        SchemaNewer: The database was written by a newer pt2hub.
        DatabaseUnavailable: The database did not answer.
    """
    found = current(database_url)
    needed = _listed(ScriptDirectory(str(migrations_directory())).get_heads())
    if found != needed:
        stands = f"at revision {found}" if found else "empty"
        raise SchemaOlder(
            f"The database's schema is {stands}; this pt2hub needs revision {needed}",
            where="PT2HUB_DATABASE_URL",
            hint="Upgrade it first, once and on any machine that reaches it: pt2hub admin migrate",
        )


def current(database_url: str) -> str:
    """The revision that the schema is at, empty for an empty database.

    Args:
        database_url: `postgresql://...`.

    Raises:
        SchemaNewer: The database was written by a newer pt2hub.
        DatabaseUnavailable: The database did not answer.
    """
    with engines.translated(), engines.connected(database_url) as connection:
        return _listed(_refuse_newer(connection))


def _listed(revisions: Iterable[str]) -> str:
    return ", ".join(sorted(revisions))


def configuration(connection: sqlalchemy.Connection) -> alembic.config.Config:
    """Alembic's settings without a file; `env.py` takes the connection from them."""
    config = alembic.config.Config(attributes={"connection": connection})
    config.set_main_option("script_location", str(migrations_directory()).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    return config


def _refuse_newer(connection: sqlalchemy.Connection) -> set[str]:
    known = {item.revision for item in ScriptDirectory(str(migrations_directory())).walk_revisions()}
    current = set(MigrationContext.configure(connection).get_current_heads())
    if unknown := sorted(current - known):
        raise SchemaNewer(
            f"The database's schema is at revision {', '.join(unknown)}, which this pt2hub does not know",
            where="PT2HUB_DATABASE_URL",
            hint="Start the newer pt2hub that wrote it, or use another database.",
        )
    return current
