"""Attempts with their outcome and log, queue order, and what workers say of themselves."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    _builds()
    _attempts()
    _workers()
    # The job of a build: whether one leads to it, and putting it further ahead.
    op.create_index(
        "ix_procrastinate_jobs_build_id", "procrastinate_jobs", [sa.text("(args ->> 'build_id')")]
    )


def _builds() -> None:
    op.add_column("builds", sa.Column("priority", sa.Integer(), server_default="0", nullable=False))
    op.add_column("builds", sa.Column("failures", sa.Integer(), server_default="0", nullable=False))
    op.add_column("builds", sa.Column("not_before", sa.DateTime(timezone=True), nullable=True))
    op.create_index(
        "ix_builds_queued",
        "builds",
        ["target", "priority", "queued_at", "id"],
        postgresql_where=sa.text("state = 'queued'"),
    )


def _attempts() -> None:
    op.create_table(
        "build_attempts",
        sa.Column("build_id", sa.Text(), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("worker_id", sa.Text(), nullable=False),
        sa.Column("started_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("ended_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("outcome", sa.Text(), nullable=True),
        sa.Column("error", postgresql.JSONB(none_as_null=True), nullable=True),
        sa.Column("reused", sa.Boolean(), nullable=True),
        sa.Column("log", sa.Text(), nullable=True),
        sa.Column("log_bytes", sa.BigInteger(), nullable=True),
        sa.Column("log_lines", sa.BigInteger(), nullable=True),
        sa.ForeignKeyConstraint(
            ["build_id"],
            ["builds.id"],
            name=op.f("fk_build_attempts_build_id_builds"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("build_id", "attempt", name=op.f("pk_build_attempts")),
    )
    op.create_index(
        "ix_build_attempts_unarchived",
        "build_attempts",
        ["ended_at"],
        postgresql_where=sa.text("log_lines IS NULL"),
    )
    # Attempts of before: how the latest one ended is known, of earlier ones only that they are over.
    op.execute(
        """
        INSERT INTO build_attempts (build_id, attempt, worker_id, started_at, ended_at, outcome, error)
        SELECT id, attempt, coalesce(worker_id, ''), started_at, finished_at,
               CASE WHEN finished_at IS NULL THEN NULL ELSE state END, error
        FROM builds WHERE attempt > 0 AND started_at IS NOT NULL
        """
    )
    # From now on a build names the worker that has it; who had it stands in its attempts.
    op.execute("UPDATE builds SET worker_id = NULL WHERE state <> 'running'")


def _workers() -> None:
    op.add_column("workers", sa.Column("host", sa.Text(), server_default="", nullable=False))
    op.add_column("workers", sa.Column("version", sa.Text(), server_default="", nullable=False))
    op.add_column("workers", sa.Column("concurrency", sa.Integer(), server_default="1", nullable=False))
    op.add_column("workers", sa.Column("clock_skew", sa.Double(), server_default="0", nullable=False))
    op.add_column("workers", sa.Column("draining_at", sa.DateTime(timezone=True), nullable=True))


def downgrade() -> None:
    op.drop_index("ix_procrastinate_jobs_build_id", table_name="procrastinate_jobs")
    for name in ("draining_at", "clock_skew", "concurrency", "version", "host"):
        op.drop_column("workers", name)
    op.drop_table("build_attempts")
    op.drop_index("ix_builds_queued", table_name="builds")
    for name in ("not_before", "failures", "priority"):
        op.drop_column("builds", name)
