"""Any order of writes, crashes, merges, reindexes and copies of the database: only another database is an alarm."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import psycopg
import psycopg.types.json
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from pt2hub.errors import StorageUnavailable
from pt2hub.server.blobs.memory import MemoryStorage
from pt2hub.server.db import engine as engines
from pt2hub.server.db.queue import BuildQueue
from pt2hub.server.db.stores.operations.journal import JournalEntry
from pt2hub.server.db.stores.operations.reindex_state import ReindexState
from pt2hub.server.services.operations import journal
from pt2hub.server.services.operations.journal import JournalService
from pt2hub.server.services.operations.journal_files import JournalFiles
from pt2hub.server.services.operations.reindex import ReindexService
from support.postgres import create_database, drop_database

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pt2hub.server.db.embedded import EmbeddedPostgres

WHICH = st.integers(0, 1)
_TABLES = "server_settings, journal_outbox"
_CLEAR = f"TRUNCATE {_TABLES}"
_SETTINGS = "SELECT name, value FROM server_settings"
_MARKS = "SELECT kind, key FROM journal_outbox ORDER BY id"


@dataclass
class Database:
    """The original, or its copy."""

    url: str
    sessions: engines.Sessions
    connection: psycopg.Connection


class Writers(RuleBasedStateMachine):
    """Two databases on one storage, the second of which writes nothing before it is a copy of the first."""

    def __init__(self, databases: tuple[Database, ...]) -> None:
        super().__init__()
        self.databases = databases
        for each in databases:
            each.connection.execute(_CLEAR)
        self.storage = MemoryStorage()
        self.files = JournalFiles(self.storage)
        self.is_copied = self.is_comparable = False
        self.created, self.committed = [0, 0], [0, 0]
        self.written: set[str] = set()
        self.waiting: list[set[str]] = [set(), set()]
        self.names = 0
        assert self.service(0).check_writer()

    def service(self, which: int) -> JournalService:
        return JournalService(self.databases[which].sessions, self.storage)

    def pick(self, which: int) -> int:
        return which if self.is_copied else 0

    def name(self) -> str:
        self.names += 1
        return f"team-{self.names}"

    def is_due(self, which: int) -> bool:
        with self.databases[which].sessions.begin() as session:
            return ReindexState(session).is_due()

    def mark(self, which: int) -> None:
        name = self.name()
        self.databases[which].connection.execute(
            "INSERT INTO journal_outbox (kind, key) VALUES ('role', jsonb_build_array(%s::text, 'reader', 'x/*'))",
            [name],
        )
        self.waiting[which].add(name)

    def write(self, which: int) -> None:
        """Write what is marked; while the batch is in flight, another process of the same server looks."""
        before, due = self.files.last(), self.is_due(which)
        create = self.storage.create_object

        def create_object(path: str, data: bytes) -> bool:
            done = create(path, data)
            if not due:
                assert self.service(which).check_writer(), "the own batch, before its commit"
            return done

        with patch.object(self.storage, "create_object", create_object):
            written = self.service(which).write()
        if written:
            self.written |= self.waiting[which]
            self.waiting[which].clear()
            self.committed[which] += 1
        self.created[which] += self.files.last() > before

    @rule(which=WHICH)
    def write_something(self, which: int) -> None:
        which = self.pick(which)
        self.mark(which)
        self.write(which)

    @rule(which=WHICH)
    def crash_after_the_storage(self, which: int) -> None:
        which = self.pick(which)
        self.mark(which)
        before = self.files.last()
        with (
            patch.object(journal.JournalPositionStore, "advance", side_effect=ZeroDivisionError),
            suppress(ZeroDivisionError),
        ):
            self.service(which).write()
        self.created[which] += self.files.last() > before

    @rule(which=WHICH)
    def crash_before_the_storage(self, which: int) -> None:
        which = self.pick(which)
        self.mark(which)
        error = StorageUnavailable("away")
        with patch.object(self.storage, "create_object", side_effect=error), suppress(StorageUnavailable):
            self.service(which).write()

    @rule(which=WHICH)
    def merge(self, which: int) -> None:
        which = self.pick(which)
        before = self.files.count()
        if self.service(which).check_writer():
            self.service(which)._merge()
        # A merged file may hold batches that the other database does not know yet.
        self.created[which] += self.files.count() < before

    @rule()
    def write_by_release_0_2(self) -> None:
        """During the upgrade of the original, whose processes of the release before know no nonces."""
        name = self.name()
        if not self.is_copied:
            self.files.add([JournalEntry("role", (name, "reader", "x/*"), None, "2026-01-01T00:00:00Z")])
            self.written.add(name)

    @rule(which=WHICH)
    def reindex(self, which: int) -> None:
        which = self.pick(which)
        database = self.databases[which]
        service = ReindexService(database.sessions, self.storage, BuildQueue(database.url))
        before, due = self.files.last(), self.is_due(which)
        damage: dict[str, str] = {}
        service._read_journal(damage)
        assert damage == {}
        with database.sessions.begin() as session:
            ReindexState(session).end(0)
        if due:
            self.written |= self.waiting[which]
            self.waiting[which].clear()
        self.created[which] += self.files.last() > before
        self.created[1 - which] = 0  # all of that is known now
        self.is_comparable = False

    @rule()
    def copy(self) -> None:
        original, copied = (each.connection for each in self.databases)
        copied.execute(_CLEAR)
        with copied.cursor() as cursor:
            cursor.executemany(
                "INSERT INTO server_settings (name, value) VALUES (%s, %s)",
                original.execute(_SETTINGS).fetchall(),
            )
            marks = [(kind, psycopg.types.json.Jsonb(key)) for kind, key in original.execute(_MARKS)]
            cursor.executemany("INSERT INTO journal_outbox (kind, key) VALUES (%s, %s)", marks)
        self.waiting[1] = set(self.waiting[0])
        self.is_copied = self.is_comparable = True
        # What either wrote before is behind the end that both know only if a process died: it stays the original's.
        self.committed = [0, 0]
        self.created = [self.pending(), 0 if not self.is_due(0) else self.created[1]]

    def pending(self) -> int:
        position = self.service(0)._position()
        assert position
        return int(self.files.last() > position.number)

    @invariant()
    def only_another_database_is_an_alarm(self) -> None:
        noticed = []
        for which in (0, 1) if self.is_copied else (0,):
            may_write = self.service(which).check_writer()
            noticed.append(not may_write)
            assert may_write or self.created[1 - which], "nobody else wrote"
        if self.is_comparable and all(self.committed):
            assert any(noticed), "both wrote"

    @invariant()
    def nothing_that_was_written_is_lost(self) -> None:
        damage: dict[str, str] = {}
        names = {str(entry.key[0]) for entry in self.files.read(damage)}
        assert damage == {}
        assert self.written <= names


@pytest.fixture
def databases(postgres: EmbeddedPostgres, migrated_template: str) -> Iterator[tuple[Database, ...]]:
    found, opened = [], []
    for _ in range(2):
        url = create_database(postgres, template=migrated_template)
        engine = engines.create(url)
        connection = psycopg.connect(url, autocommit=True)
        found.append(Database(url, engines.Sessions(engine), connection))
        opened.append(engine)
    yield tuple(found)
    for each, engine in zip(found, opened, strict=True):
        each.connection.close()
        engine.dispose()
        drop_database(postgres, each.url)


def test_no_order_of_steps_is_a_false_alarm_or_loses_a_batch(
    databases: tuple[Database, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(JournalFiles.merge, "__defaults__", (1,))

    def make() -> Any:
        return Writers(databases)

    run_state_machine_as_test(
        make,
        settings=settings(
            max_examples=25,
            stateful_step_count=20,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
