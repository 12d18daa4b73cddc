"""Tokens allow kinds of action, on some models, for some time; those that exist keep what they could do."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import ARRAY

revision = "0023"
down_revision = "0022"
branch_labels = None
depends_on = None


def upgrade() -> None:
    scopes = sa.Column(
        "scopes", ARRAY(sa.Text()), server_default="{read,publish,build,measure,promote}", nullable=False
    )
    op.add_column("api_tokens", scopes)
    op.add_column("api_tokens", sa.Column("patterns", ARRAY(sa.Text()), server_default="{*}", nullable=False))
    op.add_column("api_tokens", sa.Column("expires_at", sa.DateTime(timezone=True), nullable=True))


def downgrade() -> None:
    op.drop_column("api_tokens", "expires_at")
    op.drop_column("api_tokens", "patterns")
    op.drop_column("api_tokens", "scopes")
