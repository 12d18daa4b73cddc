"""Runs the revisions over the connection that `pt2hub.server.db.migrations` opened.

The environment is read by the server's settings only, so there is no other way in: use `pt2hub up`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from alembic import context

from pt2hub.server.db.queue_schema import PREFIX
from pt2hub.server.db.retention_schema import Base  # knows every table

if TYPE_CHECKING:
    import sqlalchemy


def ours(name: str | None, kind: str, _parents: object) -> bool:
    """Return whether autogenerate looks at a thing: procrastinate's tables come from its own files."""
    return not (kind == "table" and (name or "").startswith(PREFIX))


connection: sqlalchemy.Connection = context.config.attributes["connection"]
context.configure(
    connection=connection,
    target_metadata=Base.metadata,
    include_name=ours,
    # One transaction each: values added to an enumeration can be used only after a commit.
    transaction_per_migration=True,
)
with context.begin_transaction():
    context.run_migrations()
