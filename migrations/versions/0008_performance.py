"""The performance history: series, points, pairs, events and policies; measuring jobs; admins' tokens."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import ARRAY, JSONB

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None

_TIME = sa.DateTime(timezone=True)
_JSON = JSONB(none_as_null=True)
_OLD_FIELDS = ("cpu_model", "cpu_level", "cores", "memory_bytes", "torch", "gpu", "driver", "cuda", "triton")


def upgrade() -> None:
    op.add_column("alias_moves", sa.Column("forced", _JSON, nullable=True))
    op.add_column("api_tokens", sa.Column("admin", sa.Boolean(), server_default="false", nullable=False))
    op.execute("UPDATE api_tokens SET admin = true")  # there was nothing that a token could not do
    _tell_kinds_of_builds()
    _keep_environments_whole()
    _create_series()
    _refer_measurements_to_series()
    _create_pairs_and_points()
    _create_events_and_policies()


def _tell_kinds_of_builds() -> None:
    op.add_column("builds", sa.Column("kind", sa.Text(), server_default="build", nullable=False))
    op.create_check_constraint(op.f("ck_builds_kind"), "builds", "kind IN ('build', 'measure')")
    op.drop_constraint("uq_builds_version_id_target", "builds")
    op.create_index(
        "ix_builds_version_target",
        "builds",
        ["version_id", "target"],
        unique=True,
        postgresql_where=sa.text("kind = 'build'"),
    )
    op.create_index("ix_builds_version_id", "builds", ["version_id"])


def _keep_environments_whole() -> None:
    """One document instead of a column for each field, and the class that series hang on."""
    op.add_column("environments", sa.Column("class_digest", sa.Text(), nullable=True))
    op.add_column("environments", sa.Column("fields", _JSON, nullable=True))
    connection = op.get_bind()
    columns = ", ".join(("digest", *_OLD_FIELDS))
    for row in connection.execute(sa.text(f"SELECT {columns} FROM environments")).mappings():  # noqa: S608  # literal names
        fields = {name: row[name] for name in _OLD_FIELDS if row[name] is not None}
        of_class = {name: value for name, value in fields.items() if name != "memory_bytes"}
        given = {"digest": row["digest"], "class": _digest(of_class), "fields": json.dumps(fields)}
        connection.execute(
            sa.text(
                "UPDATE environments SET class_digest = :class, fields = CAST(:fields AS jsonb) WHERE digest = :digest"
            ),
            given,
        )
    op.alter_column("environments", "class_digest", nullable=False)
    op.alter_column("environments", "fields", nullable=False)
    op.create_index(op.f("ix_environments_class_digest"), "environments", ["class_digest"])
    for name in _OLD_FIELDS:
        op.drop_column("environments", name)


def _digest(fields: dict[str, Any]) -> str:
    """Return `domain.digests.digest_json` as of this revision."""
    text = json.dumps(fields, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"


def _create_series() -> None:
    op.create_table(
        "series",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=True), nullable=False),
        sa.Column("model_id", sa.BigInteger(), nullable=False),
        sa.Column("target", sa.Text(), nullable=False),
        sa.Column("class_digest", sa.Text(), nullable=False),
        sa.Column("metric", sa.Text(), nullable=False),
        sa.Column("unit", sa.Text(), nullable=False),
        sa.Column("batch", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("subject", sa.Text(), server_default="artifact", nullable=False),
        sa.Column("changed_at", _TIME, server_default=sa.text("now()"), nullable=False),
        sa.Column("examined_at", _TIME, nullable=True),
        sa.Column("newest_at", _TIME, nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_series")),
        sa.ForeignKeyConstraint(["model_id"], ["models.id"], name=op.f("fk_series_model_id_models")),
        sa.ForeignKeyConstraint(["target"], ["targets.name"], name=op.f("fk_series_target_targets")),
        sa.UniqueConstraint(
            "model_id", "metric", "target", "batch", "subject", "class_digest", "unit", name="uq_series_what"
        ),
    )
    op.create_index(
        "ix_series_unexamined",
        "series",
        ["changed_at"],
        postgresql_where=sa.text("examined_at IS DISTINCT FROM changed_at"),
    )
    front = sa.text("metric = 'latency_p50' AND subject = 'artifact' AND newest_at IS NOT NULL")
    op.create_index("ix_series_front", "series", ["newest_at", "model_id"], postgresql_where=front)
    op.create_index(
        "ix_series_front_model", "series", ["model_id", "newest_at", "id"], postgresql_where=front
    )


def _refer_measurements_to_series() -> None:
    op.execute("""
        CREATE TEMPORARY TABLE old_measurements ON COMMIT DROP AS
        SELECT measurements.*, versions.model_id, versions.number, builds.target, environments.class_digest,
            builds.id || ':' || artifacts.attempt AS run
        FROM measurements
        JOIN artifacts ON artifacts.digest = measurements.artifact
        JOIN builds ON builds.id = artifacts.build_id
        JOIN versions ON versions.id = builds.version_id
        JOIN environments ON environments.digest = measurements.environment
    """)
    op.execute("""
        INSERT INTO series (model_id, target, class_digest, metric, unit, batch, subject)
        SELECT DISTINCT model_id, target, class_digest, metric, unit, coalesce(batch, 0), subject
        FROM old_measurements
    """)
    op.drop_table("measurements")
    _create_measurements()
    op.execute("""
        INSERT INTO measurements
            (series_id, number, artifact, environment, source, run, value, samples, measured_at, received_at)
        SELECT series.id, old.number, old.artifact, old.environment, 'build', old.run, old.value, old.samples,
            old.measured_at, old.measured_at
        FROM old_measurements AS old JOIN series
            USING (model_id, target, class_digest, metric, unit, subject)
        WHERE series.batch = coalesce(old.batch, 0)
        ON CONFLICT DO NOTHING
    """)


def _create_measurements() -> None:
    op.create_table(
        "measurements",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=True), nullable=False),
        sa.Column("series_id", sa.BigInteger(), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("artifact", sa.Text(), nullable=False),
        sa.Column("environment", sa.Text(), nullable=False),
        sa.Column("source", sa.Text(), nullable=False),
        sa.Column("run", sa.Text(), nullable=True),
        sa.Column("reporter", sa.Text(), nullable=True),
        sa.Column("key", sa.Text(), nullable=True),
        sa.Column("value", sa.Double(), nullable=False),
        sa.Column("replicates", ARRAY(sa.Double()), nullable=True),
        sa.Column("samples", _JSON, nullable=True),
        sa.Column("measured_at", _TIME, nullable=False),
        sa.Column("received_at", _TIME, server_default=sa.text("now()"), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_measurements")),
        sa.CheckConstraint("source IN ('build', 'again', 'report')", name=op.f("ck_measurements_source")),
        sa.ForeignKeyConstraint(["series_id"], ["series.id"], name=op.f("fk_measurements_series_id_series")),
        sa.ForeignKeyConstraint(
            ["artifact"],
            ["artifacts.digest"],
            name=op.f("fk_measurements_artifact_artifacts"),
            ondelete="CASCADE",
        ),
        sa.ForeignKeyConstraint(
            ["environment"], ["environments.digest"], name=op.f("fk_measurements_environment_environments")
        ),
    )
    op.create_index(
        "ix_measurements_series_id_number_measured_at_id",
        "measurements",
        ["series_id", "number", "measured_at", "id"],
    )
    op.create_index(op.f("ix_measurements_artifact"), "measurements", ["artifact"])
    op.create_index(
        "uq_measurements_run",
        "measurements",
        ["series_id", "number", "run"],
        unique=True,
        postgresql_where=sa.text("run IS NOT NULL"),
    )
    op.create_index(
        "uq_measurements_key",
        "measurements",
        ["reporter", "key"],
        unique=True,
        postgresql_where=sa.text("key IS NOT NULL"),
    )


def _create_pairs_and_points() -> None:
    op.create_table(
        "measurement_pairs",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=True), nullable=False),
        sa.Column("series_id", sa.BigInteger(), nullable=False),
        sa.Column("artifact", sa.Text(), nullable=False),
        sa.Column("baseline", sa.Text(), nullable=False),
        sa.Column("run", sa.Text(), nullable=False),
        sa.Column("ratios", ARRAY(sa.Double()), nullable=False),
        sa.Column("measured_at", _TIME, nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_measurement_pairs")),
        sa.UniqueConstraint(
            "series_id",
            "artifact",
            "baseline",
            "run",
            name=op.f("uq_measurement_pairs_series_id_artifact_baseline_run"),
        ),
        sa.ForeignKeyConstraint(
            ["series_id"], ["series.id"], name=op.f("fk_measurement_pairs_series_id_series")
        ),
        *(
            sa.ForeignKeyConstraint(
                [name],
                ["artifacts.digest"],
                name=op.f(f"fk_measurement_pairs_{name}_artifacts"),
                ondelete="CASCADE",
            )
            for name in ("artifact", "baseline")
        ),
    )
    op.create_index(op.f("ix_measurement_pairs_artifact"), "measurement_pairs", ["artifact"])
    op.create_index(op.f("ix_measurement_pairs_baseline"), "measurement_pairs", ["baseline"])
    op.create_table(
        "series_points",
        sa.Column("series_id", sa.BigInteger(), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("artifact", sa.Text(), nullable=False),
        sa.Column("value", sa.Double(), nullable=False),
        sa.Column("low", sa.Double(), nullable=False),
        sa.Column("high", sa.Double(), nullable=False),
        sa.Column("count", sa.Integer(), nullable=False),
        sa.Column("measured_at", _TIME, nullable=False),
        sa.PrimaryKeyConstraint("series_id", "number", name=op.f("pk_series_points")),
        sa.ForeignKeyConstraint(["series_id"], ["series.id"], name=op.f("fk_series_points_series_id_series")),
        sa.ForeignKeyConstraint(
            ["artifact"],
            ["artifacts.digest"],
            name=op.f("fk_series_points_artifact_artifacts"),
            ondelete="CASCADE",
        ),
    )
    op.create_index(op.f("ix_series_points_artifact"), "series_points", ["artifact"])
    op.execute("""
        INSERT INTO series_points
        SELECT series_id, number, max(artifact), percentile_cont(0.5) WITHIN GROUP (ORDER BY value),
            min(value), max(value), count(*), max(measured_at)
        FROM measurements GROUP BY series_id, number
    """)
    op.execute("""
        UPDATE series SET newest_at = newest.at
        FROM (SELECT series_id, max(measured_at) AS at FROM series_points GROUP BY series_id) AS newest
        WHERE series.id = newest.series_id
    """)


def _create_events_and_policies() -> None:
    op.create_table(
        "performance_events",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=True), nullable=False),
        sa.Column("series_id", sa.BigInteger(), nullable=False),
        sa.Column("model_id", sa.BigInteger(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("before", sa.Integer(), nullable=False),
        sa.Column("verdict", sa.Text(), nullable=False),
        sa.Column("ratio", sa.Double(), nullable=False),
        sa.Column("low", sa.Double(), nullable=True),
        sa.Column("high", sa.Double(), nullable=True),
        sa.Column("method", sa.Text(), nullable=False),
        sa.Column("at", _TIME, server_default=sa.text("clock_timestamp()"), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_performance_events")),
        sa.UniqueConstraint(
            "series_id", "kind", "number", name=op.f("uq_performance_events_series_id_kind_number")
        ),
        sa.CheckConstraint("kind IN ('comparison', 'change_point')", name=op.f("ck_performance_events_kind")),
        sa.CheckConstraint("verdict IN ('better', 'worse')", name=op.f("ck_performance_events_verdict")),
        sa.ForeignKeyConstraint(
            ["series_id"], ["series.id"], name=op.f("fk_performance_events_series_id_series")
        ),
        sa.ForeignKeyConstraint(
            ["model_id"], ["models.id"], name=op.f("fk_performance_events_model_id_models")
        ),
    )
    op.create_index("ix_performance_events_at_id", "performance_events", ["at", "id"])
    op.create_index("ix_performance_events_model_id_at_id", "performance_events", ["model_id", "at", "id"])
    op.create_table(
        "policies",
        sa.Column("model_id", sa.BigInteger(), nullable=False),
        sa.Column("revision", sa.Integer(), nullable=False),
        sa.Column("document", _JSON, nullable=False),
        sa.Column("by", sa.Text(), nullable=False),
        sa.Column("at", _TIME, server_default=sa.text("clock_timestamp()"), nullable=False),
        sa.PrimaryKeyConstraint("model_id", name=op.f("pk_policies")),
        sa.ForeignKeyConstraint(["model_id"], ["models.id"], name=op.f("fk_policies_model_id_models")),
    )


def downgrade() -> None:
    """Keep what builds measured of artifacts; reports, measuring jobs, events and policies are lost."""
    for table in ("policies", "performance_events", "series_points", "measurement_pairs"):
        op.drop_table(table)
    _restore_measurements()
    op.drop_table("series")
    _restore_environments()
    op.execute("DELETE FROM builds WHERE kind = 'measure'")
    op.drop_index("ix_builds_version_target", table_name="builds")
    op.drop_index("ix_builds_version_id", table_name="builds")
    op.create_unique_constraint(op.f("uq_builds_version_id_target"), "builds", ["version_id", "target"])
    op.drop_constraint(op.f("ck_builds_kind"), "builds")
    op.drop_column("builds", "kind")
    op.drop_column("api_tokens", "admin")
    op.drop_column("alias_moves", "forced")


def _restore_measurements() -> None:
    op.execute("""
        CREATE TEMPORARY TABLE new_measurements ON COMMIT DROP AS
        SELECT measurements.*, metric, unit, nullif(batch, 0) AS batch, subject
        FROM measurements JOIN series ON series.id = series_id WHERE source = 'build'
    """)
    op.drop_table("measurements")
    op.create_table(
        "measurements",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=True), nullable=False),
        sa.Column("artifact", sa.Text(), nullable=False),
        sa.Column("environment", sa.Text(), nullable=False),
        sa.Column("metric", sa.Text(), nullable=False),
        sa.Column("value", sa.Double(), nullable=False),
        sa.Column("unit", sa.Text(), nullable=False),
        sa.Column("batch", sa.BigInteger(), nullable=True),
        sa.Column("subject", sa.Text(), nullable=False),
        sa.Column("samples", _JSON, nullable=True),
        sa.Column("measured_at", _TIME, nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_measurements")),
        sa.ForeignKeyConstraint(
            ["artifact"],
            ["artifacts.digest"],
            name=op.f("fk_measurements_artifact_artifacts"),
            ondelete="CASCADE",
        ),
        sa.ForeignKeyConstraint(
            ["environment"], ["environments.digest"], name=op.f("fk_measurements_environment_environments")
        ),
    )
    op.create_index("ix_measurements_metric_subject", "measurements", ["metric", "subject"])
    op.create_index(op.f("ix_measurements_artifact"), "measurements", ["artifact"])
    columns = "artifact, environment, metric, value, unit, batch, subject, samples, measured_at"
    op.execute(f"INSERT INTO measurements ({columns}) SELECT {columns} FROM new_measurements")  # noqa: S608  # literal names


def _restore_environments() -> None:
    kinds = {"cores": sa.Integer(), "memory_bytes": sa.BigInteger()}
    for name in _OLD_FIELDS:
        op.add_column("environments", sa.Column(name, kinds.get(name, sa.Text()), nullable=True))
        kind = {"cores": "integer", "memory_bytes": "bigint"}.get(name, "text")
        op.execute(f"UPDATE environments SET {name} = CAST(fields ->> '{name}' AS {kind})")  # noqa: S608  # literal names
    for name in ("cpu_model", "cpu_level", "torch"):
        op.execute(f"UPDATE environments SET {name} = coalesce({name}, '')")  # noqa: S608  # literal names
        op.alter_column("environments", name, nullable=False)
    for name in ("cores", "memory_bytes"):
        op.execute(f"UPDATE environments SET {name} = coalesce({name}, 0)")  # noqa: S608  # literal names
        op.alter_column("environments", name, nullable=False)
    op.drop_index(op.f("ix_environments_class_digest"), table_name="environments")
    op.drop_column("environments", "fields")
    op.drop_column("environments", "class_digest")
