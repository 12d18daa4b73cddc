"""Connections to PostgreSQL, and the one seam where its errors become ours."""

from __future__ import annotations

import contextlib
import select
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import psycopg
import psycopg.conninfo
import sqlalchemy
import sqlalchemy.exc
from sqlalchemy.dialects.postgresql.psycopg import PGDialect_psycopg
from sqlalchemy.orm import Session, sessionmaker

from pt2hub.errors import BadConfiguration, DatabaseUnavailable, InternalError

if TYPE_CHECKING:
    from collections.abc import Iterator

_DEFAULTS = {
    # Without these a connection whose other end vanished blocks for hours (procrastinate, pull request 1596).
    "keepalives": 1,
    "keepalives_idle": 30,
    "keepalives_interval": 10,
    "keepalives_count": 3,
    # Keepalives are not sent while a question waits to be acknowledged: that alone would take a quarter of an hour.
    "tcp_user_timeout": 20_000,
    "connect_timeout": 10,
}
_SETTINGS = """
    SET timezone = 'UTC';
    SET statement_timeout = '30s';
    SET lock_timeout = '10s';
    SET idle_in_transaction_session_timeout = '60s'
"""
_UNAVAILABLE = (
    sqlalchemy.exc.OperationalError,
    sqlalchemy.exc.InterfaceError,
    sqlalchemy.exc.TimeoutError,
)
_NO_ANSWER = "Check that PostgreSQL runs and PT2HUB_DATABASE_URL names it; then try again."


def conninfo(database_url: str) -> str:
    """The connection's parameters as libpq reads them, time-outs and keepalives added where unset.

    libpq parses the URL itself, so that several hosts, services and sockets work as in psql.

    Args:
        database_url: `postgresql://...`; SQLAlchemy's `postgresql+psycopg://` is understood.

    Raises:
        BadConfiguration: The URL cannot be read.
    """
    scheme, separator, rest = database_url.partition("://")
    try:
        given = psycopg.conninfo.conninfo_to_dict(f"{scheme.partition('+')[0]}{separator}{rest}")
    except psycopg.ProgrammingError as exc:
        raise BadConfiguration(
            f"The database's address cannot be read: {_first_line(exc)}",
            where="PT2HUB_DATABASE_URL",
            hint="Write postgresql://user@host/database; percent-encode other characters than letters and digits.",
        ) from exc
    return psycopg.conninfo.make_conninfo("", **{**_DEFAULTS, **given})


def create(database_url: str) -> sqlalchemy.Engine:
    """A pool of connections; none is opened yet.

    Args:
        database_url: `postgresql://...`.

    Raises:
        BadConfiguration: The URL cannot be read.
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
        # No overflow: what is opened beyond the size is closed after each use, a hundred times a second under load.
        pool_size=20,
        max_overflow=0,
        pool_timeout=10,
        pool_recycle=1800,
    )
    sqlalchemy.event.listen(engine, "checkout", _replace_if_cut)
    return engine


def _replace_if_cut(connection: psycopg.Connection, _record: object, _proxy: object) -> None:
    """Makes the pool replace a connection that the server closed, so that a restart fails no request.

    PostgreSQL says nothing on an idle connection but its end, and asking the socket for that takes a microsecond;
    the pool's own way, a ping, takes a round trip for every transaction.
    """
    if connection.closed:
        raise sqlalchemy.exc.DisconnectionError
    readiness = select.poll()
    readiness.register(connection.fileno(), select.POLLIN)
    if readiness.poll(0):
        raise sqlalchemy.exc.DisconnectionError


@contextlib.contextmanager
def connected(database_url: str) -> Iterator[sqlalchemy.Connection]:
    """One connection of its own, closed at the end."""
    engine = create(database_url)
    try:
        with engine.connect() as connection:
            yield connection
    finally:
        engine.dispose()


@contextlib.contextmanager
def translated() -> Iterator[None]:
    """Turns errors of SQLAlchemy and psycopg into ours.

    Raises:
        DatabaseUnavailable: No connection, a time-out, a deadlock: another try may succeed.
        InternalError: The database refused a statement.
    """
    try:
        yield
    except (*_UNAVAILABLE, psycopg.OperationalError) as exc:
        raise DatabaseUnavailable(
            f"The database did not answer: {_first_line(exc)}", hint=_NO_ANSWER
        ) from exc
    except (sqlalchemy.exc.SQLAlchemyError, psycopg.Error) as exc:
        raise InternalError(
            f"The database refused a statement: {_first_line(exc)}",
            hint="Was the schema upgraded? pt2hub up does it at start; otherwise please report this.",
        ) from exc


@dataclass(frozen=True, slots=True)
class Prepared:
    """A statement that is asked again and again.

    Attributes:
        text: SQL with named parameters.
        constants: Values of those parameters that are the same each time.
    """

    text: bytes
    constants: dict[str, Any]

    @classmethod
    def of(cls, statement: sqlalchemy.ClauseElement) -> Prepared:
        """Writes a statement out once: SQLAlchemy's own bookkeeping costs more than asking PostgreSQL."""
        dialect = PGDialect_psycopg()  # type: ignore[no-untyped-call]  # SQLAlchemy leaves it untyped
        compiled = statement.compile(dialect=dialect)
        return cls(str(compiled).encode(), compiled.params)


class Reader:
    """Asks single statements that only read, outside of transactions: one round trip instead of three."""

    def __init__(self, engine: sqlalchemy.Engine) -> None:
        """Takes an engine and leaves closing it to its owner."""
        self._engine = engine

    def rows(self, statement: Prepared, **parameters: str | int) -> list[tuple[Any, ...]]:
        """The rows of a statement; psycopg prepares it on the connections where it comes often.

        Raises:
            DatabaseUnavailable: No connection, a time-out: another try may succeed.
            InternalError: The database refused the statement.
        """
        with translated(), contextlib.closing(self._engine.raw_connection()) as pooled:
            connection = cast("psycopg.Connection", pooled.driver_connection)
            try:
                connection.autocommit = True
                found = connection.execute(statement.text, {**statement.constants, **parameters}).fetchall()
                connection.autocommit = False
            except BaseException:
                pooled.invalidate()  # it may be dead, and must not go back to others who want transactions
                raise
            return found


class Sessions:
    """Opens transactions for services.

    Attributes:
        reader: Reads without one.
    """

    def __init__(self, engine: sqlalchemy.Engine) -> None:
        """Takes an engine and leaves closing it to its owner."""
        self._make = sessionmaker(engine, expire_on_commit=False)
        self.reader = Reader(engine)

    @contextlib.contextmanager
    def begin(self) -> Iterator[Session]:
        """A transaction: committed at the end of the block, rolled back when the block raises.

        Raises:
            DatabaseUnavailable: No connection, a time-out, a deadlock: another try may succeed.
            InternalError: The database refused a statement.
        """
        with translated(), self._make.begin() as session:
            yield session


def _first_line(exc: Exception) -> str:
    """The database's own words, without the statement and its parameters: those may be long or secret."""
    original = getattr(exc, "orig", None) or exc
    return (str(original).strip().splitlines() or [type(original).__name__])[0]
