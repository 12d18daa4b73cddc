"""The journal's side of the database: marks of what changed, and the documents of what they name."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sqlalchemy import bindparam, delete, func, select, text
from sqlalchemy.dialects.postgresql import JSONB

from pt2hub.server.db.schema import JournalMark as SQLJournalMark
from pt2hub.server.db.stores.values import stamp

if TYPE_CHECKING:
    from collections.abc import Collection

    from sqlalchemy.orm import Session

_LOCK = text("SELECT pg_try_advisory_xact_lock(84000005)")
_ALIVE = text("SELECT 1")
_UNLIMITED = text("SET LOCAL statement_timeout = 0")
# Selects by the key, whose parts outlive the database: names, numbers and times, and no ids of rows.
_DOCUMENTS = {
    "model": """
        to_jsonb(models) - 'id'
        FROM wanted LEFT JOIN models ON models.name = wanted.key ->> 0
    """,
    "version": """
        to_jsonb(versions) - '{id, model_id, label_values}'::text[] || jsonb_build_object(
            'model', models.name,
            'yanks', (
                SELECT coalesce(jsonb_agg(to_jsonb(version_yanks) - 'version_id' ORDER BY sequence), '[]')
                FROM version_yanks WHERE version_id = versions.id
            )
        )
        FROM wanted LEFT JOIN models ON models.name = wanted.key ->> 0
        LEFT JOIN versions ON versions.model_id = models.id AND versions.number = CAST(wanted.key ->> 1 AS integer)
    """,
    "label": """
        to_jsonb(labels) - '{id, model_id, version_id}'::text[]
            || jsonb_build_object('model', models.name, 'number', versions.number)
        FROM wanted LEFT JOIN models ON models.name = wanted.key ->> 0
        LEFT JOIN versions ON versions.model_id = models.id AND versions.number = CAST(wanted.key ->> 1 AS integer)
        LEFT JOIN labels ON labels.model_id = models.id AND labels.key = wanted.key ->> 2
            AND labels.version_id IS NOT DISTINCT FROM versions.id
            AND (labels.version_id IS NULL) = (wanted.key ->> 1 IS NULL)
    """,
    "build": """
        to_jsonb(builds) - '{version_id, worker_id}'::text[]
            || jsonb_build_object('model', models.name, 'number', versions.number, 'identity', versions.identity)
        FROM wanted LEFT JOIN builds ON builds.id = wanted.key ->> 0
        LEFT JOIN versions ON versions.id = builds.version_id LEFT JOIN models ON models.id = versions.model_id
    """,
    "alias": """
        to_jsonb(aliases) - '{id, model_id, version_id}'::text[]
            || jsonb_build_object('model', models.name, 'number', versions.number)
        FROM wanted LEFT JOIN models ON models.name = wanted.key ->> 0
        LEFT JOIN aliases ON aliases.model_id = models.id AND aliases.name = wanted.key ->> 1
        LEFT JOIN versions ON versions.id = aliases.version_id
    """,
    "alias_move": """
        to_jsonb(alias_moves) - 'alias_id'
        FROM wanted LEFT JOIN models ON models.name = wanted.key ->> 0
        LEFT JOIN aliases ON aliases.model_id = models.id AND aliases.name = wanted.key ->> 1
        LEFT JOIN alias_moves ON alias_id = aliases.id AND sequence = CAST(wanted.key ->> 2 AS integer)
    """,
    "policy": """
        to_jsonb(policies) - 'model_id' || jsonb_build_object('model', models.name)
        FROM wanted LEFT JOIN models ON models.name = wanted.key ->> 0
        LEFT JOIN policies ON policies.model_id = models.id
    """,
    "trust_rule": """
        to_jsonb(trust_rules) - 'id'
        FROM wanted LEFT JOIN trust_rules ON created_at = CAST(wanted.key ->> 0 AS timestamptz)
    """,
    "derivation": """
        to_jsonb(derivations) - '{id, version_id, parent_id}'::text[]
            || jsonb_build_object('model', models.name, 'number', versions.number)
        FROM wanted LEFT JOIN models ON models.name = wanted.key ->> 0
        LEFT JOIN versions ON versions.model_id = models.id AND versions.number = CAST(wanted.key ->> 1 AS integer)
        LEFT JOIN derivations ON derivations.version_id = versions.id AND derivations.parent = wanted.key ->> 2
    """,
    "evaluation": """
        to_jsonb(evaluations) - '{id, version_id}'::text[]
            || jsonb_build_object('model', models.name, 'number', versions.number)
        FROM wanted LEFT JOIN evaluations
            ON (evaluations.reporter, evaluations.key) = (wanted.key ->> 0, wanted.key ->> 1)
        LEFT JOIN versions ON versions.id = evaluations.version_id LEFT JOIN models ON models.id = versions.model_id
    """,
    "role": """
        to_jsonb(role_assignments) - 'id'
        FROM wanted LEFT JOIN role_assignments ON (group_name, role, pattern)
            = (wanted.key ->> 0, wanted.key ->> 1, wanted.key ->> 2)
    """,
    "retention_policy": """
        to_jsonb(retention_policies)
        FROM wanted LEFT JOIN retention_policies ON scope = wanted.key ->> 0
    """,
    "environment": """
        to_jsonb(environments)
        FROM wanted LEFT JOIN environments ON digest = wanted.key ->> 0
    """,
    "report": """
        to_jsonb(measurements) - '{id, series_id, run}'::text[] || jsonb_build_object(
            'metric', metric, 'unit', unit, 'batch', batch, 'implementation', implementation,
            'class_digest', class_digest
        )
        FROM wanted LEFT JOIN measurements ON reporter = wanted.key ->> 0 AND measurements.key = wanted.key ->> 1
        LEFT JOIN series ON series.id = series_id
    """,
    "audit_entry": """
        to_jsonb(audit_log) - 'id'
        FROM wanted LEFT JOIN audit_log
            ON at = CAST(wanted.key ->> 0 AS timestamptz) AND action = wanted.key ->> 1 AND resource = wanted.key ->> 2
    """,
}
_READ = {
    kind: text(
        f"WITH wanted AS (SELECT value AS key FROM jsonb_array_elements(:keys)) SELECT wanted.key, {document}"  # noqa: S608
    ).bindparams(bindparam("keys", type_=JSONB))
    for kind, document in _DOCUMENTS.items()
}


@dataclass(frozen=True, slots=True)
class JournalEntry:
    """What the journal says about one thing.

    Attributes:
        kind: What it is: `model`, `version`, `build`, ...
        key: Its name, in parts.
        document: What it looked like; None once it is gone.
        removed_at: When it was noticed to be gone, by the database's clock; None where an older pt2hub wrote the entry.
    """

    kind: str
    key: tuple[Any, ...]
    document: dict[str, Any] | None
    removed_at: str | None = None


class JournalStore:
    """What changed and is not in the journal yet."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def hold(self) -> bool:
        """Take the lock of the journal's writer until the transaction ends; return False where another has it."""
        return bool(self._session.scalar(_LOCK))

    def confirm(self) -> None:
        """Check that the transaction, and with it the writer's lock, still lives: its process may have been frozen.

        Raises:
            DatabaseUnavailable: The connection is gone.
        """
        self._session.execute(_ALIVE)

    def marks(self, limit: int, *, after: int = 0) -> list[tuple[int, str, tuple[Any, ...]]]:
        """Return id, kind and key of the oldest marks.

        Args:
            after: Only those with a larger id.
        """
        rows = self._session.execute(
            select(SQLJournalMark.id, SQLJournalMark.kind, SQLJournalMark.key)
            .where(SQLJournalMark.id > after)
            .order_by(SQLJournalMark.id)
            .limit(limit)
        )
        return [(mark, kind, tuple(key)) for mark, kind, key in rows]

    def drop(self, marks: Collection[int]) -> None:
        """Remove marks of what the journal has."""
        self._session.execute(delete(SQLJournalMark).where(SQLJournalMark.id == func.any(list(marks))))

    def mark_everything(self) -> None:
        """Mark everything that belongs into the journal, as for a storage that has none."""
        self._session.execute(_UNLIMITED)  # millions of audit entries take longer than other statements may
        self._session.execute(text("SELECT journal_everything()"))

    def read(self, marked: Collection[tuple[str, tuple[Any, ...]]]) -> list[JournalEntry]:
        """Return what is marked as it is now, which is at least as new as its mark."""
        found = []
        # The transaction's start: what is set again from now on is newer.
        at = stamp(self._session.execute(select(func.now())).scalar_one())
        for kind, statement in _READ.items():
            if keys := [list(key) for each, key in marked if each == kind]:
                rows = self._session.execute(statement, {"keys": keys})
                found += [
                    JournalEntry(kind, tuple(key), document, at if document is None else None)
                    for key, document in rows
                ]
        return found
