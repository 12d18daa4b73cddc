"""Schema revisions of the database, and their application."""

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
from pt2hub.server.db import worker_role

if TYPE_CHECKING:
    from collections.abc import Iterable

    import sqlalchemy

_LOCK = 8400_0001
"""Key of the advisory lock that lets one process at a time upgrade the schema."""
_WAIT_FOR_OTHERS = "120s"
_TIMEOUTS = "SET lock_timeout = '5s'; SET statement_timeout = '60s'"
"""A revision that waits for a lock blocks every query behind it, so it gives up early and can be tried again."""


def migrations_directory(package: Path = Path(__file__).parent) -> Path:
    """Return the folder of Alembic's files.

    Returns:
        The folder next to this file in a wheel, else the checkout's `migrations/`.

    Raises:
        InternalError: Neither exists.
    """
    carried = package / "migrations"
    # This file lies in registry/pt2hub/server/db of a checkout.
    for directory in (carried, *(parent / "migrations" for parent in list(package.parents)[3:4])):
        if (directory / "env.py").is_file():
            return directory
    raise InternalError(
        "The database's migrations are missing from this installation",
        where=str(carried),
        hint="Reinstall pt2hub from a wheel, or run it from a complete checkout.",
    )


def upgrade(database_url: str) -> None:
    """Upgrade the schema to the newest revision; safe to run concurrently.

    Raises:
        SchemaNewer: The database was written by a newer pt2hub.
        DatabaseUnavailable: The database did not answer, or a table stayed locked.
    """
    with engines.translate_errors(), engines.connect(database_url) as connection:
        # Locked by the session and not by a transaction: each revision commits on its own.
        connection.execute(text(f"SET lock_timeout = '{_WAIT_FOR_OTHERS}'; SET statement_timeout = 0"))
        connection.execute(text("SELECT pg_advisory_lock(:key)"), {"key": _LOCK})
        connection.execute(text(_TIMEOUTS))
        connection.commit()
        before = _refuse_newer(connection)
        connection.commit()
        alembic.command.upgrade(configuration(connection), "head")
        connection.commit()
        worker_role.renew(connection, upgraded=before != _refuse_newer(connection))


def require(database_url: str) -> None:
    """Refuse a database with another schema than that of this pt2hub, without changing it.

    Raises:
        SchemaOlder: It lacks revisions.
        SchemaNewer: The database was written by a newer pt2hub.
    """
    found = current(database_url)
    needed = _format_list(ScriptDirectory(str(migrations_directory())).get_heads())
    if found != needed:
        state = f"at revision {found}" if found else "empty"
        raise SchemaOlder(
            f"The database's schema is {state}; this pt2hub needs revision {needed}",
            where="PT2HUB_DATABASE_URL",
            hint="Upgrade it once, from any machine that can reach it: pt2hub admin migrate",
        )


def current(database_url: str) -> str:
    """Return the revision of the schema, empty for an empty database.

    Raises:
        SchemaNewer: The database was written by a newer pt2hub.
    """
    with engines.translate_errors(), engines.connect(database_url) as connection:
        return _format_list(_refuse_newer(connection))


def _format_list(revisions: Iterable[str]) -> str:
    return ", ".join(sorted(revisions))


def configuration(connection: sqlalchemy.Connection) -> alembic.config.Config:
    """Return Alembic's settings, without a file; `env.py` reads the connection from them."""
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
