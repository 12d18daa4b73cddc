"""The labels of a version are also one document in its row, so that one index answers all of a search's labels at once."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0039"
down_revision = "0033"
branch_labels = None
depends_on = None

_COLLECT = """
    UPDATE versions SET label_values = coalesce(
        (SELECT jsonb_object_agg(key, value) FROM labels WHERE labels.version_id = versions.id), '{}'
    )
"""


def upgrade() -> None:
    op.add_column("versions", sa.Column("label_values", JSONB(), nullable=False, server_default="{}"))
    # The journal has the labels themselves.
    op.execute("ALTER TABLE versions DISABLE TRIGGER journal_update")
    op.execute(f"{_COLLECT} WHERE id IN (SELECT version_id FROM labels)")  # noqa: S608
    op.execute("ALTER TABLE versions ENABLE TRIGGER journal_update")
    op.create_index(
        "ix_versions_label_values",
        "versions",
        ["label_values"],
        postgresql_using="gin",
        # A search would read all entries that are pending.
        postgresql_with={"fastupdate": "off"},
    )
    # Two statements: the second one sees what a change that held the lock has committed.
    op.execute(f"""
        CREATE FUNCTION collect_labels() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$ BEGIN
            PERFORM FROM versions WHERE id IN (SELECT version_id FROM changed) ORDER BY id FOR NO KEY UPDATE;
            {_COLLECT} WHERE id IN (SELECT version_id FROM changed);
            RETURN NULL;
        END $$
    """)  # noqa: S608
    for event, rows in (("insert", "NEW"), ("update", "NEW"), ("delete", "OLD")):
        op.execute(
            f"CREATE TRIGGER collect_{event} AFTER {event.upper()} ON labels "
            f"REFERENCING {rows} TABLE AS changed FOR EACH STATEMENT EXECUTE FUNCTION collect_labels()"
        )


def downgrade() -> None:
    op.execute("DROP FUNCTION collect_labels() CASCADE")
    op.drop_index("ix_versions_label_values", "versions")
    op.drop_column("versions", "label_values")
