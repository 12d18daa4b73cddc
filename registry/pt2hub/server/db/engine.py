"""Connections to PostgreSQL, and the translation of its errors."""

from __future__ import annotations

import contextlib
import select
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import psycopg
import psycopg.conninfo
import sqlalchemy
import sqlalchemy.exc
from sqlalchemy.dialects.postgresql.psycopg import PGDialect_psycopg
from sqlalchemy.orm import Session, sessionmaker

from pt2hub.errors import (
    BadConfiguration,
    Conflict,
    DatabaseFull,
    DatabaseReadOnly,
    DatabaseUnavailable,
    InternalError,
    Pt2hubError,
)
from pt2hub.server.db.snapshots import begin_snapshot

if TYPE_CHECKING:
    from collections.abc import Iterator

_DEFAULTS = {
    # Without these, a connection with a vanished peer blocks for hours (procrastinate, pull request 1596).
    "keepalives": 1,
    "keepalives_idle": 30,
    "keepalives_interval": 10,
    "keepalives_count": 3,
    # Keepalives are not sent while a query is unacknowledged: that alone would take a quarter of an hour.
    "tcp_user_timeout": 20_000,
    "connect_timeout": 10,
}
_SETTINGS = """
    SET timezone = 'UTC';
    SET statement_timeout = '30s';
    SET lock_timeout = '10s';
    SET idle_in_transaction_session_timeout = '60s'
"""
ISSUER = "issuer"
"""What a session's `info` names the provider by whose groups people have roles; stores read it."""
_UNAVAILABLE = (
    sqlalchemy.exc.OperationalError,
    sqlalchemy.exc.InterfaceError,
    sqlalchemy.exc.TimeoutError,
)
_NO_ANSWER = "Check that PostgreSQL is running and that PT2HUB_DATABASE_URL is correct; then try again."


_SHARED: ContextVar[Session | None] = ContextVar("shared session", default=None)
"""The transaction of a block of `Sessions.read_together`."""


def conninfo(database_url: str) -> str:
    """Return the connection's parameters for libpq, with timeouts and keepalives added where unset.

    libpq parses the URL, so that several hosts, services and sockets work as in psql.

    Args:
        database_url: `postgresql://...`, or SQLAlchemy's `postgresql+psycopg://`.

    Raises:
        BadConfiguration: The URL is malformed.
    """
    scheme, separator, rest = database_url.partition("://")
    try:
        given = psycopg.conninfo.conninfo_to_dict(f"{scheme.partition('+')[0]}{separator}{rest}")
    except psycopg.ProgrammingError as exc:
        raise BadConfiguration(
            f"Invalid database URL: {_first_line(exc)}",
            where="PT2HUB_DATABASE_URL",
            hint="Use postgresql://user@host/database; percent-encode characters other than letters and digits.",
        ) from exc
    return psycopg.conninfo.make_conninfo("", **{**_DEFAULTS, **given})


def create(database_url: str) -> sqlalchemy.Engine:
    """Return a pool of connections, without opening any.

    Raises:
        BadConfiguration: The URL is malformed.
    """
    address = conninfo(database_url)

    def connect() -> psycopg.Connection:
        connection = psycopg.connect(address, autocommit=True)
        connection.execute(_SETTINGS)
        connection.autocommit = False
        return connection

    engine = sqlalchemy.create_engine(
        "postgresql+psycopg://",
        creator=connect,
        # No overflow: connections beyond the pool size are closed after each use, a hundred times a second under load.
        pool_size=20,
        max_overflow=0,
        pool_timeout=10,
        pool_recycle=1800,
    )
    sqlalchemy.event.listen(engine, "checkout", _replace_if_cut)
    return engine


def _replace_if_cut(connection: psycopg.Connection, _record: object, _proxy: object) -> None:
    """Make the pool replace a connection that the server closed, so that a restart fails no request.

    On an idle connection PostgreSQL sends nothing but its end, and polling the socket takes a microsecond; the pool's
    own check, a ping, takes a round trip for every transaction.
    """
    if connection.closed:
        raise sqlalchemy.exc.DisconnectionError
    readiness = select.poll()
    readiness.register(connection.fileno(), select.POLLIN)
    if readiness.poll(0):
        raise sqlalchemy.exc.DisconnectionError


@contextlib.contextmanager
def connect(database_url: str) -> Iterator[sqlalchemy.Connection]:
    """Yield a separate connection, closed at the end."""
    engine = create(database_url)
    try:
        with engine.connect() as connection:
            yield connection
    finally:
        engine.dispose()


@contextlib.contextmanager
def translate_errors() -> Iterator[None]:
    """Translate errors of SQLAlchemy and psycopg.

    Raises:
        DatabaseFull: The database's disk is full.
        DatabaseReadOnly: The database accepts no writes.
        DatabaseUnavailable: No connection, a timeout or a deadlock: another try may succeed.
        Conflict: Something that a row refers to was deleted in the meantime.
        InternalError: The database refused a statement.
    """
    try:
        yield
    except (sqlalchemy.exc.SQLAlchemyError, psycopg.Error) as exc:
        raise _translate(exc) from exc


def _translate(exc: Exception) -> Pt2hubError:
    original = getattr(exc, "orig", None) or exc
    if isinstance(original, psycopg.errors.DiskFull):
        return database_full(_first_line(exc))
    if isinstance(original, psycopg.errors.ReadOnlySqlTransaction):
        return read_only(_first_line(exc))
    if isinstance(exc, (*_UNAVAILABLE, psycopg.OperationalError)):
        return DatabaseUnavailable(f"The database did not answer: {_first_line(exc)}", hint=_NO_ANSWER)
    if isinstance(original, psycopg.errors.ForeignKeyViolation):
        return Conflict(
            "What the request refers to was deleted in the meantime",
            hint="Look at it again: pt2hub show tells whether it was deleted, by whom and why.",
        )
    return InternalError(
        f"The database refused a statement: {_first_line(exc)}",
        hint="Check that the schema is upgraded (pt2hub up does it at start); otherwise please report this.",
    )


def database_full(reason: str) -> DatabaseFull:
    """Return the error for a database whose disk is full.

    Args:
        reason: What PostgreSQL or the disk said.
    """
    return DatabaseFull(
        f"The database's disk is full: {reason}",
        hint="Free space on the database's disk, or enlarge it; reading and downloads still work.",
    )


def read_only(reason: str) -> DatabaseReadOnly:
    """Return the error for a database that accepts no writes.

    Args:
        reason: What PostgreSQL said.
    """
    return DatabaseReadOnly(
        f"The database accepts no writes: {reason}",
        hint="Connect to the primary (target_session_attrs=read-write in PT2HUB_DATABASE_URL), or unset "
        "default_transaction_read_only; reading and downloads still work.",
    )


@dataclass(frozen=True, slots=True)
class Prepared:
    """A statement that is compiled once and run often."""

    text: bytes
    constants: dict[str, Any]

    @classmethod
    def of(cls, statement: sqlalchemy.ClauseElement) -> Prepared:
        """Compile a statement once, since SQLAlchemy's bookkeeping takes longer than the query."""
        dialect = PGDialect_psycopg()  # type: ignore[no-untyped-call]  # SQLAlchemy leaves it untyped
        compiled = statement.compile(dialect=dialect)
        return cls(str(compiled).encode(), compiled.params)


class Reader:
    """Runs single read-only statements outside of transactions: one round trip instead of three."""

    def __init__(self, engine: sqlalchemy.Engine) -> None:
        self._engine = engine

    def rows(self, statement: Prepared, **parameters: str | int) -> list[tuple[Any, ...]]:
        """Return the rows of a statement; psycopg prepares it on connections that run it often.

        Raises:
            DatabaseUnavailable: No connection or a timeout: another try may succeed.
            InternalError: The database refused the statement.
        """
        values = {**statement.constants, **parameters}
        if (shared := _SHARED.get()) is not None:  # a second connection could be one too many for the pool
            with translate_errors():
                held = cast("psycopg.Connection", shared.connection().connection.driver_connection)
                return held.execute(statement.text, values).fetchall()
        with translate_errors(), contextlib.closing(self._engine.raw_connection()) as pooled:
            connection = cast("psycopg.Connection", pooled.driver_connection)
            try:
                connection.autocommit = True
                found = connection.execute(statement.text, values).fetchall()
                connection.autocommit = False
            except BaseException:
                pooled.invalidate()  # it may be dead and must not return to the pool
                raise
            return found


class Sessions:
    """Opens transactions for services."""

    def __init__(self, engine: sqlalchemy.Engine) -> None:
        self._info: dict[str, str] = {}
        self._make = sessionmaker(engine, expire_on_commit=False, info=self._info)
        self.reader = Reader(engine)

    def believe(self, issuer: str) -> None:
        """Believe groups of people of this provider; those of any other give nothing. None is believed before the first call."""
        self._info[ISSUER] = issuer

    @contextlib.contextmanager
    def begin(self) -> Iterator[Session]:
        """Yield a transaction: committed at the end of the block, rolled back when the block raises.

        Raises:
            DatabaseUnavailable: No connection, a timeout or a deadlock: another try may succeed.
            InternalError: The database refused a statement.
        """
        if (shared := _SHARED.get()) is not None:
            with translate_errors():
                yield shared
            return
        with translate_errors(), self._make.begin() as session:
            yield session

    @contextlib.contextmanager
    def read_together(self) -> Iterator[None]:
        """Let all transactions of this thread in the block be one, which only reads, and sees one moment.

        Raises:
            DatabaseReadOnly: Something in the block writes.
            DatabaseUnavailable: As for `begin`.
        """
        with self.begin() as session:
            begin_snapshot(session)
            token = _SHARED.set(session)
            try:
                yield
            finally:
                _SHARED.reset(token)


def _first_line(exc: Exception) -> str:
    """Return the database's message, without the statement and its parameters, which may be long or secret."""
    original = getattr(exc, "orig", None) or exc
    return (str(original).strip().splitlines() or [type(original).__name__])[0]
