"""Credentials of workers for the database: a role of their own, and its URL."""

from __future__ import annotations

import re
import secrets
from dataclasses import dataclass, field
from urllib.parse import urlsplit, urlunsplit

import psycopg

from pt2hub.errors import BadConfiguration, InvalidInput
from pt2hub.server.db import engine as engines
from pt2hub.server.db import worker_role

_NAME = re.compile(r"[a-z_][a-z0-9_]{0,62}")
_PASSWORD_BYTES = 24
_POWERFUL = """
    SELECT rolsuper OR rolcreaterole OR rolbypassrls OR pg_has_role(oid, current_user, 'MEMBER')
    FROM pg_roles WHERE rolname = %s
"""
_SCRIPT = """\
-- Run it as the owner of pt2hub's tables: psql "$PT2HUB_DATABASE_URL" --file=-
BEGIN;
DO $$ BEGIN
    IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = '{role}') THEN {creation}; END IF;
END $$;
{statements}
COMMIT;
-- Then give the role a password: \\password {role}
"""


@dataclass(frozen=True, slots=True)
class WorkerRole:
    """A role with the rights of workers.

    Attributes:
        created: Whether it was created now.
        database_url: What workers set as `PT2HUB_DATABASE_URL`, with the role's new password; None where it keeps its own.
    """

    role: str
    created: bool
    database_url: str | None = field(repr=False)


def role_script(database_url: str, role: str) -> str:
    """Return the SQL that creates a role and gives it the rights of workers, for somebody else to run.

    Raises:
        InvalidInput: The name is invalid.
        DatabaseUnavailable: The database does not answer.
    """
    _check_name(role)
    with engines.translate_errors(), psycopg.connect(engines.conninfo(database_url)) as connection:
        schema = connection.execute("SELECT current_schema()").fetchone()
        made = worker_role.statements(role, schema=str(schema[0]) if schema else "public")
        lines = "\n".join(f"{statement.as_string(connection)};" for statement in made)
        creation = worker_role.creation(role).as_string(connection)
    return _SCRIPT.format(role=role, creation=creation, statements=lines)


def apply_role(database_url: str, role: str, *, new_password: bool) -> WorkerRole:
    """Create a role unless it exists, and give it the rights of workers and no others.

    Args:
        new_password: Whether an existing role gets a new password as well.

    Raises:
        InvalidInput: The name is invalid, or the role's rights include those of the tables' owner.
        BadConfiguration: The database's user may not create roles.
        DatabaseUnavailable: The database does not answer.
    """
    _check_name(role)
    with engines.translate_errors(), psycopg.connect(engines.conninfo(database_url)) as connection:
        existed = worker_role.exists(connection, role)
        password = secrets.token_urlsafe(_PASSWORD_BYTES) if new_password or not existed else None
        try:
            if not existed:
                connection.execute(worker_role.creation(role))
            if password:  # as the server stores it, so that no log of statements has it
                verifier = connection.pgconn.encrypt_password(
                    password.encode(), role.encode(), b"scram-sha-256"
                )
                connection.execute(worker_role.with_password(role, verifier.decode()))
        except psycopg.errors.InsufficientPrivilege as exc:
            raise BadConfiguration(
                "The database's user may not create roles or change their passwords",
                where="PT2HUB_DATABASE_URL",
                hint=f"Let an administrator of the database run CREATE ROLE {role} LOGIN PASSWORD '...', then try again: "
                "an existing role needs no further rights of yours.",
            ) from exc
        _refuse_powerful(connection, role)
        worker_role.grant(connection, role)
    return WorkerRole(role, not existed, _with_login(database_url, role, password) if password else None)


def _check_name(role: str) -> None:
    if not _NAME.fullmatch(role) or role.startswith("pg_"):
        raise InvalidInput(
            f"Invalid role name {role[:80]!r}",
            where="--name",
            hint="Use lower-case letters, digits and _, such as pt2hub_worker; names that begin with pg_ are PostgreSQL's.",
        )


def _refuse_powerful(connection: psycopg.Connection, role: str) -> None:
    found = connection.execute(_POWERFUL, [role]).fetchone()
    if found and found[0]:
        raise InvalidInput(
            f"Role {role} can do more than workers need: it is a superuser, may create roles, or is a member of the "
            "tables' owner",
            where="--name",
            hint="Choose another name, such as pt2hub_worker.",
        )


def _with_login(database_url: str, role: str, password: str) -> str:
    """Return the URL with another user; the password has no characters to encode."""
    parts = urlsplit(database_url)
    hosts = parts.netloc.rpartition("@")[2]
    return urlunsplit(parts._replace(netloc=f"{role}:{password}@{hosts}"))
