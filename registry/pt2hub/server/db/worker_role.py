"""The database role of workers: it can claim, heartbeat, journal and publish, and nothing else.

`GRANTS` is the only place that says what workers may do. A table that is not in it is out of their reach, and so is each
new one until somebody adds it here. `migrations.upgrade` grants anew whenever the schema or this list has changed.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import psycopg
import structlog
from psycopg import sql
from sqlalchemy import text

from pt2hub.server.db import engine as engines

if TYPE_CHECKING:
    import sqlalchemy

DEFAULT_ROLE = "pt2hub_worker"
"""Name of the role where none is given; `pt2hub up` uses it for its own worker."""
_READ = ("SELECT",)
_ADD = ("SELECT", "INSERT")
GRANTS: dict[str, tuple[str, ...]] = {
    # What to build.
    "models": _READ,
    "versions": (*_READ, "UPDATE (weights, golden)"),
    "targets": _ADD,
    "environments": _ADD,
    "policies": _READ,  # for the thresholds of comparisons
    "server_settings": _READ,
    "alembic_version": _READ,
    # Registration and heartbeat; maintenance deletes the rows.
    "workers": (*_ADD, "UPDATE"),
    # Claims, outcomes, and the measuring jobs that a publication queues.
    "builds": (
        *_ADD,
        "UPDATE (state, attempt, failures, priority, worker_id, request, queued_at, not_before, started_at, finished_at, error)",
    ),
    "build_attempts": (*_ADD, "UPDATE (ended_at, outcome, error, reused)"),
    # The journal. Nobody reads logs through a worker.
    "build_steps": (*_ADD, "UPDATE (state, seconds, detail, waited)"),
    "build_logs": ("INSERT",),
    # Publications: rows are added and never changed.
    "artifacts": _ADD,
    "referrers": _ADD,
    "archive_members": _ADD,
    "regions": _ADD,
    "autotune_choices": _ADD,
    "derivations": _ADD,  # a retrained version that reuses code
    "blobs": (*_ADD, "UPDATE (generation, state, size, changed_at, checked_at)"),
    "blob_damage": _ADD,  # of what they find where they write
    "blob_leases": (*_ADD, "UPDATE (pending_until)", "DELETE"),
    "blob_references": _ADD,
    # What a forced deletion removed is not stored again.
    "tombstones": _READ,
    "refused_digests": _READ,
    # Measurements, and the changes found in them.
    "series": (*_ADD, "UPDATE (changed_at, examined_at, newest_at)"),
    "measurements": _ADD,
    "measurement_pairs": _ADD,
    "series_points": (*_ADD, "UPDATE"),
    "performance_events": (*_ADD, "UPDATE", "DELETE"),
    # Events for webhooks; neither their receivers nor their secrets.
    "webhooks": ("SELECT (enabled, events)",),
    "webhook_events": ("INSERT",),
    # The queue, whose functions run with the rights of their caller.
    "procrastinate_jobs": (*_ADD, "UPDATE", "DELETE"),
    "procrastinate_events": ("INSERT",),
    "procrastinate_workers": (*_ADD, "UPDATE (last_heartbeat)", "DELETE"),
    "procrastinate_periodic_defers": ("SELECT (job_id)", "UPDATE (job_id)"),
}
"""Privileges by table. The columns that are listed need no more rights than their statements."""
SEQUENCES = ("procrastinate_jobs_id_seq", "procrastinate_events_id_seq")
"""Sequences of columns that are not identities, which take none."""
_NAME_SETTING, _GRANTED_SETTING = "worker_role", "worker_role_grants"
_RECORD = """INSERT INTO server_settings (name, value) VALUES ({name}, {value})
    ON CONFLICT (name) DO UPDATE SET value = excluded.value, set_at = now()"""
_RECORDED = text("""
    SELECT named.value AS role, granted.value AS granted, pg_roles.rolname IS NOT NULL AS exists
    FROM server_settings AS named
    LEFT JOIN server_settings AS granted ON granted.name = :granted
    LEFT JOIN pg_roles ON pg_roles.rolname = named.value
    WHERE named.name = :named
""")
_log = structlog.get_logger(__name__)


def statements(role: str, *, schema: str) -> list[sql.Composed]:
    """Return the statements that give an existing role the rights of workers, and take all others of the schema away.

    They also record the role, so that upgrades grant anew. Run them in one transaction: running workers then never miss a
    right.

    Args:
        schema: Schema of pt2hub's tables.
    """
    grantee, where = sql.Identifier(role), sql.Identifier(schema)
    revoked = [
        sql.SQL("REVOKE ALL ON ALL {} IN SCHEMA {} FROM {}").format(sql.SQL(kind), where, grantee)
        for kind in ("TABLES", "SEQUENCES")
    ]
    granted = [
        sql.SQL("GRANT {} ON {} TO {}").format(
            sql.SQL(", ").join(map(sql.SQL, privileges)), sql.Identifier(schema, table), grantee
        )
        for table, privileges in GRANTS.items()
    ]
    numbered = [
        sql.SQL("GRANT USAGE ON SEQUENCE {} TO {}").format(sql.Identifier(schema, name), grantee)
        for name in SEQUENCES
    ]
    recorded = [
        sql.SQL(_RECORD).format(name=sql.Literal(name), value=sql.Literal(value))
        for name, value in ((_NAME_SETTING, role), (_GRANTED_SETTING, _digest()))
    ]
    usage = sql.SQL("GRANT USAGE ON SCHEMA {} TO {}").format(where, grantee)
    return [*revoked, usage, *granted, *numbered, *recorded]


def creation(role: str) -> sql.Composed:
    """Return the statement that creates a role which may log in and nothing else."""
    return sql.SQL("CREATE ROLE {} LOGIN").format(sql.Identifier(role))


def with_password(role: str, verifier: str) -> sql.Composed:
    """Return the statement that sets a role's password.

    Args:
        verifier: The password as the server stores it.
    """
    return sql.SQL("ALTER ROLE {} PASSWORD {}").format(sql.Identifier(role), sql.Literal(verifier))


def grant(connection: psycopg.Connection, role: str) -> None:
    """Give a role the rights of workers, in the caller's transaction; see `statements`."""
    found = connection.execute("SELECT current_schema()").fetchone()
    for statement in statements(role, schema=str(found[0]) if found else "public"):
        connection.execute(statement)


def exists(connection: psycopg.Connection, role: str) -> bool:
    """Return whether the server has a role."""
    return connection.execute("SELECT FROM pg_roles WHERE rolname = %s", [role]).rowcount > 0


def ensure(database_url: str, role: str = DEFAULT_ROLE) -> None:
    """Create a role without a password unless it exists, and give it the rights of workers.

    Raises:
        DatabaseUnavailable: The database does not answer.
    """
    with engines.translate_errors(), psycopg.connect(engines.conninfo(database_url)) as connection:
        if not exists(connection, role):
            connection.execute(creation(role))
        grant(connection, role)


def renew(connection: sqlalchemy.Connection, *, upgraded: bool) -> None:
    """Grant anew what the recorded role may do, where the schema or `GRANTS` has changed; without one, do nothing.

    Args:
        upgraded: Whether the schema has changed.
    """
    recorded = connection.execute(
        _RECORDED, {"named": _NAME_SETTING, "granted": _GRANTED_SETTING}
    ).one_or_none()
    if recorded is None or (recorded.granted == _digest() and not upgraded):
        connection.rollback()
        return
    if not recorded.exists:  # a copy of the database on another server
        _log.warning("the workers' role does not exist on this server", role=recorded.role)
        connection.rollback()
        return
    driver: psycopg.Connection = connection.connection.driver_connection  # type: ignore[assignment]
    grant(driver, recorded.role)
    connection.commit()
    _log.info("rights of the workers' role granted anew", role=recorded.role)


def _digest() -> str:
    return hashlib.sha256(repr((sorted(GRANTS.items()), SEQUENCES)).encode()).hexdigest()
