"""Schema revisions of the database, and their application."""

from __future__ import annotations

import contextlib
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING

import alembic.command
import alembic.config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import text

from pt2hub.errors import Conflict, InternalError, SchemaNewer, SchemaOlder
from pt2hub.server.db import engine as engines
from pt2hub.server.db import worker_role

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import psycopg
    import sqlalchemy

_PREVIOUS_SETTING = "schema_works_from"
_READ_PREVIOUS = text("SELECT value FROM server_settings WHERE name = :name")
_WRITE_PREVIOUS = text("""
    INSERT INTO server_settings (name, value) VALUES (:name, :value)
    ON CONFLICT (name) DO UPDATE SET value = excluded.value, set_at = now() WHERE server_settings.value <> excluded.value
""")
_LOCK = 8400_0001
"""Key of the advisory lock that lets one process at a time upgrade the schema."""
RESTORE_UNFINISHED = "restore_unfinished"
"""A table that a restore makes first and drops last; see `db.backup`."""
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


def upgrade(database_url: str, revision: str = "head", *, restoring: bool = False) -> None:
    """Upgrade the schema to the newest revision, or to an older one; safe to run concurrently.

    A newer schema that this release works on stays as it is.

    Args:
        restoring: Whether this is a part of a restore, which others must not take for a whole database.

    Raises:
        Conflict: A restore did not end.
        SchemaNewer: The database was written by a pt2hub that is newer by more than a release.
        DatabaseUnavailable: The database did not answer, or a table stayed locked.
    """
    with engines.translate_errors(), engines.connect(database_url) as connection:
        # Locked by the session and not by a transaction: each revision commits on its own.
        connection.execute(text(f"SET lock_timeout = '{_WAIT_FOR_OTHERS}'; SET statement_timeout = 0"))
        connection.execute(text("SELECT pg_advisory_lock(:key)"), {"key": _LOCK})
        connection.execute(text(_TIMEOUTS))
        connection.commit()
        if not restoring:
            _refuse_unfinished(connection)
        before = _refuse_newer(connection)
        connection.commit()
        if before <= _known():
            alembic.command.upgrade(configuration(connection), revision)
            connection.commit()
            _record_previous(connection)
        worker_role.renew(connection, upgraded=before != _refuse_newer(connection))


def require(database_url: str) -> None:
    """Refuse a database whose schema this pt2hub does not work on, without changing it.

    Raises:
        Conflict: A restore did not end.
        SchemaOlder: It lacks revisions.
        SchemaNewer: The database was written by a pt2hub that is newer by more than a release.
    """
    found = current(database_url)
    with engines.translate_errors(), engines.connect(database_url) as connection:
        _refuse_unfinished(connection)
    needed = _format_list(ScriptDirectory(str(migrations_directory())).get_heads())
    if found != needed and (not found or {found} <= _known()):
        state = f"at revision {found}" if found else "empty"
        raise SchemaOlder(
            f"The database's schema is {state}; this pt2hub needs revision {needed}",
            where="PT2HUB_DATABASE_URL",
            hint="Upgrade it once, from any machine that can reach it: pt2hub admin migrate",
        )


def is_restore_unfinished(connection: psycopg.Connection) -> bool:
    """Return whether a restore into the database runs, or did not end."""
    row = connection.execute("SELECT to_regclass(%s)", [RESTORE_UNFINISHED]).fetchone()
    return row is not None and row[0] is not None


def restore_unfinished() -> Conflict:
    """Return the error about a database whose restore runs or did not end."""
    return Conflict(
        "The restore of a backup into the database did not end",
        where="PT2HUB_DATABASE_URL",
        hint="Wait for it if it still runs, or run pt2hub admin restore again, which begins anew.",
    )


def previous_revision() -> str:
    """Return the newest revision of the previous release, which works on every schema of this one."""
    document = tomllib.loads((migrations_directory() / "previous_release.toml").read_text("utf-8"))
    return str(document["revision"])


def current(database_url: str) -> str:
    """Return the revision of the schema, empty for an empty database.

    Raises:
        SchemaNewer: The database was written by a newer pt2hub.
    """
    with engines.translate_errors(), engines.connect(database_url) as connection:
        return _format_list(_refuse_newer(connection))


def require_known(revision: str, *, where: str) -> None:
    """Refuse a revision that this pt2hub does not know.

    Args:
        where: What is at this revision.

    Raises:
        SchemaNewer: A newer pt2hub wrote it.
    """
    if revision not in _known():
        raise SchemaNewer(
            f"The schema is at revision {revision}, which this pt2hub does not know",
            where=where,
            hint="Use the newer pt2hub that wrote it.",
        )


@contextlib.contextmanager
def schema_kept(connection: psycopg.Connection) -> Iterator[None]:
    """Let no process upgrade the schema meanwhile; wait for one that does.

    Args:
        connection: One in autocommit.
    """
    connection.execute("SELECT pg_advisory_lock_shared(%s)", [_LOCK])
    try:
        yield
    finally:
        if not connection.broken:
            connection.execute("ROLLBACK")
            connection.execute("SELECT pg_advisory_unlock_shared(%s)", [_LOCK])


def _refuse_unfinished(connection: sqlalchemy.Connection) -> None:
    if connection.scalar(text("SELECT to_regclass(:name)"), {"name": RESTORE_UNFINISHED}) is not None:
        raise restore_unfinished()


def _format_list(revisions: Iterable[str]) -> str:
    return ", ".join(sorted(revisions))


def configuration(connection: sqlalchemy.Connection) -> alembic.config.Config:
    """Return Alembic's settings, without a file; `env.py` reads the connection from them."""
    config = alembic.config.Config(attributes={"connection": connection})
    config.set_main_option("script_location", str(migrations_directory()).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    return config


def _refuse_newer(connection: sqlalchemy.Connection) -> set[str]:
    """Return the revision, which may be one that the next release added.

    Raises:
        SchemaNewer: It is unknown, and the release that added it does not say that this one works on it.
    """
    known, current = _known(), set(MigrationContext.configure(connection).get_current_heads())
    unknown = sorted(current - known)
    if unknown and connection.scalar(_READ_PREVIOUS, {"name": _PREVIOUS_SETTING}) not in known:
        raise SchemaNewer(
            f"The database's schema is at revision {', '.join(unknown)}, which this pt2hub does not know",
            where="PT2HUB_DATABASE_URL",
            hint="Start the newer pt2hub that wrote it, or use another database.",
        )
    return current


def _record_previous(connection: sqlalchemy.Connection) -> None:
    """Let the previous release read from the database that it works on the newest schema, if that is there."""
    heads = set(ScriptDirectory(str(migrations_directory())).get_heads())
    if set(MigrationContext.configure(connection).get_current_heads()) == heads:
        given = {"name": _PREVIOUS_SETTING, "value": previous_revision()}
        connection.execute(_WRITE_PREVIOUS, given)
    connection.commit()


def _known() -> set[str]:
    return {item.revision for item in ScriptDirectory(str(migrations_directory())).walk_revisions()}
