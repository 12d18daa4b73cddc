"""People who sign in with a provider, the roles of their groups, their sessions and tokens, and devices that ask for one."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import ARRAY, JSONB

revision = "0030"
down_revision = "0028"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "people",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=True), nullable=False),
        sa.Column("issuer", sa.Text(), nullable=False),
        sa.Column("subject", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("full_name", sa.Text(), nullable=False),
        sa.Column("email", sa.Text(), nullable=False),
        sa.Column("groups", ARRAY(sa.Text()), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column(
            "signed_in_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_people")),
        sa.UniqueConstraint("issuer", "subject", name=op.f("uq_people_issuer_subject")),
    )
    op.create_table(
        "role_assignments",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=True), nullable=False),
        sa.Column("group_name", sa.Text(), nullable=False),
        sa.Column("role", sa.Text(), nullable=False),
        sa.Column("pattern", sa.Text(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("created_by", JSONB(none_as_null=True), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_role_assignments")),
        sa.UniqueConstraint(
            "group_name", "role", "pattern", name=op.f("uq_role_assignments_group_name_role_pattern")
        ),
    )
    op.create_table(
        "device_requests",
        sa.Column("sha256", sa.Text(), nullable=False),
        sa.Column("user_code", sa.Text(), nullable=False),
        sa.Column("client", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), server_default="pending", nullable=False),
        sa.Column("interval_s", sa.Integer(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("polled_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("person_id", sa.BigInteger(), nullable=True),
        sa.Column("grant", JSONB(none_as_null=True), nullable=True),
        sa.PrimaryKeyConstraint("sha256", name=op.f("pk_device_requests")),
        sa.UniqueConstraint("user_code", name=op.f("uq_device_requests_user_code")),
        sa.ForeignKeyConstraint(
            ["person_id"], ["people.id"], name=op.f("fk_device_requests_person_id_people"), ondelete="CASCADE"
        ),
    )
    op.create_index(op.f("ix_device_requests_expires_at"), "device_requests", ["expires_at"])
    for table in ("api_tokens", "web_sessions"):
        op.add_column(table, sa.Column("person_id", sa.BigInteger(), nullable=True))
        op.create_index(op.f(f"ix_{table}_person_id"), table, ["person_id"])
        op.create_foreign_key(
            op.f(f"fk_{table}_person_id_people"), table, "people", ["person_id"], ["id"], ondelete="CASCADE"
        )
    op.alter_column("web_sessions", "token_id", nullable=True)
    op.create_check_constraint(
        op.f("ck_web_sessions_holder"), "web_sessions", "num_nonnulls(token_id, person_id) = 1"
    )


def downgrade() -> None:
    op.execute("DELETE FROM web_sessions WHERE token_id IS NULL")
    op.execute("DELETE FROM api_tokens WHERE person_id IS NOT NULL")
    op.drop_constraint(op.f("ck_web_sessions_holder"), "web_sessions")
    op.alter_column("web_sessions", "token_id", nullable=False)
    for table in ("api_tokens", "web_sessions"):
        op.drop_column(table, "person_id")
    op.drop_table("device_requests")
    op.drop_table("role_assignments")
    op.drop_table("people")
