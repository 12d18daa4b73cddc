"""Tombstones, refused digests, pulls of versions, retention policies and runs of the blob collector."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import ARRAY, JSONB

revision = "0031"
down_revision = "0030"
branch_labels = None
depends_on = None

_JSON = JSONB(none_as_null=True)
_TIME = sa.DateTime(timezone=True)


def upgrade() -> None:
    op.create_table(
        "tombstones",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=True), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("model", sa.Text(), nullable=True),
        sa.Column("number", sa.Integer(), nullable=True),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("by", _JSON, nullable=True),
        sa.Column("forced", sa.Boolean(), server_default=sa.text("false"), nullable=False),
        sa.Column("artifacts", ARRAY(sa.Text()), server_default=sa.text("'{}'"), nullable=False),
        sa.Column("at", _TIME, server_default=sa.text("clock_timestamp()"), nullable=False),
        sa.Column("document", sa.Text(), nullable=True),
        sa.CheckConstraint("kind IN ('version', 'model', 'build')", name=op.f("ck_tombstones_kind")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_tombstones")),
        sa.UniqueConstraint("document", name=op.f("uq_tombstones_document")),
    )
    op.create_index(op.f("ix_tombstones_name"), "tombstones", ["name"])
    op.create_index(op.f("ix_tombstones_model_number"), "tombstones", ["model", "number"])
    op.create_index("ix_tombstones_artifacts", "tombstones", ["artifacts"], postgresql_using="gin")
    op.create_index(
        "ix_tombstones_unwritten", "tombstones", ["id"], postgresql_where=sa.text("document IS NULL")
    )
    op.create_table(
        "refused_digests",
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("digest", sa.Text(), nullable=False),
        sa.Column("tombstone_id", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(
            ["tombstone_id"], ["tombstones.id"], name=op.f("fk_refused_digests_tombstone_id_tombstones")
        ),
        sa.PrimaryKeyConstraint("kind", "digest", name=op.f("pk_refused_digests")),
    )
    op.create_index(op.f("ix_refused_digests_tombstone_id"), "refused_digests", ["tombstone_id"])
    op.create_table(
        "version_pulls",
        sa.Column("version_id", sa.BigInteger(), nullable=False),
        sa.Column("pulled_on", sa.Date(), nullable=False),
        sa.ForeignKeyConstraint(
            ["version_id"],
            ["versions.id"],
            name=op.f("fk_version_pulls_version_id_versions"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("version_id", name=op.f("pk_version_pulls")),
    )
    op.create_table(
        "retention_policies",
        sa.Column("scope", sa.Text(), nullable=False),
        sa.Column("document", _JSON, nullable=False),
        sa.Column("by", _JSON, nullable=True),
        sa.Column("at", _TIME, server_default=sa.text("clock_timestamp()"), nullable=False),
        sa.PrimaryKeyConstraint("scope", name=op.f("pk_retention_policies")),
    )
    op.create_table(
        "collections",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=True), nullable=False),
        sa.Column("trigger", sa.Text(), nullable=False),
        sa.Column("started_at", _TIME, server_default=sa.text("now()"), nullable=False),
        sa.Column("ended_at", _TIME, nullable=True),
        sa.Column("counts", _JSON, nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_collections")),
    )


def downgrade() -> None:
    for table in ("collections", "retention_policies", "version_pulls", "refused_digests", "tombstones"):
        op.drop_table(table)
