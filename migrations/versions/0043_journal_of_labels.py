"""A version whose labels alone changed is not written to the journal again: its document has the spec, and not the labels."""

from __future__ import annotations

from alembic import op

revision = "0043"
down_revision = "0041"
branch_labels = None
depends_on = None

_TRIGGER = "CREATE TRIGGER journal_update AFTER UPDATE ON versions REFERENCING {rows} FOR EACH STATEMENT EXECUTE FUNCTION {function}()"


def upgrade() -> None:
    # With the rights of its owner, as the other functions of the journal.
    op.execute("""
        CREATE FUNCTION journal_changed_versions() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER
        SET search_path FROM CURRENT SET timezone TO 'UTC' AS $$ BEGIN
            INSERT INTO journal_outbox (kind, key)
            SELECT 'version', jsonb_build_array(models.name, changed.number)
            FROM changed JOIN before ON before.id = changed.id JOIN models ON models.id = changed.model_id
            WHERE to_jsonb(changed) - 'label_values' IS DISTINCT FROM to_jsonb(before) - 'label_values';
            RETURN NULL;
        END $$
    """)
    op.execute("DROP TRIGGER journal_update ON versions")
    rows = "NEW TABLE AS changed OLD TABLE AS before"
    op.execute(_TRIGGER.format(rows=rows, function="journal_changed_versions"))


def downgrade() -> None:
    op.execute("DROP FUNCTION journal_changed_versions() CASCADE")
    op.execute(_TRIGGER.format(rows="NEW TABLE AS changed", function="journal_versions"))
