"""The database role of workers: what it cannot do, and that it keeps its rights through upgrades."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import psycopg
import pytest

from pt2hub.errors import BadConfiguration, InvalidInput
from pt2hub.server import worker_access
from pt2hub.server.db import migrations, worker_role
from pt2hub.server.db.retention_schema import Base
from pt2hub.server.db.worker_role import DEFAULT_ROLE, GRANTS
from support.roles import worker_url

if TYPE_CHECKING:
    from collections.abc import Iterator

OTHER = "test_other_worker"
_PRIVILEGES = """
    SELECT table_name || ' ' || privilege_type FROM information_schema.table_privileges WHERE grantee = %s
    UNION SELECT table_name || '.' || column_name || ' ' || privilege_type
    FROM information_schema.column_privileges WHERE grantee = %s
"""


def privileges(url: str, role: str = DEFAULT_ROLE) -> set[str]:
    with psycopg.connect(url) as connection:
        return {row[0] for row in connection.execute(_PRIVILEGES, [role, role])}


@pytest.fixture
def other(migrated_url: str) -> Iterator[str]:
    """A role's name that no other test uses; the role is dropped in the end."""
    yield OTHER
    with psycopg.connect(migrated_url, autocommit=True) as connection:
        if worker_role.exists(connection, OTHER):
            connection.execute(f"DROP OWNED BY {OTHER}")
            connection.execute(f"DROP ROLE {OTHER}")


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT sha256 FROM api_tokens",
        "SELECT sha256 FROM web_sessions",
        "INSERT INTO api_tokens (name, sha256, admin) VALUES ('mine', 'x', true)",
        "UPDATE api_tokens SET admin = true",
        "SELECT name FROM aliases",
        "UPDATE aliases SET version_id = 1, moves = moves + 1",
        "INSERT INTO alias_moves (alias_id, sequence, reason, by) VALUES (1, 1, '', '')",
        "DELETE FROM alias_moves",
        "SELECT secret FROM webhook_secrets",
        "SELECT address FROM webhooks",
        "UPDATE webhooks SET enabled = false",
        "SELECT data FROM webhook_events",
        "INSERT INTO webhook_deliveries (webhook_id, event_id) VALUES (1, 'x')",
        "SELECT action FROM audit_log",
        "INSERT INTO audit_log (principal_kind, principal, action, resource) VALUES ('token', 'x', 'x', 'x')",
        "DELETE FROM audit_log",
        "UPDATE builds SET requested_by = '{}'",
        "DELETE FROM versions",
        "DELETE FROM models",
        "DELETE FROM artifacts",
        "DELETE FROM builds",
        "UPDATE models SET description = 'mine'",
        "UPDATE versions SET spec = '{}'",
        "UPDATE artifacts SET code = ''",
        "UPDATE builds SET version_id = 1",
        "UPDATE measurements SET value = 0",
        "INSERT INTO policies (model_id, revision, document, by) VALUES (1, 1, '{}', '')",
        "UPDATE policies SET document = '{}'",
        "UPDATE server_settings SET value = 'process'",
        "UPDATE alembic_version SET version_num = '9999'",
        "SELECT text FROM build_logs",
        "SELECT id FROM uploads",
        "DELETE FROM workers",
        "CREATE TABLE mine (id int)",
        "CREATE ROLE mine",
        "TRUNCATE builds",
    ],
)
def test_what_a_worker_needs_not_is_refused(migrated_url: str, statement: str) -> None:
    with (
        psycopg.connect(worker_url(migrated_url)) as connection,
        pytest.raises(psycopg.errors.InsufficientPrivilege),
    ):
        connection.execute(statement.encode())


def test_tables_that_are_not_listed_are_out_of_reach(migrated_url: str) -> None:
    reached = {re.split(r"[ .]", right)[0] for right in privileges(migrated_url)}

    assert reached == set(GRANTS)
    unlisted = set(Base.metadata.tables) - set(GRANTS)
    assert {
        "api_tokens",
        "web_sessions",
        "aliases",
        "alias_moves",
        "audit_log",
        "uploads",
        "webhook_secrets",
    } <= unlisted


def test_an_upgrade_grants_anew_and_takes_away_what_is_no_longer_listed(migrated_url: str) -> None:
    worker_role.ensure(migrated_url)
    granted = privileges(migrated_url)
    with psycopg.connect(migrated_url, autocommit=True) as connection:
        connection.execute(f"REVOKE ALL ON builds FROM {DEFAULT_ROLE}")
        connection.execute(f"GRANT SELECT ON api_tokens TO {DEFAULT_ROLE}")
        # As an older pt2hub, with another list, left it.
        connection.execute("UPDATE server_settings SET value = 'older' WHERE name = 'worker_role_grants'")
    assert privileges(migrated_url) != granted

    migrations.upgrade(migrated_url)

    assert privileges(migrated_url) == granted


def test_a_table_of_a_later_revision_is_out_of_reach_until_it_is_listed(
    migrated_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker_role.ensure(migrated_url)
    with psycopg.connect(migrated_url, autocommit=True) as connection:
        connection.execute("CREATE TABLE later (id int)")
    with (
        psycopg.connect(worker_url(migrated_url)) as connection,
        pytest.raises(psycopg.errors.InsufficientPrivilege),
    ):
        connection.execute("SELECT * FROM later")

    monkeypatch.setitem(GRANTS, "later", ("SELECT",))
    migrations.upgrade(migrated_url)

    with psycopg.connect(worker_url(migrated_url)) as connection:
        connection.execute("SELECT * FROM later")


def test_an_upgrade_of_a_copy_on_another_server_goes_on_without_the_role(migrated_url: str) -> None:
    with psycopg.connect(migrated_url, autocommit=True) as connection:
        connection.execute(
            "INSERT INTO server_settings (name, value) VALUES ('worker_role', 'not_on_this_server')"
        )

    migrations.upgrade(migrated_url)
    migrations.require(migrated_url)


def test_a_role_is_created_with_a_password_that_is_shown_once(migrated_url: str, other: str) -> None:
    made = worker_access.apply_role(migrated_url, other, new_password=False)

    assert made.created
    assert made.database_url is not None
    assert other not in repr(made.database_url.partition("@")[2])
    assert made.database_url.startswith(f"postgresql://{other}:")
    with psycopg.connect(made.database_url) as connection:
        connection.execute("SELECT name FROM models")
    with psycopg.connect(migrated_url) as connection:
        stored = connection.execute(
            "SELECT rolpassword FROM pg_authid WHERE rolname = %s", [other]
        ).fetchone()
    assert stored is not None
    assert stored[0].startswith("SCRAM-SHA-256$")

    again = worker_access.apply_role(migrated_url, other, new_password=False)
    assert (again.created, again.database_url) == (False, None)
    renewed = worker_access.apply_role(migrated_url, other, new_password=True)
    assert renewed.database_url not in (None, made.database_url)


def test_the_printed_sql_does_the_same(migrated_url: str, other: str) -> None:
    script = worker_access.role_script(migrated_url, other)
    with psycopg.connect(migrated_url, autocommit=True) as connection:
        connection.execute(script.encode())
        connection.execute(script.encode())  # running it twice is harmless

    assert privileges(migrated_url, other) == privileges(migrated_url)


@pytest.mark.parametrize("name", ["", "Upper", "with space", 'quote"', "pg_monitor", "x" * 64])
def test_invalid_names_are_refused(migrated_url: str, name: str) -> None:
    with pytest.raises(InvalidInput, match="Invalid role name"):
        worker_access.apply_role(migrated_url, name, new_password=False)


def test_the_owner_is_no_role_for_workers(migrated_url: str) -> None:
    before = privileges(migrated_url, "pt2hub")
    with pytest.raises(InvalidInput, match="can do more than workers need"):
        worker_access.apply_role(migrated_url, "pt2hub", new_password=False)
    assert privileges(migrated_url, "pt2hub") == before


def test_a_user_who_may_not_create_roles_learns_what_to_ask_for(migrated_url: str, other: str) -> None:
    with pytest.raises(BadConfiguration, match="may not create roles") as refused:
        worker_access.apply_role(worker_url(migrated_url), other, new_password=False)
    assert f"CREATE ROLE {other} LOGIN PASSWORD" in str(refused.value.hint)
