"""Applies the journal to the database: what manifests do not say, and what was removed."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING

from pt2hub.domain.audit import Action
from pt2hub.server.db.stores.access.endings import EndingStore
from pt2hub.server.db.stores.publishing.journal_removals import JournalRemovals
from pt2hub.server.db.stores.publishing.journal_restoration import JournalRestoration
from pt2hub.server.services.access import audit_log
from pt2hub.server.services.operations.journal_files import REMOVABLE

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pt2hub.domain.tokens import Actor
    from pt2hub.server.db.engine import Sessions
    from pt2hub.server.db.stores.operations.journal import JournalEntry

BEFORE_MANIFESTS = ("model", "version", "build")
"""Versions and builds with their own times and settings, which manifests then complete."""
AFTER_MANIFESTS = (
    "environment",
    "label",
    "alias",
    "alias_move",
    "policy",
    "trust_rule",
    "derivation",
    "evaluation",
    "role",
    "retention_policy",
    "report",
    "audit_entry",
)
_BATCH = 200


class JournalIndex:
    """Applies the journal's entries to the database.

    Args:
        entries: The newest entry of everything, also of what is gone.
    """

    def __init__(self, sessions: Sessions, entries: Iterable[JournalEntry]) -> None:
        self._sessions = sessions
        self._entries: dict[str, list[JournalEntry]] = {}
        self._removals: list[JournalEntry] = []
        for entry in entries:
            if entry.document is not None:
                self._entries.setdefault(entry.kind, []).append(entry)
            elif entry.kind in REMOVABLE and entry.removed_at is not None:
                self._removals.append(entry)
        self._described = _described(self._entries.get("audit_entry", ()))
        self.added = 0
        self.removed = 0
        self.conflicts: dict[str, str] = {}

    def add(self, kinds: Iterable[str]) -> None:
        """Add the entries of these kinds, in this order.

        Raises:
            DatabaseUnavailable: The database does not answer.
        """
        for kind in kinds:
            entries = self._entries.get(kind, [])
            if kind == "alias_move":
                self._add_moves(entries)
                continue
            for batch in _cut(entries):
                with self._sessions.begin() as session:
                    restoration = JournalRestoration(session, described=self._described)
                    self.added += restoration.add(kind, batch)
                    self.conflicts |= restoration.conflicts

    def remove(self) -> None:
        """Remove what was removed later than it was set, as after the restore of an older backup, and end what ended.

        Call it when the audit log is restored: the journal has no tokens, but it has their revocations.

        Raises:
            DatabaseUnavailable: The database does not answer.
        """
        for batch in _cut(self._removals):
            with self._sessions.begin() as session:
                removals = JournalRemovals(session)
                self.removed += sum(map(removals.apply, batch))
        with self._sessions.begin() as session:
            self.removed += EndingStore(session).apply()

    def finish(self, by: Actor) -> None:
        """Queue the builds whose artifacts are gone, and record in the audit log that anything was added."""
        builds = [entry.key[0] for entry in self._entries.get("build", [])]
        with self._sessions.begin() as session:
            JournalRestoration(session).queue_incomplete(builds)
            if self.added or self.removed:
                audit_log.record(
                    session, by, Action.JOURNAL_APPLY, "journal", added=self.added, removed=self.removed
                )

    def _add_moves(self, entries: list[JournalEntry]) -> None:
        """Add moves, up to the last one of the alias's own entry: later ones are of a database that was given up."""
        last = {
            entry.key: entry.document["moves"] for entry in self._entries.get("alias", []) if entry.document
        }
        ordered = sorted(entries, key=lambda entry: entry.key)
        for (model, name), moves in groupby(ordered, key=lambda entry: (entry.key[0], entry.key[1])):
            documents = [
                move.document
                for move in moves
                if move.document and move.key[2] <= last.get((model, name), move.key[2])
            ]
            with self._sessions.begin() as session:
                restoration = JournalRestoration(session)
                self.added += restoration.add_moves(model, name, documents)
                self.conflicts |= restoration.conflicts


def _described(audit: Iterable[JournalEntry]) -> dict[str, str]:
    """Return when each model was described last: its own entry does not say it."""
    found: dict[str, str] = {}
    for entry in audit:
        at, action, model = entry.key
        if action == Action.MODEL_DESCRIBE:
            found[model] = max(found.get(model, ""), at)
    return found


def _cut(entries: list[JournalEntry]) -> Iterable[list[JournalEntry]]:
    return (entries[start : start + _BATCH] for start in range(0, len(entries), _BATCH))
