"""Backups of the database: every table as of one moment, restored into an empty database and then upgraded.

PostgreSQL's own COPY through psycopg, in one snapshot; the schema comes from the migrations. No program of PostgreSQL is
needed, which may be missing or older than the server.
"""

from __future__ import annotations

import contextlib
import json
import zipfile
import zlib
from dataclasses import asdict, dataclass
from graphlib import TopologicalSorter
from typing import IO, TYPE_CHECKING

import psycopg
from psycopg import sql

from pt2hub.errors import Conflict, InvalidInput, SchemaOlder
from pt2hub.server.db import engine as engines
from pt2hub.server.db import migrations
from pt2hub.server.db.stores.operations.reindex_state import (
    REINDEX_DUE,
    REINDEX_SETTING,
    RESTORED_MARKS_SETTING,
)
from pt2hub.version import __version__

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

FORMAT = 1
RESTORE_LOCK = 8400_0004
"""Key of the advisory lock of the process that restores."""
_CONTENTS = "backup.json"
_TABLES = """
    SELECT relname FROM pg_class
    WHERE relnamespace = current_schema()::regnamespace AND relkind = 'r' AND relpersistence = 'p'
        AND relname <> 'alembic_version'
    ORDER BY relname
"""
_COLUMNS = """
    SELECT attrelid::regclass::text, array_agg(attname::text ORDER BY attnum) FROM pg_attribute
    WHERE attrelid = ANY(%s::regclass[]) AND attnum > 0 AND NOT attisdropped AND attgenerated = ''
    GROUP BY attrelid
"""
_FOREIGN_KEYS = """
    SELECT conrelid::regclass::text, confrelid::regclass::text FROM pg_constraint
    WHERE contype = 'f' AND connamespace = current_schema()::regnamespace AND conrelid <> confrelid
"""
_SEQUENCES = """
    SELECT sequencename, last_value FROM pg_sequences WHERE schemaname = current_schema() AND last_value IS NOT NULL
"""
_DROPS = """
    SELECT format('DROP TABLE IF EXISTS %I CASCADE', relname) FROM pg_class
    WHERE relnamespace = current_schema()::regnamespace AND relkind = 'r'
    UNION ALL
    SELECT format('DROP ROUTINE IF EXISTS %s CASCADE', oid::regprocedure) FROM pg_proc
    WHERE pronamespace = current_schema()::regnamespace
    UNION ALL
    SELECT format('DROP TYPE IF EXISTS %I CASCADE', typname) FROM pg_type LEFT JOIN pg_class ON pg_class.oid = typrelid
    WHERE typnamespace = current_schema()::regnamespace AND (typtype = 'e' OR relkind = 'c')
"""
_AWAIT_REINDEX = """
    INSERT INTO server_settings (name, value) VALUES (%s, %s)
    ON CONFLICT (name) DO UPDATE SET value = excluded.value, set_at = now()
"""
_NOTE_MARKS = """
    INSERT INTO server_settings (name, value) SELECT %s, max(id) FROM journal_outbox HAVING max(id) IS NOT NULL
    ON CONFLICT (name) DO UPDATE SET value = excluded.value, set_at = now()
"""
_SNAPSHOT = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
_NO_TIMEOUTS = "SET statement_timeout = 0; SET idle_in_transaction_session_timeout = 0; SET timezone = 'UTC'"


@dataclass(frozen=True, slots=True)
class BackupTable:
    """A table in a backup."""

    name: str
    columns: list[str]
    rows: int


@dataclass(frozen=True, slots=True)
class Backup:
    """What a backup contains.

    Attributes:
        revision: Revision of the schema.
        created_at: Time of the snapshot, ISO 8601, UTC.
        tables: In an order in which foreign keys hold.
        sequences: Last value of each sequence.
    """

    revision: str
    created_at: str
    tables: list[BackupTable]
    sequences: dict[str, int]
    pt2hub: str = __version__
    format: int = FORMAT

    @property
    def rows(self) -> int:
        """How many rows it has."""
        return sum(table.rows for table in self.tables)


def write(database_url: str, file: IO[bytes]) -> Backup:
    """Write all tables, as they are at one moment; everything else goes on meanwhile.

    Raises:
        Conflict: A restore into it did not end.
        SchemaOlder: The database is empty.
        SchemaNewer: A newer pt2hub wrote the database.
        DatabaseUnavailable: The database does not answer, or its schema is being upgraded.
    """
    with (
        engines.translate_errors(),
        _connect(database_url) as connection,
        migrations.schema_kept(connection),
        zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive,
    ):
        if migrations.is_restore_unfinished(connection):
            raise migrations.restore_unfinished()
        revision = migrations.current(database_url)
        if not revision:
            raise SchemaOlder(
                "The database is empty: there is nothing to back up",
                where="PT2HUB_DATABASE_URL",
                hint="Set PT2HUB_HOME as for pt2hub up, or PT2HUB_DATABASE_URL as for pt2hub api.",
            )
        connection.execute(_SNAPSHOT)
        at = _one(connection, "SELECT to_char(now() AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS\"Z\"')")
        tables = [
            BackupTable(name, columns, _copy_out(connection, archive, name, columns))
            for name, columns in _tables(connection)
        ]
        # Sequences are of no snapshot: read last, they are past every row.
        backup = Backup(revision, at, tables, dict(connection.execute(_SEQUENCES).fetchall()))
        archive.writestr(_CONTENTS, json.dumps(asdict(backup), indent=1))
        connection.execute("COMMIT")
        return backup


def restore(database_url: str, path: Path) -> Backup:
    """Restore a backup into an empty database, and upgrade its schema; all of it or nothing.

    A process that is killed leaves a mark: no server starts with the database, and the next restore begins anew. Nothing is collected, and no retention policy runs, until a reindex has added what the backup lacks.

    Raises:
        InvalidInput: The file is no backup, or damaged.
        Conflict: The database is not empty, or another process restores into it.
        SchemaNewer: A newer pt2hub wrote the backup.
        DatabaseUnavailable: The database does not answer.
    """
    with engines.translate_errors(), _open(path) as archive:
        backup = _contents(archive, path)
        migrations.require_known(backup.revision, where=str(path))
        with _connect(database_url) as holder:
            _lock_restores(holder)
            _clear_unfinished(holder)
            _require_empty(holder)
            others = _drops(holder)
            _mark_unfinished(holder, others)
            try:
                migrations.upgrade(database_url, backup.revision, restoring=True)
                with _connect(database_url) as connection, connection.transaction():
                    _copy_in(connection, archive, backup)
                    connection.execute(f"DROP TABLE {migrations.RESTORE_UNFINISHED}".encode())
            except BaseException:
                with contextlib.suppress(psycopg.Error), _connect(database_url) as connection:
                    _clear(connection, others)
                raise
    migrations.upgrade(database_url)
    return backup


def _copy_out(
    connection: psycopg.Connection, archive: zipfile.ZipFile, table: str, columns: list[str]
) -> int:
    statement = sql.SQL("COPY {} ({}) TO STDOUT").format(sql.Identifier(table), _names(columns))
    cursor = connection.cursor()
    with archive.open(_member(table), "w", force_zip64=True) as member, cursor.copy(statement) as copy:
        for data in copy:
            member.write(data)
    return cursor.rowcount


def _copy_in(connection: psycopg.Connection, archive: zipfile.ZipFile, backup: Backup) -> None:
    """Load all tables; their own triggers would notify, and mark and count rows that the backup already has."""
    for table in backup.tables:
        name = sql.Identifier(table.name)
        connection.execute(sql.SQL("ALTER TABLE {} DISABLE TRIGGER USER").format(name))
        connection.execute(sql.SQL("DELETE FROM {}").format(name))  # what migrations added
    for table in backup.tables:
        name = sql.Identifier(table.name)
        statement = sql.SQL("COPY {} ({}) FROM STDIN").format(name, _names(table.columns))
        with archive.open(_member(table.name)) as member, connection.cursor().copy(statement) as copy:
            while data := member.read(1 << 20):
                copy.write(data)
    for table in backup.tables:
        connection.execute(sql.SQL("ALTER TABLE {} ENABLE TRIGGER USER").format(sql.Identifier(table.name)))
    names = {table.name for table in backup.tables}
    if "server_settings" in names:
        connection.execute(_AWAIT_REINDEX, [REINDEX_SETTING, REINDEX_DUE])
    if names >= {"server_settings", "journal_outbox"}:
        connection.execute(_NOTE_MARKS, [RESTORED_MARKS_SETTING])
    for sequence, value in backup.sequences.items():
        connection.execute("SELECT setval(quote_ident(%s)::regclass, %s)", [sequence, value])


def _tables(connection: psycopg.Connection) -> list[tuple[str, list[str]]]:
    """Return the tables with their columns, each after those that it refers to."""
    names = [row[0] for row in connection.execute(_TABLES)]
    columns: dict[str, list[str]] = dict(connection.execute(_COLUMNS, [names]).fetchall())
    order = TopologicalSorter(dict.fromkeys(names, ()))
    for table, other in connection.execute(_FOREIGN_KEYS):
        order.add(table, other)
    return [(name, columns[name]) for name in order.static_order() if name in columns]


def _drops(connection: psycopg.Connection) -> list[str]:
    """Return the statements that remove what is in the schema, tables first."""
    return [row[0] for row in connection.execute(_DROPS)]


def _clear(connection: psycopg.Connection, others: list[str]) -> None:
    """Remove what migrations made in an empty database; old revisions have no downgrade.

    Args:
        others: Statements that would remove what was there before.
    """
    with connection.transaction():
        for statement in _drops(connection):
            if statement not in others:
                connection.execute(statement.encode())


def _lock_restores(connection: psycopg.Connection) -> None:
    row = connection.execute("SELECT pg_try_advisory_lock(%s)", [RESTORE_LOCK]).fetchone()
    if row is None or not row[0]:
        raise Conflict(
            "Another process restores a backup into the database",
            where="PT2HUB_DATABASE_URL",
            hint="Wait until it has ended.",
        )


def _mark_unfinished(connection: psycopg.Connection, others: list[str]) -> None:
    """Note what was there before, so that the next restore can remove the rest if this one is killed."""
    mark = sql.Identifier(migrations.RESTORE_UNFINISHED)
    with connection.transaction():
        connection.execute(sql.SQL("CREATE TABLE {} (others text[])").format(mark))
        connection.execute(sql.SQL("INSERT INTO {} VALUES (%s)").format(mark), [others])


def _clear_unfinished(connection: psycopg.Connection) -> None:
    """Remove what a restore left behind that was killed."""
    if migrations.is_restore_unfinished(connection):
        mark = sql.Identifier(migrations.RESTORE_UNFINISHED)
        row = connection.execute(sql.SQL("SELECT others FROM {}").format(mark)).fetchone()
        _clear(connection, row[0] if row else [])


def _require_empty(connection: psycopg.Connection) -> None:
    found = [row[0] for row in connection.execute(_TABLES)]
    if found:
        raise Conflict(
            f"The database is not empty: it has {len(found)} tables, {found[0]} among them",
            where="PT2HUB_DATABASE_URL",
            hint="Restore into a new database: createdb, or another PT2HUB_HOME.",
        )


@contextlib.contextmanager
def _open(path: Path) -> Iterator[zipfile.ZipFile]:
    try:
        with zipfile.ZipFile(path) as archive:
            if damaged := archive.testzip():
                raise InvalidInput(
                    f"The backup is damaged: {damaged}", where=str(path), hint="Use another copy."
                )
            yield archive
    except (zipfile.BadZipFile, OSError, EOFError, zlib.error) as error:
        raise InvalidInput(
            f"Cannot read the backup: {_read_failure(error)}",
            where=str(path),
            hint="Name a file that pt2hub admin backup wrote, in full.",
        ) from error


def _read_failure(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        return error.strerror[:1].lower() + error.strerror[1:]
    if isinstance(error, zipfile.BadZipFile):
        return "it is not a backup of pt2hub, or it is damaged"
    return str(error) or type(error).__name__


def _contents(archive: zipfile.ZipFile, path: Path) -> Backup:
    try:
        document = json.loads(archive.read(_CONTENTS))
        if document["format"] > FORMAT:
            raise InvalidInput(
                f"pt2hub {document['pt2hub']} wrote the backup in a newer format",
                where=str(path),
                hint="Restore it with that release.",
            )
        tables = [BackupTable(table["name"], table["columns"], table["rows"]) for table in document["tables"]]
        names = ("revision", "created_at", "sequences", "pt2hub", "format")
        return Backup(tables=tables, **{name: document[name] for name in names})
    except (LookupError, ValueError, TypeError) as error:
        raise InvalidInput(
            "The file is not a backup of pt2hub",
            where=str(path),
            hint="Name a file that pt2hub admin backup wrote.",
        ) from error


@contextlib.contextmanager
def _connect(database_url: str) -> Iterator[psycopg.Connection]:
    with contextlib.closing(psycopg.connect(engines.conninfo(database_url), autocommit=True)) as connection:
        connection.execute(_NO_TIMEOUTS)
        yield connection


def _one(connection: psycopg.Connection, statement: str) -> str:
    row = connection.execute(statement.encode()).fetchone()
    return str(row[0]) if row else ""


def _names(columns: list[str]) -> sql.Composed:
    return sql.SQL(", ").join(map(sql.Identifier, columns))


def _member(table: str) -> str:
    return f"tables/{table}.copy"
