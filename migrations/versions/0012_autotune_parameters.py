"""Candidates of autotuning with what they are: template and parameters, why one failed, and what tuning took."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None

_TABLE = "autotune_choices"


def upgrade() -> None:
    # Rows of before keep no parameters (null): which kernel they were is not known, and nothing is made up for it.
    for column in (
        sa.Column("template", sa.Text(), server_default="", nullable=False),
        sa.Column("parameters", postgresql.JSONB(), nullable=True),
        sa.Column("reason", sa.Text(), server_default="", nullable=False),
        sa.Column("strides", postgresql.JSONB(), server_default="[]", nullable=False),
        sa.Column("operation", sa.Integer(), server_default="0", nullable=False),
        sa.Column("precompile_seconds", sa.Double(), nullable=True),
        sa.Column("benchmark_seconds", sa.Double(), nullable=True),
    ):
        op.add_column(_TABLE, column)
    op.alter_column(_TABLE, "milliseconds", nullable=True)


def downgrade() -> None:
    op.execute(sa.text(f"DELETE FROM {_TABLE} WHERE milliseconds IS NULL"))  # noqa: S608  # a name of our own
    op.alter_column(_TABLE, "milliseconds", nullable=False)
    for name in (
        "benchmark_seconds",
        "precompile_seconds",
        "operation",
        "strides",
        "reason",
        "parameters",
        "template",
    ):
        op.drop_column(_TABLE, name)
