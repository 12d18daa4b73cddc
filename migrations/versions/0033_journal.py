"""What storage cannot tell is marked as changed, for the journal in storage: triggers fill an outbox."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0033"
down_revision = "0036"
branch_labels = None
depends_on = None

_MODELS = "JOIN models ON models.id = changed.model_id"
# Kind of the entry, its key in names that outlive the database, and the rows that it is made of.
_MARKS = {
    "models": ("model", "changed.name", ""),
    "versions": ("version", "models.name, changed.number", _MODELS),
    "version_yanks": (
        "version",
        "models.name, versions.number",
        "JOIN versions ON versions.id = changed.version_id JOIN models ON models.id = versions.model_id",
    ),
    "labels": (
        "label",
        "models.name, versions.number, changed.key",
        f"{_MODELS} LEFT JOIN versions ON versions.id = changed.version_id",
    ),
    "builds": ("build", "changed.id", "WHERE changed.kind = 'build' AND changed.state <> 'running'"),
    "aliases": ("alias", "models.name, changed.name", _MODELS),
    "alias_moves": (
        "alias_move",
        "models.name, aliases.name, changed.sequence",
        "JOIN aliases ON aliases.id = changed.alias_id JOIN models ON models.id = aliases.model_id",
    ),
    "policies": ("policy", "models.name", _MODELS),
    "trust_rules": ("trust_rule", "changed.created_at", ""),
    "derivations": (
        "derivation",
        "models.name, versions.number, changed.parent",
        "JOIN versions ON versions.id = changed.version_id JOIN models ON models.id = versions.model_id",
    ),
    "evaluations": ("evaluation", "changed.reporter, changed.key", ""),
    "role_assignments": ("role", "changed.group_name, changed.role, changed.pattern", ""),
    "retention_policies": ("retention_policy", "changed.scope", ""),
    "environments": ("environment", "changed.digest", ""),
    "measurements": ("report", "changed.reporter, changed.key", "WHERE changed.source = 'report'"),
    "audit_log": ("audit_entry", "changed.at, changed.action, changed.resource", ""),
}
_EVENTS = {"insert": "NEW", "update": "NEW", "delete": "OLD"}
_ONLY_ADDED = ("alias_moves", "version_yanks", "environments", "audit_log")
"""Tables whose rows are never updated."""


def _mark(table: str, source: str) -> str:
    kind, key, joins = _MARKS[table]
    return (
        "INSERT INTO journal_outbox (kind, key) "  # noqa: S608
        f"SELECT '{kind}', jsonb_build_array({key}) FROM {source} AS changed {joins}"
    )


def upgrade() -> None:
    op.create_table(
        "journal_outbox",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=True), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("key", JSONB(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_journal_outbox")),
    )
    for table in _MARKS:
        # With the rights of its owner: workers change builds, and may not write the outbox itself.
        op.execute(
            f"CREATE FUNCTION journal_{table}() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER "
            f"SET search_path FROM CURRENT SET timezone TO 'UTC' AS $$ BEGIN {_mark(table, 'changed')}; RETURN NULL; END $$"
        )
        for event, rows in _EVENTS.items():
            if event != "update" or table not in _ONLY_ADDED:
                op.execute(
                    f"CREATE TRIGGER journal_{event} AFTER {event.upper()} ON {table} "
                    f"REFERENCING {rows} TABLE AS changed FOR EACH STATEMENT EXECUTE FUNCTION journal_{table}()"
                )
    everything = "; ".join(_mark(table, table) for table in _MARKS)
    op.execute(
        "CREATE FUNCTION journal_everything() RETURNS void LANGUAGE plpgsql "
        f"SET timezone TO 'UTC' AS $$ BEGIN {everything}; END $$"
    )
    # Some millions of audit entries take longer than a statement of a revision may.
    op.execute("SET LOCAL statement_timeout = 0")
    op.execute("SELECT journal_everything()")


def downgrade() -> None:
    op.execute("DROP FUNCTION journal_everything()")
    for table in _MARKS:
        op.execute(f"DROP FUNCTION journal_{table}() CASCADE")
    op.drop_table("journal_outbox")
