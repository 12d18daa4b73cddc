"""The tables of pt2hub."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    _models()
    _workers()
    _builds()
    _progress()
    _artifacts()
    _rows_of_artifacts()
    _measurements()


def _models() -> None:
    op.create_table(
        "models",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=True), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("description", sa.Text(), server_default="", nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_models")),
        sa.UniqueConstraint("name", name=op.f("uq_models_name")),
    )
    op.create_table(
        "targets",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("torch", sa.Text(), nullable=False),
        sa.Column("device", sa.Text(), nullable=False),
        sa.Column("arch", sa.Text(), nullable=False),
        sa.Column("cuda", sa.Text(), nullable=True),
        sa.Column("os", sa.Text(), nullable=False),
        sa.Column("machine", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_targets")),
    )
    op.create_index(op.f("ix_targets_device"), "targets", ["device"])
    op.create_table(
        "versions",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=True), nullable=False),
        sa.Column("model_id", sa.BigInteger(), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("identity", sa.Text(), nullable=False),
        sa.Column("spec", postgresql.JSONB(), nullable=False),
        sa.Column("pins", postgresql.JSONB(), nullable=False),
        sa.Column("weights", sa.Text(), nullable=True),
        sa.Column("golden", sa.Text(), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.ForeignKeyConstraint(["model_id"], ["models.id"], name=op.f("fk_versions_model_id_models")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_versions")),
        sa.UniqueConstraint("model_id", "identity", name=op.f("uq_versions_model_id_identity")),
        sa.UniqueConstraint("model_id", "number", name=op.f("uq_versions_model_id_number")),
    )


def _workers() -> None:
    op.create_table(
        "api_tokens",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=True), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("sha256", sa.Text(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("last_used_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("revoked_at", sa.DateTime(timezone=True), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_api_tokens")),
        sa.UniqueConstraint("sha256", name=op.f("uq_api_tokens_sha256")),
    )
    op.create_table(
        "environments",
        sa.Column("digest", sa.Text(), nullable=False),
        sa.Column("cpu_model", sa.Text(), nullable=False),
        sa.Column("cpu_level", sa.Text(), nullable=False),
        sa.Column("cores", sa.Integer(), nullable=False),
        sa.Column("memory_bytes", sa.BigInteger(), nullable=False),
        sa.Column("torch", sa.Text(), nullable=False),
        sa.Column("gpu", sa.Text(), nullable=True),
        sa.Column("driver", sa.Text(), nullable=True),
        sa.Column("cuda", sa.Text(), nullable=True),
        sa.Column("triton", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("digest", name=op.f("pk_environments")),
    )
    op.create_table(
        "workers",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("target", sa.Text(), nullable=False),
        sa.Column("environment", sa.Text(), nullable=False),
        sa.Column("toolchain", postgresql.JSONB(), nullable=False),
        sa.Column("packages", postgresql.JSONB(), nullable=False),
        sa.Column("started_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("last_seen", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("left_at", sa.DateTime(timezone=True), nullable=True),
        sa.ForeignKeyConstraint(
            ["environment"], ["environments.digest"], name=op.f("fk_workers_environment_environments")
        ),
        sa.ForeignKeyConstraint(["target"], ["targets.name"], name=op.f("fk_workers_target_targets")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_workers")),
    )
    op.create_index(op.f("ix_workers_target_last_seen"), "workers", ["target", "last_seen"])


def _builds() -> None:
    op.create_table(
        "builds",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("version_id", sa.BigInteger(), nullable=False),
        sa.Column("target", sa.Text(), nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("request", postgresql.JSONB(), nullable=False),
        sa.Column("first_submitted", sa.Boolean(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("attempt", sa.Integer(), server_default="0", nullable=False),
        sa.Column("worker_id", sa.Text(), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("queued_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("started_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("finished_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("error", postgresql.JSONB(), nullable=True),
        sa.CheckConstraint(
            "state IN ('queued', 'running', 'succeeded', 'failed', 'cancelled')", name=op.f("ck_builds_state")
        ),
        sa.ForeignKeyConstraint(["target"], ["targets.name"], name=op.f("fk_builds_target_targets")),
        sa.ForeignKeyConstraint(["version_id"], ["versions.id"], name=op.f("fk_builds_version_id_versions")),
        sa.ForeignKeyConstraint(["worker_id"], ["workers.id"], name=op.f("fk_builds_worker_id_workers")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_builds")),
        sa.UniqueConstraint("version_id", "target", name=op.f("uq_builds_version_id_target")),
    )
    op.create_index(
        "ix_builds_unfinished",
        "builds",
        ["state", "worker_id"],
        postgresql_where=sa.text("state IN ('queued', 'running')"),
    )


def _progress() -> None:
    op.create_table(
        "build_logs",
        sa.Column("build_id", sa.Text(), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("seq", sa.BigInteger(), nullable=False),
        sa.Column("at", sa.Double(), nullable=False),
        sa.Column("step", sa.Text(), nullable=False),
        sa.Column("level", sa.Text(), nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["build_id"], ["builds.id"], name=op.f("fk_build_logs_build_id_builds"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("build_id", "attempt", "seq", name=op.f("pk_build_logs")),
    )
    op.create_table(
        "build_steps",
        sa.Column("build_id", sa.Text(), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column(
            "started_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("clock_timestamp()"),
            nullable=False,
        ),
        sa.Column("seconds", sa.Double(), nullable=True),
        sa.Column("detail", sa.Text(), nullable=True),
        sa.ForeignKeyConstraint(
            ["build_id"], ["builds.id"], name=op.f("fk_build_steps_build_id_builds"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("build_id", "attempt", "name", name=op.f("pk_build_steps")),
    )


def _artifacts() -> None:
    op.create_table(
        "artifacts",
        sa.Column("digest", sa.Text(), nullable=False),
        sa.Column("build_id", sa.Text(), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("environment", sa.Text(), nullable=False),
        sa.Column("program_key", sa.Text(), nullable=False),
        sa.Column("config", sa.Text(), nullable=False),
        sa.Column("code", sa.Text(), nullable=False),
        sa.Column("code_bytes", sa.BigInteger(), nullable=False),
        sa.Column("weights", sa.Text(), nullable=False),
        sa.Column("weights_bytes", sa.BigInteger(), nullable=False),
        sa.Column("single_file", sa.Text(), nullable=False),
        sa.Column("single_file_bytes", sa.BigInteger(), nullable=False),
        sa.Column("dtype", sa.Text(), nullable=True),
        sa.Column("torch", sa.Text(), nullable=False),
        sa.Column("python", sa.Text(), nullable=False),
        sa.Column("compiler", sa.Text(), nullable=False),
        sa.Column("libc", sa.Text(), nullable=False),
        sa.Column("pt2hub", sa.Text(), nullable=False),
        sa.Column("triton", sa.Text(), nullable=True),
        sa.Column("cuda", sa.Text(), nullable=True),
        sa.Column("driver", sa.Text(), nullable=True),
        sa.Column("verification", postgresql.JSONB(), nullable=False),
        sa.Column("provenance", postgresql.JSONB(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.ForeignKeyConstraint(["build_id"], ["builds.id"], name=op.f("fk_artifacts_build_id_builds")),
        sa.ForeignKeyConstraint(
            ["environment"], ["environments.digest"], name=op.f("fk_artifacts_environment_environments")
        ),
        sa.PrimaryKeyConstraint("digest", name=op.f("pk_artifacts")),
        sa.UniqueConstraint("build_id", name=op.f("uq_artifacts_build_id")),
    )
    op.create_index(op.f("ix_artifacts_program_key"), "artifacts", ["program_key"])
    op.create_index(op.f("ix_artifacts_torch"), "artifacts", ["torch"])
    op.create_table(
        "referrers",
        sa.Column("digest", sa.Text(), nullable=False),
        sa.Column("artifact", sa.Text(), nullable=False),
        sa.Column("artifact_type", sa.Text(), nullable=False),
        sa.Column("size", sa.BigInteger(), nullable=False),
        sa.Column("annotations", postgresql.JSONB(), nullable=False),
        sa.ForeignKeyConstraint(
            ["artifact"],
            ["artifacts.digest"],
            name=op.f("fk_referrers_artifact_artifacts"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("digest", name=op.f("pk_referrers")),
    )
    op.create_index(op.f("ix_referrers_artifact"), "referrers", ["artifact"])


def _rows_of_artifacts() -> None:
    op.create_table(
        "archive_members",
        sa.Column("artifact", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("size", sa.BigInteger(), nullable=False),
        sa.Column("digest", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["artifact"],
            ["artifacts.digest"],
            name=op.f("fk_archive_members_artifact_artifacts"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("artifact", "name", name=op.f("pk_archive_members")),
    )
    op.create_index(op.f("ix_archive_members_digest"), "archive_members", ["digest"])
    op.create_table(
        "autotune_choices",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=True), nullable=False),
        sa.Column("artifact", sa.Text(), nullable=False),
        sa.Column("op", sa.Text(), nullable=False),
        sa.Column("shapes", postgresql.JSONB(), nullable=False),
        sa.Column("dtypes", postgresql.JSONB(), nullable=False),
        sa.Column("candidate", sa.Text(), nullable=False),
        sa.Column("milliseconds", sa.Double(), nullable=False),
        sa.Column("rank", sa.Integer(), nullable=False),
        sa.Column("chosen", sa.Boolean(), nullable=False),
        sa.ForeignKeyConstraint(
            ["artifact"],
            ["artifacts.digest"],
            name=op.f("fk_autotune_choices_artifact_artifacts"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_autotune_choices")),
    )
    op.create_index(op.f("ix_autotune_choices_artifact"), "autotune_choices", ["artifact"])
    op.create_index(op.f("ix_autotune_choices_op"), "autotune_choices", ["op"])


def _measurements() -> None:
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
        sa.Column("samples", postgresql.JSONB(), nullable=True),
        sa.Column("measured_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(
            ["artifact"],
            ["artifacts.digest"],
            name=op.f("fk_measurements_artifact_artifacts"),
            ondelete="CASCADE",
        ),
        sa.ForeignKeyConstraint(
            ["environment"], ["environments.digest"], name=op.f("fk_measurements_environment_environments")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_measurements")),
    )
    op.create_index(op.f("ix_measurements_artifact"), "measurements", ["artifact"])
    op.create_index(op.f("ix_measurements_metric_subject"), "measurements", ["metric", "subject"])
