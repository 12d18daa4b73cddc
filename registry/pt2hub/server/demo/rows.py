"""Rows of many tables, gathered and then copied in, the ones that others name first."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from psycopg import sql
from psycopg.types.json import Jsonb
from sqlalchemy.dialects.postgresql import JSONB

from pt2hub.server.db import performance_schema as _performance  # noqa: F401  # its tables are known once it is imported
from pt2hub.server.db.schema import Base
from pt2hub.server.db.stores.values import storable

if TYPE_CHECKING:
    from collections.abc import Iterator

    import psycopg

_ORDER = (
    "models",
    "versions",
    "aliases",
    "alias_moves",
    "workers",
    "builds",
    "build_attempts",
    "build_steps",
    "build_logs",
    "artifacts",
    "referrers",
    "archive_members",
    "autotune_choices",
    "series",
    "measurements",
    "measurement_pairs",
    "series_points",
    "performance_events",
    "policies",
    "blob_references",
)
_RESERVE = """
    SELECT nextval(pg_get_serial_sequence({table}, 'id')) FROM generate_series(1, {count})
"""
_AT_ONCE = 1000


class Rows:
    """Rows to be, by table."""

    def __init__(self, connection: psycopg.Connection) -> None:
        """Has none yet.

        Args:
            connection: Whose transaction they are written in.
        """
        self._connection = connection
        self._rows: dict[str, list[dict[str, Any]]] = {name: [] for name in _ORDER}
        self._ids: dict[str, list[int]] = {}

    def add(self, table: str, **values: Any) -> None:  # noqa: ANN401  # of any column
        """Adds a row; all rows of a table name the same columns."""
        self._rows[table].append(values)

    def new_id(self, table: str) -> int:
        """The next id of a table whose rows the database counts."""
        ids = self._ids.setdefault(table, [])
        if not ids:
            statement = sql.SQL(_RESERVE).format(table=sql.Literal(table), count=sql.Literal(_AT_ONCE))
            ids += [row[0] for row in reversed(self._connection.execute(statement).fetchall())]
        return ids.pop()

    def count(self, table: str) -> int:
        """How many rows there are for a table."""
        return len(self._rows[table])

    def write(self) -> None:
        """Writes all of them."""
        for table in _ORDER:
            if self._rows[table]:
                self._copy(table)

    def _copy(self, table: str) -> None:
        rows = self._rows[table]
        names = list(rows[0])
        statement = sql.SQL("COPY {} ({}) FROM STDIN").format(
            sql.Identifier(table), sql.SQL(", ").join(map(sql.Identifier, names))
        )
        with self._connection.cursor() as cursor, cursor.copy(statement) as copy:
            for row in _in_form(table, rows):
                copy.write_row(row)


def _in_form(table: str, rows: list[dict[str, Any]]) -> Iterator[list[Any]]:
    """The values of rows as psycopg copies them."""
    columns = Base.metadata.tables[table].columns
    documents = {name for name in rows[0] if isinstance(columns[name].type, JSONB)}
    for row in rows:
        yield [
            Jsonb(storable(value)) if name in documents and value is not None else value
            for name, value in row.items()
        ]
