from __future__ import annotations

import contextlib
import shutil
import subprocess
import sys
from datetime import timedelta
from typing import TYPE_CHECKING

import alembic.command
import psycopg
import pytest
import sqlalchemy
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from procrastinate.schema import SchemaManager
from psycopg.types.json import Jsonb

from pt2hub.domain.digests import digest_json
from pt2hub.errors import BadConfiguration, DatabaseUnavailable, InternalError, SchemaNewer, SchemaOlder
from pt2hub.server.blobs.memory import MemoryStorage
from pt2hub.server.container import Container
from pt2hub.server.db import engine as engines
from pt2hub.server.db import migrations, queue_schema
from pt2hub.server.db.queue import BuildQueue
from pt2hub.server.db.retention_schema import Base
from support.postgres import create_database

if TYPE_CHECKING:
    from pathlib import Path

    from pt2hub.server.db.embedded import EmbeddedPostgres

CATALOGUE = """
    SELECT 'function ' || p.oid::regprocedure || ' ' || md5(regexp_replace(p.prosrc, '\\s+', '', 'g'))
    FROM pg_proc p WHERE p.proname LIKE 'procrastinate%'
    UNION SELECT 'column ' || table_name || '.' || column_name || ' ' || udt_name || ' ' || is_nullable
    FROM information_schema.columns WHERE table_name LIKE 'procrastinate%'
    UNION SELECT 'index ' || indexdef FROM pg_indexes
    WHERE tablename LIKE 'procrastinate%' AND indexname NOT LIKE 'ix\\_%'  -- ours
    UNION SELECT 'trigger ' || pg_get_triggerdef(oid) FROM pg_trigger WHERE tgname LIKE 'procrastinate%'
    UNION SELECT 'value ' || enumtypid::regtype || '.' || enumlabel FROM pg_enum
    UNION SELECT 'constraint ' || conrelid::regclass || ' ' || pg_get_constraintdef(oid)
    FROM pg_constraint WHERE conrelid <> 0 AND conrelid::regclass::text LIKE 'procrastinate%'
"""


def catalogue(database_url: str) -> set[str]:
    with psycopg.connect(database_url) as connection:
        return {row[0] for row in connection.execute(CATALOGUE)}


def test_an_upgraded_database_has_exactly_the_schema_of_the_code(database_url: str) -> None:
    with pytest.raises(SchemaOlder):
        migrations.require(database_url)
    migrations.upgrade(database_url)
    migrations.require(database_url)
    with engines.connect(database_url) as connection:
        options = {"include_name": _ours, "compare_server_default": True}
        context = MigrationContext.configure(connection, opts=options)
        assert compare_metadata(context, Base.metadata) == []


def _ours(name: str | None, kind: str, _parents: object) -> bool:
    return not (kind == "table" and (name or "").startswith(queue_schema.PREFIX))


def test_upgrading_again_changes_nothing(migrated_url: str) -> None:
    before = catalogue(migrated_url)
    migrations.upgrade(migrated_url)
    assert catalogue(migrated_url) == before


def test_the_queues_schema_is_the_one_of_the_installed_procrastinate(
    migrated_url: str, postgres: EmbeddedPostgres
) -> None:
    fresh = create_database(postgres)
    with psycopg.connect(fresh, autocommit=True) as connection:
        connection.execute(SchemaManager.get_schema())
    assert catalogue(migrated_url) == catalogue(fresh)


def test_every_file_of_the_installed_procrastinate_is_applied() -> None:
    files = queue_schema.delta_files(after=None, up_to="03.04.00_50_post_add_retry_failed_job_procedure.sql")
    assert files == sorted(files[0].parent.glob("*.sql"))  # else a revision for the new ones is due


def test_a_procrastinate_too_old_for_the_schema_is_named(tmp_path: Path) -> None:
    (tmp_path / "01.sql").touch()
    with pytest.raises(BadConfiguration, match=r"lacks 02\.sql"):
        queue_schema.delta_files(after="01.sql", up_to="02.sql", directory=tmp_path)


def test_two_processes_may_upgrade_at_once(database_url: str) -> None:
    program = "import sys; from pt2hub.server.db import migrations; migrations.upgrade(sys.argv[1])"
    command = [sys.executable, "-c", program, database_url]
    running = [subprocess.Popen(command, stderr=subprocess.PIPE, text=True) for _ in range(2)]
    outcomes = [(process.communicate()[1], process.returncode) for process in running]
    assert [code for _, code in outcomes] == [0, 0], outcomes
    migrations.require(database_url)


@pytest.mark.parametrize("operation", [migrations.upgrade, migrations.require])
def test_a_database_of_a_newer_pt2hub_is_left_alone(migrated_url: str, operation: object) -> None:
    with psycopg.connect(migrated_url) as connection:
        connection.execute("UPDATE alembic_version SET version_num = '9999'")
    with pytest.raises(SchemaNewer, match="9999, which this pt2hub does not know"):
        operation(migrated_url)  # type: ignore[operator]  # one of the two functions
    with psycopg.connect(migrated_url) as connection:
        assert connection.execute("SELECT version_num FROM alembic_version").fetchall() == [("9999",)]


def test_an_upgrade_gives_up_on_a_table_that_stays_locked(
    migrated_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(migrations, "_TIMEOUTS", "SET lock_timeout = '50ms'")
    with psycopg.connect(migrated_url) as connection:
        connection.execute("UPDATE alembic_version SET version_num = '0002'")
        connection.commit()
        # Holds what the next revision would have to touch.
        connection.execute("LOCK TABLE alembic_version IN ACCESS EXCLUSIVE MODE")
        with pytest.raises(DatabaseUnavailable, match="lock timeout"):
            migrations.upgrade(migrated_url)


def test_the_migrations_of_a_wheel_come_before_those_of_a_checkout(tmp_path: Path) -> None:
    package = tmp_path / "registry" / "pt2hub" / "server" / "db"
    package.mkdir(parents=True)
    with pytest.raises(InternalError, match="missing"):
        migrations.migrations_directory(package)
    for directory in (tmp_path / "migrations", package / "migrations"):
        shutil.copytree(migrations.migrations_directory(), directory)
        assert migrations.migrations_directory(package) == directory


def test_migrations_run_from_the_folder_a_wheel_carries(
    tmp_path: Path, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    carried = tmp_path / "50% wheel" / "migrations"  # a percent sign means something to Alembic's settings
    shutil.copytree(migrations.migrations_directory(), carried)
    monkeypatch.setattr(migrations, "migrations_directory", lambda: carried)
    migrations.upgrade(database_url)
    migrations.require(database_url)


def test_constraints_are_named_by_rule(migrated_url: str) -> None:
    with engines.connect(migrated_url) as connection:
        names = sqlalchemy.inspect(connection).get_unique_constraints("versions")
    assert {item["name"] for item in names} == {
        "uq_versions_model_id_number",
        "uq_versions_model_id_identity",
    }


def test_attempts_of_before_are_kept_and_closed(postgres: EmbeddedPostgres) -> None:
    url = create_database(postgres)
    migrate(url, "0004")
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(BEFORE)
        migrations.upgrade(url)
        attempts = connection.execute(
            "SELECT build_id, attempt, worker_id, outcome, error ->> 'code', ended_at IS NULL "
            "FROM build_attempts ORDER BY build_id"
        ).fetchall()
        assert attempts == [
            ("again", 2, "", None, None, True),
            ("failed", 3, "w1", "failed", "compile_failed", False),
            ("running", 1, "w1", None, None, True),
        ]
        holders = connection.execute(
            "SELECT id, worker_id, priority, failures FROM builds ORDER BY id"
        ).fetchall()
        assert holders == [
            ("again", None, 0, 0),
            ("failed", None, 0, 0),
            ("new", None, 0, 0),
            ("running", "w1", 0, 0),
        ]
    with engines.connect(url) as connection_:
        services = Container(
            engines.Sessions(connection_.engine),
            BuildQueue(url),
            MemoryStorage(),
            heartbeat_timeout=timedelta(seconds=15),
        )
        services.maintenance.tidy()
        outcomes = {
            name: services.builds.view(name).attempts[0].outcome for name in ("again", "failed", "running")
        }
    assert outcomes == {"again": "lost", "failed": "failed", "running": None}


def test_the_newest_revisions_can_be_taken_back(postgres: EmbeddedPostgres) -> None:
    url = create_database(postgres)
    migrate(url, "0004")
    before = columns(url)
    migrate(url, "head")
    with engines.connect(url) as connection:
        alembic.command.downgrade(migrations.configuration(connection), "0004")
    assert columns(url) == before


def test_figures_of_before_become_series_with_points_and_can_be_taken_back(
    postgres: EmbeddedPostgres,
) -> None:
    url = create_database(postgres)
    migrate(url, "0007")
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(BEFORE + MEASURED)
        environment = connection.execute(ENVIRONMENTS).fetchall()
        figures = connection.execute(FIGURES).fetchall()
        migrate(url, "head")

        class_fields = {"cpu_model": "cpu", "cpu_level": "x86_64_v4", "cores": 2, "torch": "2.13"}
        assert connection.execute("SELECT digest, class_digest, fields FROM environments").fetchall() == [
            ("sha256:e", digest_json(class_fields), {**class_fields, "memory_bytes": 1})
        ]
        assert connection.execute("""
            SELECT name, target, class_digest, metric, unit, batch, implementation FROM series
            JOIN models ON models.id = model_id ORDER BY metric, batch, implementation
        """).fetchall() == [
            ("vision/net", "torch2.13-cpu-x86_64_v4", digest_json(class_fields), *what)
            for what in (
                ("code_bytes", "B", 0, "artifact"),
                ("latency_p50", "ms", 2, "artifact"),
                ("latency_p50", "ms", 2, "eager"),
            )
        ]
        assert connection.execute("""
            SELECT metric, implementation, series_points.number, series_points.artifact, series_points.value, low, high, count,
                source, run, samples, replicates
            FROM series_points JOIN series ON series.id = series_id
            JOIN measurements USING (series_id, number) ORDER BY metric, implementation, number
        """).fetchall() == [
            ("code_bytes", "artifact", 1, "sha256:a1", 9, 9, 9, 1, "build", "new:3", None, None),
            (
                "latency_p50",
                "artifact",
                1,
                "sha256:a1",
                10.5,
                10.5,
                10.5,
                1,
                "build",
                "new:3",
                [10, 11],
                None,
            ),
            ("latency_p50", "artifact", 2, "sha256:a2", 12, 12, 12, 1, "build", "again:1", None, None),
            ("latency_p50", "eager", 1, "sha256:a1", 20, 20, 20, 1, "build", "new:3", None, None),
        ]
        connection.execute("""
            INSERT INTO builds (id, kind, version_id, target, position, request, first_submitted, state)
            SELECT 'later', 'measure', version_id, target, 1, '{"baseline": "sha256:b", "single_process": true}', false, 'queued' FROM builds WHERE id = 'new'
        """)
        connection.execute("""
            INSERT INTO measurements (series_id, number, artifact, environment, source, run, value, measured_at)
            SELECT series_id, number, artifact, environment, 'again', 'later:1:1', 14, measured_at + interval '1 day'
            FROM measurements WHERE value = 12
        """)
        point = "SELECT value FROM series_points WHERE count = 2"
        connection.execute("UPDATE series_points SET count = 2 WHERE value = 12")
        with engines.connect(url) as sql:
            alembic.command.downgrade(migrations.configuration(sql), "0009")
        assert connection.execute(point).fetchall() == [(13,)]
        report = "SELECT DISTINCT verification FROM artifacts"
        assert connection.execute(report).fetchall() == [({"verdict": "passed"},)]
        request = "SELECT request FROM builds WHERE id = 'later'"
        assert connection.execute(request).fetchall() == [({"beside": "sha256:b", "brief": True},)]
        migrate(url, "head")
        assert connection.execute(point).fetchall() == [(14,)]
        assert connection.execute(report).fetchall() == [({"result": "passed"},)]
        with engines.connect(url) as sql:
            alembic.command.downgrade(migrations.configuration(sql), "0007")
        assert connection.execute(ENVIRONMENTS).fetchall() == environment
        assert connection.execute(FIGURES).fetchall() == figures
        assert connection.execute("SELECT id FROM builds WHERE id = 'later'").fetchall() == []


def test_policies_and_forced_moves_of_before_get_the_new_words_and_can_be_taken_back(
    postgres: EmbeddedPostgres,
) -> None:
    url = create_database(postgres)
    migrate(url, "0014")
    stored = "SELECT document, forced FROM policies, alias_moves ORDER BY sequence"
    gates = [{"alias": None, "metric": "latency_p50", "max_worse": 0.05}]
    refused = [
        {"gate": gates[0], "path": f"gates[{index}]", "said": "slower", "comparison": comparison}
        for index, comparison in enumerate(
            ({"verdict": "not_comparable", "why": "too_few", "because": "few"}, None)
        )
    ]
    refused[0]["wanted"] = ["vision/net@1", "vision/net@2"]
    forced = {"revision": 1, "count": 2, "refused": refused}
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(
            """
            INSERT INTO models (name) VALUES ('vision/net');
            INSERT INTO aliases (model_id, name) VALUES (1, 'prod');
            """
        )
        connection.execute(
            "INSERT INTO policies (model_id, revision, document, by) VALUES (1, 1, %s, 'ada')",
            (Jsonb({"gates": gates, "metrics": {}}),),
        )
        for sequence, kept in enumerate((forced, None)):
            connection.execute(
                "INSERT INTO alias_moves (alias_id, sequence, reason, by, forced) VALUES (1, %s, '', 'ada', %s)",
                (sequence, kept and Jsonb(kept)),
            )
        before = connection.execute(stored).fetchall()
        migrate(url, "head")
        (document, kept), (_, none) = connection.execute(stored).fetchall()
        assert document == {"checks": gates, "metrics": {}}
        assert [(item["check"], item["path"], item["message"]) for item in kept["refused"]] == [
            (gates[0], "checks[0]", "slower"),
            (gates[0], "checks[1]", "slower"),
        ]
        assert (none, kept["refused"][0].keys()) == (
            None,
            {"check", "path", "message", "comparison", "required"},
        )
        assert kept["refused"][0]["required"] == ["vision/net@1", "vision/net@2"]
        assert [item["comparison"] for item in kept["refused"]] == [
            {"outcome": "inconclusive", "reason": "too_few", "explanation": "few"},
            None,
        ]
        with engines.connect(url) as sql:
            alembic.command.downgrade(migrations.configuration(sql), "0014")
        assert connection.execute(stored).fetchall() == before


def migrate(url: str, revision: str) -> None:
    with engines.connect(url) as connection:
        alembic.command.upgrade(migrations.configuration(connection), revision)


def columns(url: str) -> set[tuple[str, str]]:
    with psycopg.connect(url) as connection:
        query = "SELECT table_name, column_name FROM information_schema.columns WHERE table_schema = 'public'"
        return set(connection.execute(query).fetchall())


BEFORE = """
    INSERT INTO models (name) VALUES ('vision/net');
    INSERT INTO versions (model_id, number, identity, spec, pins)
        VALUES (1, 1, 'sha256:1', '{}', '{}'), (1, 2, 'sha256:2', '{}', '{}'),
               (1, 3, 'sha256:3', '{}', '{}'), (1, 4, 'sha256:4', '{}', '{}');
    INSERT INTO targets (name, torch, device, arch, os, machine)
        VALUES ('torch2.13-cpu-x86_64_v4', '2.13', 'cpu', 'x86_64_v4', 'linux', 'x86_64');
    INSERT INTO environments (digest, cpu_model, cpu_level, cores, memory_bytes, torch)
        VALUES ('sha256:e', 'cpu', 'x86_64_v4', 2, 1, '2.13');
    INSERT INTO workers (id, target, environment, toolchain, packages)
        VALUES ('w1', 'torch2.13-cpu-x86_64_v4', 'sha256:e', '{}', '{}');
    INSERT INTO builds (id, version_id, target, position, request, first_submitted, state, attempt, worker_id,
                        started_at, finished_at, error)
        VALUES ('new', 1, 'torch2.13-cpu-x86_64_v4', 0, '{}', true, 'queued', 0, NULL, NULL, NULL, NULL),
               ('again', 2, 'torch2.13-cpu-x86_64_v4', 0, '{}', true, 'queued', 2, NULL, now(), NULL, NULL),
               ('running', 3, 'torch2.13-cpu-x86_64_v4', 0, '{}', true, 'running', 1, 'w1', now(), NULL, NULL),
               ('failed', 4, 'torch2.13-cpu-x86_64_v4', 0, '{}', true, 'failed', 3, 'w1', now(), now(),
                '{"code": "compile_failed"}');
"""
MEASURED = """
    INSERT INTO artifacts (digest, build_id, attempt, environment, program_key, config, code, code_bytes, weights,
                           weights_bytes, single_file, single_file_bytes, torch, python, compiler, libc, pt2hub,
                           verification, provenance)
        SELECT digest, build, attempt, 'sha256:e', 'k', 'c', 'c', 1, 'w', 1, 's', 1, '2.13', '3.11', 'g', 'l', '0', '{"verdict": "passed"}', '{}'
        FROM (VALUES ('sha256:a1', 'new', 3), ('sha256:a2', 'again', 1)) AS made (digest, build, attempt);
    INSERT INTO measurements (artifact, environment, metric, value, unit, batch, subject, samples, measured_at)
        VALUES ('sha256:a1', 'sha256:e', 'latency_p50', 10.5, 'ms', 2, 'artifact', '[10, 11]', '2026-11-20T10:00Z'),
               ('sha256:a1', 'sha256:e', 'latency_p50', 20, 'ms', 2, 'eager', NULL, '2026-11-20T10:00Z'),
               ('sha256:a1', 'sha256:e', 'code_bytes', 9, 'B', NULL, 'artifact', NULL, '2026-11-20T10:00Z'),
               ('sha256:a2', 'sha256:e', 'latency_p50', 12, 'ms', 2, 'artifact', NULL, '2026-11-21T10:00Z');
"""
ENVIRONMENTS = """
    SELECT digest, cpu_model, cpu_level, cores, memory_bytes, torch, gpu, driver, cuda, triton FROM environments
"""
FIGURES = """
    SELECT artifact, environment, metric, value, unit, batch, subject, samples, measured_at FROM measurements
    ORDER BY artifact, metric, subject
"""


def test_the_schema_of_the_next_release_is_taken_and_of_none_later(migrated_url: str) -> None:
    with psycopg.connect(migrated_url, autocommit=True) as connection:
        connection.execute("UPDATE alembic_version SET version_num = '9999'")  # the next release's
        for works_from, raised in ((migrations.previous_revision(), None), ("9998", SchemaNewer)):
            connection.execute(
                "INSERT INTO server_settings (name, value) VALUES ('schema_works_from', %s) "
                "ON CONFLICT (name) DO UPDATE SET value = excluded.value",
                [works_from],
            )
            for operation in (migrations.require, migrations.upgrade):
                with pytest.raises(raised) if raised else contextlib.nullcontext():
                    operation(migrated_url)
        assert connection.execute("SELECT version_num FROM alembic_version").fetchall() == [("9999",)]
