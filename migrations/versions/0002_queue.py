"""The queue's schema up to procrastinate 3.10."""

from __future__ import annotations

from alembic import op

from pt2hub.server.db import queue_schema

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    queue_schema.apply(
        op.get_bind(),
        after="02.06.00_01_add_cancel_states.sql",
        up_to="03.04.00_50_post_add_retry_failed_job_procedure.sql",
    )
