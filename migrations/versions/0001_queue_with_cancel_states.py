"""The queue's schema up to procrastinate 2.6.

A revision of its own, since a value added to an enumeration can be used only after a commit (PostgreSQL 16 and
older), and procrastinate's later files use those that this one's last file adds.
"""

from __future__ import annotations

from alembic import op

from pt2hub.server.db import queue_schema

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    queue_schema.apply(op.get_bind(), after=None, up_to="02.06.00_01_add_cancel_states.sql")
