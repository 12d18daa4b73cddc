"""The story's clock: the services write at the database's time, and the story happened in the past."""

from __future__ import annotations

from typing import TYPE_CHECKING

import psycopg
from psycopg import sql

from pt2hub.server.db import engine as engines

if TYPE_CHECKING:
    from pt2hub.server.container import Container

_MARKS = "CREATE TEMPORARY TABLE story_marks (began timestamptz PRIMARY KEY, moment timestamptz)"
_SHIFT = """
    CREATE FUNCTION pg_temp.story_time(written timestamptz) RETURNS timestamptz LANGUAGE sql STABLE AS $$
        SELECT coalesce(
            (SELECT written - began + moment FROM story_marks WHERE began <= written ORDER BY began DESC LIMIT 1),
            written
        )
    $$
"""
_COLUMNS = """
    SELECT table_name, array_agg(column_name::text) FROM information_schema.columns
    WHERE table_schema = 'public' AND data_type = 'timestamp with time zone'
    AND table_name !~ '^(procrastinate_|blob_leases|api_tokens|web_sessions|story_)' GROUP BY table_name
"""


class Clock:
    """Notes when in the story something happens, and dates the rows back at the end.

    Whatever the services write between two calls of `set` happened from the moment of the first on. Times before the replay,
    such as those that manifests and reports carry, are the story's already and stay.
    """

    def __init__(self, services: Container) -> None:
        self._services = services
        self._marks: list[tuple[float, float]] = []
        self.start = services.maintenance.contact()

    def set(self, moment: float) -> None:
        """Let what follows happen at a moment, in seconds since the epoch; it may lie before the last one."""
        self._marks.append((self._services.maintenance.contact(), moment))

    def end_pause(self, build: str) -> None:
        """End the pause between two attempts of a build: who waited for it would see nothing else."""
        with psycopg.connect(engines.conninfo(self._services.database_url)) as connection:
            connection.execute("UPDATE builds SET not_before = NULL WHERE id = %s", (build,))

    def date_back(self) -> None:
        """Shift each timestamp that was written since the start to its moment in the story."""
        address = engines.conninfo(self._services.database_url)
        with psycopg.connect(address, autocommit=True) as connection:
            connection.execute(_MARKS)
            connection.execute(_SHIFT)
            connection.execute(
                "SET session_replication_role = replica"
            )  # no triggers: the audit log's refuse updates
            with connection.cursor() as cursor:
                rows = "INSERT INTO story_marks VALUES (to_timestamp(%s), to_timestamp(%s))"
                cursor.executemany(rows, self._marks)
            for table, columns in connection.execute(_COLUMNS).fetchall():
                shifted = sql.SQL(", ").join(
                    sql.SQL("{0} = pg_temp.story_time({0})").format(sql.Identifier(column))
                    for column in columns
                )
                connection.execute(sql.SQL("UPDATE {} SET {}").format(sql.Identifier(table), shifted))
            connection.execute("VACUUM ANALYZE")
