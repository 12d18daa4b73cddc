from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from sqlalchemy import Engine, event

from pt2hub.domain.digests import digest_bytes
from pt2hub.errors import BlobGone, DigestMismatch, NotFound, TooLarge
from pt2hub.server.blobs.keys import StorageKey
from pt2hub.server.blobs.local import LocalStorage
from pt2hub.server.db import engine as engines
from pt2hub.server.db.stores.blobs.blobs import BlobStore
from pt2hub.server.services.blobs.blob_writes import BlobChunk, BlobService
from support.collecting import Collector

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path


BUILD = "build:b:1"


class Watched(LocalStorage):
    """A storage in a directory that does something after each write."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.written: list[StorageKey] = []
        self.then: Callable[[], None] = lambda: None

    def write(self, key: StorageKey, chunks: Iterable[bytes], *, limit: int | None = None) -> int:
        """As the storage; then what was asked for."""
        size = super().write(key, chunks, limit=limit)
        self.written.append(key)
        self.then()
        return size


@dataclass
class Bench:
    """The service over an empty database and a storage in a directory, and a collector beside it."""

    blobs: BlobService
    engine: Engine
    sessions: engines.Sessions
    storage: Watched
    collector: Collector
    url: str

    def sql(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        cursor = self.collector.connection.execute(statement, values)
        return cursor.fetchall() if cursor.description else []

    def store(self, *data: bytes, holder: str = BUILD) -> list[StorageKey]:
        pieces = [BlobChunk(StorageKey.blob(digest_bytes(each)), len(each), each) for each in data]
        self.blobs.store(pieces, holder=holder)
        return [piece.key for piece in pieces]

    def refer(self, *keys: StorageKey, owner: str = "version:1") -> None:
        with self.sessions.begin() as session:
            BlobStore(session).refer(dict.fromkeys(keys, 1), owner)

    def expire(self) -> None:
        self.sql("UPDATE blob_leases SET pending_until = now() - interval '1 s'")

    def read(self, key: StorageKey) -> bytes:
        return b"".join(self.storage.read(key))

    @property
    def rows(self) -> list[tuple[Any, ...]]:
        return self.sql("SELECT generation, state, size FROM blobs ORDER BY kind, digest")

    @property
    def places(self) -> list[tuple[Any, ...]]:
        """Which rows there are and where: an update of one moves it."""
        return self.sql("SELECT ctid::text, xmin::text FROM blobs ORDER BY ctid") + self.sql(
            "SELECT ctid::text, xmin::text FROM blob_leases ORDER BY ctid"
        )


@pytest.fixture
def bench(migrated_url: str, tmp_path: Path) -> Iterator[Bench]:
    engine = engines.create(migrated_url)
    sessions, storage = engines.Sessions(engine), Watched(tmp_path / "blobs")
    with psycopg.connect(migrated_url, autocommit=True) as connection:
        collector = Collector(connection, tmp_path / "blobs")
        yield Bench(BlobService(sessions, storage), engine, sessions, storage, collector, migrated_url)
    engine.dispose()


def test_what_is_stored_is_held_until_its_lease_is_over(bench: Bench, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"of a file")
    file = StorageKey.manifest(digest_bytes(b"of a file"))
    (key,) = bench.store(b"bytes")
    bench.blobs.store([BlobChunk(file, 9, tmp_path / "file")], holder=BUILD)
    assert bench.rows == [(1, "stored", 5), (1, "stored", 9)]
    assert (bench.read(key), bench.read(file)) == (b"bytes", b"of a file")
    bench.collector.collect()
    assert len(bench.collector.objects()) == 2
    bench.expire()
    bench.collector.collect()
    assert bench.collector.objects() == []
    assert {row[:2] for row in bench.rows} == {(1, "deleted")}


def test_what_is_known_is_stored_again_without_a_write_and_without_touching_a_row(bench: Bench) -> None:
    keys = bench.store(b"a", b"b")
    files = [(bench.collector.root / key.path).stat() for key in keys]
    before = bench.places
    bench.store(b"b", b"a")
    assert bench.places == before
    assert [(bench.collector.root / key.path).stat() for key in keys] == files
    bench.store(b"a", holder="build:other:1")
    assert bench.sql("SELECT count(*) FROM blob_leases") == [(3,)]


def test_however_much_is_stored_it_takes_two_transactions_and_one_where_all_is_known(bench: Bench) -> None:
    commits: list[object] = []
    event.listen(bench.engine, "commit", commits.append)
    bench.store(*(b"%d" % number for number in range(16)))
    assert len(commits) == 2
    bench.store(*(b"%d" % number for number in range(16)))
    assert len(commits) == 3


def test_a_lease_that_is_nearly_over_is_prolonged(bench: Bench) -> None:
    bench.store(b"a")
    bench.sql("UPDATE blob_leases SET pending_until = now() + interval '4 hours'")
    bench.store(b"a")
    assert bench.sql("SELECT pending_until > now() + interval '5 hours' FROM blob_leases") == [(True,)]


@pytest.mark.parametrize("done", [0, 1, 2, 3])
def test_whoever_meets_a_collector_takes_the_next_generation(bench: Bench, done: int) -> None:
    (key,) = bench.store(b"a")
    bench.expire()
    steps = [bench.collector.mark, bench.collector.delete, bench.collector.finish]
    for step in steps[:done]:
        step()
    assert bench.store(b"a") == [key]
    assert bench.rows == [(2 if done else 1, "stored", 1)]
    for step in steps[done:]:  # it comes back, and deletes only what it meant to
        step()
    assert bench.rows == [(2 if done else 1, "stored", 1)]
    assert bench.read(key) == b"a"
    bench.collector.sweep()
    assert bench.collector.objects() == [key.at(2 if done else 1)]


def test_a_collector_that_was_frozen_through_another_ones_pass_does_no_harm(bench: Bench) -> None:
    (key,) = bench.store(b"a")
    bench.expire()
    frozen = Collector(bench.collector.connection, bench.collector.root)
    frozen.mark()
    bench.collector.collect()
    bench.store(b"a")
    bench.expire()
    bench.collector.mark()  # the second generation is to be deleted now, and was not
    frozen.delete()
    frozen.finish()
    assert bench.rows == [(2, "deleting", 1)]
    assert bench.collector.objects() == [key.at(2)]


def test_a_writer_that_outlives_its_lease_writes_again_where_nobody_deletes(bench: Bench) -> None:
    def collected() -> None:
        bench.storage.then = lambda: None
        bench.expire()
        bench.collector.collect()

    bench.storage.then = collected
    (key,) = bench.store(b"a")
    assert bench.storage.written == [key.at(1), key.at(2)]
    assert bench.rows == [(2, "stored", 1)]
    assert bench.collector.objects() == [key.at(2)]


def test_a_writer_that_outlives_every_lease_gives_up(bench: Bench) -> None:
    def collected() -> None:
        bench.expire()
        bench.collector.collect()

    bench.storage.then = collected
    with pytest.raises(BlobGone) as caught:
        bench.store(b"a")
    assert caught.value.hint
    key = StorageKey.blob(digest_bytes(b"a"))
    with pytest.raises(BlobGone):
        bench.blobs.write(key, [b"a"], holder="api")
    bench.storage.then = lambda: None
    assert bench.blobs.write(key, [b"a"], holder="api") == 1
    assert bench.read(key) == b"a"


def test_an_object_written_after_its_row_was_deleted_is_found_as_an_orphan(bench: Bench) -> None:
    key, stored = bench.blobs.hold(StorageKey.blob(digest_bytes(b"a")), 1, holder="api")
    assert (key.generation, stored) == (1, False)
    bench.expire()
    bench.collector.collect()
    bench.storage.write(key, [b"a"])
    with pytest.raises(BlobGone):
        bench.blobs.confirm(key, 1, holder="api")
    assert bench.sql("SELECT count(*) FROM blob_leases WHERE pending_until > now()") == [(0,)]
    bench.collector.sweep()
    assert bench.collector.objects() == []


def test_the_next_holder_goes_on_where_a_writer_died(bench: Bench) -> None:
    plain = StorageKey.blob(digest_bytes(b"a"))
    key, _ = bench.blobs.hold(plain, 1, holder="build:dead:1")
    assert bench.blobs.hold(plain, 1, holder="api") == (key, False)
    bench.storage.write(key, [b"a"])  # and died before it said so
    assert bench.blobs.hold(plain, 1, holder="api") == (key, True)
    assert bench.rows == [(1, "stored", 1)]


def test_bytes_that_an_operator_lost_are_written_again(bench: Bench) -> None:
    (key,) = bench.store(b"a")
    (bench.collector.root / key.path).unlink()
    assert bench.blobs.hold(key, 1, holder="api") == (key.at(1), False)
    bench.store(b"a")
    assert bench.read(key) == b"a"
    assert bench.rows == [(1, "stored", 1)]


def test_bytes_older_than_rows_get_one_and_are_not_written(bench: Bench) -> None:
    key = StorageKey.blob(digest_bytes(b"old"))
    LocalStorage(bench.collector.root).write(key, [b"old"])
    before = (bench.collector.root / key.path).stat().st_ino
    with pytest.raises(BlobGone):
        bench.refer(key)
    bench.store(b"old")
    bench.refer(key)
    assert bench.rows == [(1, "stored", 3)]
    assert (bench.collector.root / key.path).stat().st_ino == before


def test_only_what_is_stored_can_be_referred_to(bench: Bench) -> None:
    (stored,) = bench.store(b"a")
    pending, _ = bench.blobs.hold(StorageKey.blob(digest_bytes(b"b")), 1, holder="api")
    plain = StorageKey.blob(pending.digest)
    with pytest.raises(BlobGone) as caught:
        bench.refer(stored, plain)
    assert (caught.value.where, caught.value.context) == (plain.digest, {"digests": [plain.digest]})
    with pytest.raises(BlobGone):
        bench.refer(plain)
    assert bench.sql("SELECT count(*) FROM blob_references") == [(0,)]  # not the half of it
    bench.expire()
    bench.collector.mark()
    with pytest.raises(BlobGone):
        bench.refer(stored)
    bench.collector.delete()
    bench.collector.finish()
    with pytest.raises(BlobGone):
        bench.refer(stored)


def test_what_is_referred_to_stays_when_its_lease_is_over(bench: Bench) -> None:
    keys = bench.store(b"a", b"b")
    bench.refer(keys[0])
    bench.refer(keys[0])  # twice is once
    with bench.sessions.begin() as session:
        BlobStore(session).drop(BUILD)
    assert bench.sql("SELECT count(*) FROM blob_leases") == [(0,)]
    bench.collector.collect()
    assert bench.collector.objects() == [keys[0].at(1)]


@pytest.mark.parametrize("what", ["refer", "lease"])
def test_a_collector_passes_over_a_row_that_somebody_is_about_to_need(bench: Bench, what: str) -> None:
    (key,) = bench.store(b"a")
    bench.expire()
    with bench.sessions.begin() as session, ThreadPoolExecutor(1) as pool:
        store = BlobStore(session)
        if what == "refer":
            store.refer({key: 1}, "version:1")
        else:
            store.lease({key: 1}, "api")
        pool.submit(bench.collector.mark).result(10)
        session.commit()
    bench.collector.mark()
    assert bench.rows == [(1, "stored", 1)]


@pytest.mark.parametrize("what", ["refer", "store"])
def test_who_waited_for_a_collector_sees_what_it_did(bench: Bench, what: str) -> None:
    (key,) = bench.store(b"a")
    bench.expire()
    with psycopg.connect(bench.url) as connection, ThreadPoolExecutor(1) as pool:
        connection.execute("SELECT FROM blobs FOR UPDATE")
        connection.execute("UPDATE blobs SET state = 'deleting'")
        waiting = pool.submit(bench.refer, key) if what == "refer" else pool.submit(bench.store, b"a")
        with pytest.raises(TimeoutError):
            waiting.result(0.3)
        connection.commit()
        if what == "refer":
            with pytest.raises(BlobGone):
                waiting.result(10)
        else:
            waiting.result(10)
            assert bench.rows == [(2, "stored", 1)]


def test_a_batch_in_any_order_by_many_at_once_is_stored_once_and_never_deadlocks(bench: Bench) -> None:
    data = [b"%d" % number for number in range(40)]
    barrier = threading.Barrier(6)

    def push(which: int) -> None:
        barrier.wait()
        for start in range(0, 40, 5):
            batch = data[start : start + 5]
            bench.store(*(batch if which % 2 else reversed(batch)), holder=f"build:{which}:1")

    with ThreadPoolExecutor(6) as pool:
        for done in [pool.submit(push, which) for which in range(6)]:
            done.result()
    assert {row[:2] for row in bench.rows} == {(1, "stored")}
    assert len(bench.collector.objects()) == len(bench.rows) == 40
    assert bench.sql("SELECT count(*) FROM blob_leases") == [(240,)]


def test_pushes_beside_a_collector_lose_nothing(bench: Bench) -> None:
    data = [b"%d" % number for number in range(6)]
    until, stop = time.monotonic() + 2.0, threading.Event()
    pushed: list[int] = []

    def collect() -> None:
        with psycopg.connect(bench.url, autocommit=True) as connection:
            collector = Collector(connection, bench.collector.root)
            while not stop.is_set():
                collector.collect()
                collector.sweep()

    def push(which: int) -> None:
        number = 0
        while time.monotonic() < until or len(pushed) <= 20:
            number += 1
            owner = f"artifact:{which}:{number}"
            batch = data[which % 3 : which % 3 + 3]
            keys = bench.store(*batch, holder=owner)
            with bench.sessions.begin() as session:  # never refused: a lease that lives is not taken
                BlobStore(session).refer(dict.fromkeys(keys, 1), owner)
                BlobStore(session).drop(owner)
            for key, each in zip(keys, batch, strict=True):
                assert bench.read(key) == each
            pushed.append(number)
            with bench.sessions.begin() as session:
                session.connection().exec_driver_sql("DELETE FROM blob_references WHERE owner = %s", (owner,))

    with ThreadPoolExecutor(4) as pool:
        collecting = pool.submit(collect)
        for done in [pool.submit(push, which) for which in range(3)]:
            done.result()
        stop.set()
        collecting.result()
    assert len(pushed) > 20
    assert bench.sql("SELECT max(generation) > 2 FROM blobs") == [(True,)]  # it was busy
    bench.collector.collect()
    bench.collector.sweep()
    assert bench.collector.objects() == []


def test_bytes_of_another_size_or_digest_are_refused(bench: Bench) -> None:
    key = StorageKey.blob(digest_bytes(b"a"))
    with pytest.raises(DigestMismatch, match="1 bytes were stored, but 2 were announced"):
        bench.blobs.store([BlobChunk(key, 2, b"a")], holder=BUILD)
    with pytest.raises(DigestMismatch):
        bench.blobs.write(key, [b"b"], holder="api")
    with pytest.raises(DigestMismatch, match="1 bytes, not 2"):
        bench.blobs.hold(key, 2, holder="api")
    with pytest.raises(TooLarge):
        bench.blobs.write(StorageKey.blob(digest_bytes(b"long")), [b"long"], holder="api", limit=3)
    with pytest.raises(BlobGone):
        bench.refer(StorageKey.blob(digest_bytes(b"long")))


def test_tidying_drops_leases_that_are_over_and_waits_for_nobody(bench: Bench) -> None:
    bench.store(b"a", b"b", holder="old")
    bench.expire()
    bench.store(b"a", holder="new")
    with psycopg.connect(bench.url) as other:
        other.execute(
            "SELECT FROM blob_leases WHERE digest = %s AND holder = 'old' FOR UPDATE", [digest_bytes(b"b")]
        )
        bench.blobs.tidy()
    assert bench.sql("SELECT holder, digest FROM blob_leases ORDER BY holder") == [
        ("new", digest_bytes(b"a")),
        ("old", digest_bytes(b"b")),
    ]


def test_nothing_is_stored_where_nothing_is_given(bench: Bench) -> None:
    bench.blobs.store([], holder=BUILD)
    bench.refer()
    assert bench.rows == []
    with pytest.raises(NotFound):
        bench.read(StorageKey.blob(digest_bytes(b"")))
