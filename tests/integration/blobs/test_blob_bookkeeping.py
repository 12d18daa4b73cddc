from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from pt2hub.domain.digests import Digest, digest_bytes
from pt2hub.errors import BlobGone
from pt2hub.server.blobs.keys import StorageKey
from pt2hub.server.blobs.local import LocalStorage
from pt2hub.server.db import engine as engines
from pt2hub.server.db.stores.blobs.blobs import BlobStore
from pt2hub.server.services.blobs.blob_writes import BlobChunk, BlobService
from support.collecting import Collector

if TYPE_CHECKING:
    from collections.abc import Iterator

DATA = {digest_bytes(data): data for data in (b"weights", b"{}")}
DIGESTS = st.sampled_from(sorted(DATA))
HOLDERS = st.sampled_from(["build:a:1", "api"])
OWNERS = st.just("artifact:x")
WHICH = st.integers(0, 1)
TABLES = "blobs, blob_leases, blob_references"


@dataclass
class Writer:
    """Somebody who is between two steps of storing a blob."""

    key: StorageKey
    holder: str
    written: bool = False


@dataclass
class World:
    """What all runs of the machine use."""

    connection: psycopg.Connection
    root: Path
    sessions: engines.Sessions


def one(items: list[Writer], which: int) -> Writer:
    """One of some."""
    return items[which % len(items)]


class Bookkeeping(RuleBasedStateMachine):
    """Pushes, references and a collector, each step of which may come at any time or never."""

    def __init__(self, world: World) -> None:
        super().__init__()
        self.world = world
        self.sql(f"TRUNCATE {TABLES}")
        self.collector = Collector(world.connection, world.root)
        for key in self.collector.objects():
            (world.root / key.path).unlink()
        self.storage = LocalStorage(world.root)
        self.blobs = BlobService(world.sessions, self.storage)
        self.writers: list[Writer] = []
        self.references: set[tuple[Digest, str]] = set()
        self.pinned: set[tuple[Digest, str]] = set()
        """Stored, and held by a lease that lives."""

    def sql(self, statement: str, *values: Any) -> None:
        self.world.connection.execute(statement, values)

    @rule(digest=DIGESTS, holder=HOLDERS)
    def push(self, digest: Digest, holder: str) -> None:
        key = StorageKey.blob(digest)
        self.blobs.store([BlobChunk(key, len(DATA[digest]), DATA[digest])], holder=holder)
        self.pinned.add((digest, holder))

    @rule(digest=DIGESTS, holder=HOLDERS)
    def begin(self, digest: Digest, holder: str) -> None:
        key, stored = self.blobs.hold(StorageKey.blob(digest), len(DATA[digest]), holder=holder)
        if stored:
            self.pinned.add((digest, holder))
        else:
            self.writers.append(Writer(key, holder))

    @precondition(lambda self: any(not writer.written for writer in self.writers))
    @rule(which=WHICH)
    def write(self, which: int) -> None:
        writer = one([writer for writer in self.writers if not writer.written], which)
        self.storage.write(writer.key, [DATA[writer.key.digest]])
        writer.written = True

    @precondition(lambda self: any(writer.written for writer in self.writers))
    @rule(which=WHICH)
    def confirm(self, which: int) -> None:
        writer = one([writer for writer in self.writers if writer.written], which)
        self.writers.remove(writer)
        try:
            self.blobs.confirm(writer.key, len(DATA[writer.key.digest]), holder=writer.holder)
        except BlobGone:
            return
        self.pinned.add((writer.key.digest, writer.holder))

    @precondition(lambda self: self.writers)
    @rule(which=WHICH)
    def die(self, which: int) -> None:
        self.writers.remove(one(self.writers, which))

    @rule(digest=DIGESTS, owner=OWNERS)
    def reference(self, digest: Digest, owner: str) -> None:
        key = StorageKey.blob(digest)
        try:
            with self.world.sessions.begin() as session:
                BlobStore(session).refer({key: len(DATA[digest])}, owner)
        except BlobGone:
            assert digest not in self.needed()
        else:
            self.references.add((digest, owner))

    @precondition(lambda self: self.references)
    @rule(digest=DIGESTS, owner=OWNERS)
    def unreference(self, digest: Digest, owner: str) -> None:
        self.sql("DELETE FROM blob_references WHERE digest = %s AND owner = %s", digest, owner)
        self.references.discard((digest, owner))

    @rule(holder=HOLDERS)
    def lease_runs_out(self, holder: str) -> None:
        self.sql("UPDATE blob_leases SET pending_until = now() - interval '1 s' WHERE holder = %s", holder)
        self.pinned = {pin for pin in self.pinned if pin[1] != holder}

    @rule(holder=HOLDERS)
    def drop_leases(self, holder: str) -> None:
        with self.world.sessions.begin() as session:
            BlobStore(session).drop(holder)
        self.pinned = {pin for pin in self.pinned if pin[1] != holder}

    @rule()
    def tidy(self) -> None:
        self.blobs.tidy()

    @rule()
    def collector_marks(self) -> None:
        self.collector.mark()

    @precondition(lambda self: self.collector.taken)
    @rule()
    def collector_deletes(self) -> None:
        self.collector.delete()

    @precondition(lambda self: self.collector.taken)
    @rule()
    def collector_finishes(self) -> None:
        self.collector.delete()  # never finished before it deleted; a step may be done twice
        self.collector.finish()

    @rule()
    def a_day_passes(self) -> None:
        self.sql("UPDATE blob_leases SET pending_until = now() - interval '1 s'")
        self.pinned.clear()
        self.collector.collect()
        self.collector.sweep()

    @precondition(lambda self: self.collector.taken)
    @rule()
    def collector_dies(self) -> None:
        self.collector.taken = []

    @rule()
    def collector_sweeps(self) -> None:
        self.collector.sweep()

    @invariant()
    def what_is_needed_is_readable(self) -> None:
        for digest in self.needed():
            assert digest_bytes(b"".join(self.storage.read(StorageKey.blob(digest)))) == digest

    def needed(self) -> set[Digest]:
        return {digest for digest, _ in self.references | self.pinned}

    def teardown(self) -> None:
        """Once all is quiet nothing is left but what is referred to, once each."""
        if not hasattr(self, "pinned"):
            return
        self.a_day_passes()
        referenced = {digest for digest, _ in self.references}
        assert sorted(key.digest for key in self.collector.objects()) == sorted(referenced)
        self.what_is_needed_is_readable()


@pytest.fixture
def world(migrated_url: str, tmp_path: Path) -> Iterator[World]:
    engine = engines.create(migrated_url)
    with psycopg.connect(migrated_url, autocommit=True) as connection:
        yield World(connection, tmp_path, engines.Sessions(engine))
    engine.dispose()


def test_no_order_of_steps_and_crashes_loses_what_is_needed_or_leaves_an_orphan(world: World) -> None:
    run_state_machine_as_test(
        lambda: Bookkeeping(world),  # type: ignore[arg-type]  # anything that makes a machine
        settings=settings(
            max_examples=60,
            stateful_step_count=40,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
