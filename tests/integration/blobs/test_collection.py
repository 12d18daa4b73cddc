"""The blob collector: takes what nothing needs, beside writers, crashes and other collectors."""

from __future__ import annotations

import errno
import threading
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg
import pytest

from pt2hub.domain.digests import digest_bytes
from pt2hub.domain.storage import CollectionSchedule
from pt2hub.errors import BlobGone, CollectionRefused, StorageUnavailable
from pt2hub.server.blobs.keys import StorageKey
from pt2hub.server.blobs.local import LocalStorage
from pt2hub.server.db import engine as engines
from pt2hub.server.db.stores.blobs.blobs import BlobStore
from pt2hub.server.services.blobs import collection
from pt2hub.server.services.blobs.blob_writes import BlobChunk, BlobService
from pt2hub.server.services.blobs.collection import BlobCollection, CollectorService

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import Any

NOW = timedelta()
HOLDER = "build:b:1"


class Bench:
    """Blobs in a directory, and collectors over them."""

    def __init__(self, url: str, root: Path) -> None:
        self.engine = engines.create(url)
        self.sessions, self.storage = engines.Sessions(self.engine), LocalStorage(root)
        self.blobs = BlobService(self.sessions, self.storage)
        self.connection = psycopg.connect(url, autocommit=True)

    def sql(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        cursor = self.connection.execute(statement, values)
        return cursor.fetchall() if cursor.description else []

    def store(self, *data: bytes, leased: bool = False) -> list[StorageKey]:
        keys = [StorageKey.blob(digest_bytes(each)) for each in data]
        chunks = [BlobChunk(key, len(each), each) for key, each in zip(keys, data, strict=True)]
        self.blobs.store(chunks, holder=HOLDER)
        if not leased:
            self.sql("DELETE FROM blob_leases")
        return keys

    def refer(self, *keys: StorageKey, owner: str = "version:1") -> None:
        with self.sessions.begin() as session:
            BlobStore(session).refer(dict.fromkeys(keys, 1), owner)

    def steps(self, grace: timedelta = NOW) -> BlobCollection:
        return BlobCollection(self.sessions, self.storage, grace=grace)

    def service(self, **schedule: timedelta) -> CollectorService:
        return CollectorService(self.sessions, self.storage, schedule=CollectionSchedule(**schedule))

    @property
    def objects(self) -> list[StorageKey]:
        return list(self.storage.keys("blobs"))

    @property
    def rows(self) -> list[tuple[Any, ...]]:
        return self.sql("SELECT generation, state FROM blobs ORDER BY kind, digest")


@pytest.fixture
def bench(migrated_url: str, tmp_path: Path) -> Iterator[Bench]:
    bench = Bench(migrated_url, tmp_path / "blobs")
    yield bench
    bench.connection.close()
    bench.engine.dispose()


def test_what_nothing_needs_is_removed_and_what_is_referenced_or_leased_stays(bench: Bench) -> None:
    (needed,) = bench.store(b"needed")
    bench.refer(needed)
    bench.store(b"garbage", b"more garbage")
    (leased,) = bench.store(b"leased", leased=True)
    report = bench.service().collect(grace=NOW)
    assert (report.marked, report.removed, report.removed_bytes) == (2, 2, 19)
    assert (report.listed, report.orphans, report.unknown) == (2, 0, 0)
    assert set(bench.objects) == {needed.at(1), leased.at(1)}
    assert bench.service().collect(grace=NOW).removed == 0


def test_a_preview_says_the_same_and_removes_nothing(bench: Bench) -> None:
    bench.store(b"garbage")
    report = bench.service().preview(grace=NOW)
    assert (report.dry_run, report.marked, report.marked_bytes) == (True, 1, 7)
    assert bench.rows == [(1, "stored")]


@pytest.mark.parametrize("age", ["10 minutes", "-1 hours", "-10 years"])
def test_a_blob_stays_within_its_grace_and_where_its_age_is_unknown(bench: Bench, age: str) -> None:
    bench.store(b"young")
    bench.sql("UPDATE blobs SET changed_at = now() - CAST(%s AS interval)", age)
    assert bench.service(grace=timedelta(hours=1)).collect().marked == 0
    bench.sql("UPDATE blobs SET changed_at = now() - interval '61 minutes'")
    assert bench.service(grace=timedelta(hours=1)).collect().removed == 1


def test_the_grace_of_a_blob_begins_when_its_last_reference_is_released(bench: Bench) -> None:
    kept, released = bench.store(b"kept", b"released")
    bench.refer(kept, released, owner="documentation:1")
    bench.sql("UPDATE blobs SET changed_at = now() - interval '30 days'")
    with bench.sessions.begin() as session:
        BlobStore(session).release("documentation:1", kept=[kept])
    assert bench.service(grace=timedelta(hours=1)).collect().marked == 0
    bench.sql("UPDATE blobs SET changed_at = now() - interval '61 minutes'")
    assert bench.service(grace=timedelta(hours=1)).collect().removed == 1
    assert bench.objects == [kept.at(1)]
    assert bench.sql("SELECT digest FROM blob_references") == [(kept.digest,)]


@pytest.mark.parametrize("steps", [1, 2, 3])
def test_a_collector_that_dies_after_a_step_is_followed_by_one_that_goes_on(bench: Bench, steps: int) -> None:
    bench.store(b"garbage")
    dying = bench.steps()
    assert [len(batch) for batch in dying.mark()] == [1]
    if steps > 1:
        for batch in dying.marked():
            dying.remove(batch)
            if steps > 2:
                dying.finish(batch)
    report = bench.service().collect(grace=NOW)
    assert report.removed == (1 if steps < 3 else 0)
    assert (bench.rows, bench.objects) == ([(1, "deleted")], [])


@pytest.mark.parametrize("steps", [1, 2, 3])
def test_a_push_that_meets_a_collector_takes_the_next_generation(bench: Bench, steps: int) -> None:
    (key,) = bench.store(b"bytes")
    late = bench.steps()
    (marked,) = next(late.mark())
    if steps > 1:
        late.remove([marked])
    if steps > 2:
        late.finish([marked])
    bench.store(b"bytes")
    bench.refer(key)
    late.remove([marked])  # however late
    assert late.finish([marked]) == []
    bench.service().collect(grace=NOW)
    assert (bench.rows, bench.objects) == ([(2, "stored")], [key.at(2)])
    assert b"".join(bench.storage.read(key)) == b"bytes"


def test_a_reference_that_comes_between_the_candidates_and_the_lock_keeps_the_blob(bench: Bench) -> None:
    """What `mark` reads first may be old by the time it has the lock."""
    (key,) = bench.store(b"bytes")
    reads = threading.Event()

    def refer() -> None:
        with bench.sessions.begin() as session:
            BlobStore(session).refer({key: 5}, "version:1")
            reads.set()
            reads.wait(0.2)

    thread = threading.Thread(target=refer)
    thread.start()
    reads.wait()
    marked = sum(len(batch) for batch in bench.steps().mark())  # skips what is locked
    thread.join()
    assert marked == 0
    assert bench.service().collect(grace=NOW).marked == 0
    assert bench.rows == [(1, "stored")]


def test_a_reference_to_what_is_marked_is_refused(bench: Bench) -> None:
    (key,) = bench.store(b"bytes")
    list(bench.steps().mark())
    with pytest.raises(BlobGone):
        bench.refer(key)


def test_objects_that_nobody_can_refer_to_again_are_found_by_listing(bench: Bench) -> None:
    (key,) = bench.store(b"bytes")
    bench.service().collect(grace=NOW)
    bench.storage.write(key.at(1), [b"bytes"])  # a writer that outlived its lease
    unknown = StorageKey.blob(digest_bytes(b"nobody knows"))
    bench.storage.write(unknown, [b"nobody knows"])
    report = bench.service().collect(grace=NOW)
    assert (report.orphans, report.unknown) == (1, 1)
    assert bench.objects == [unknown.at(1)]


def test_two_collectors_at_once_remove_everything_once(bench: Bench) -> None:
    bench.store(*(b"%d" % number for number in range(200)))
    reports = []
    threads = [
        threading.Thread(target=lambda: reports.append(bench.service().collect(grace=NOW))) for _ in range(2)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(report.removed for report in reports) == 200
    assert bench.objects == []


def test_of_several_processes_one_collects_when_it_is_due(bench: Bench) -> None:
    services = [bench.service(grace=NOW, every=timedelta(hours=1)) for _ in range(3)]
    assert [service.collect_if_due() is not None for service in services] == [True, False, False]
    bench.sql("UPDATE collections SET started_at = now() + interval '1 day'")  # the clock was set back
    assert services[0].collect_if_due() is not None
    assert bench.service(every=NOW).collect_if_due() is None
    assert bench.sql("SELECT count(*), count(ended_at) FROM collections") == [(2, 2)]


def test_without_references_that_must_be_there_nothing_is_collected(bench: Bench) -> None:
    (weights,) = bench.store(b"weights")
    bench.store(b"garbage")
    bench.sql("INSERT INTO models (name) VALUES ('a/b')")
    bench.sql(
        "INSERT INTO versions (model_id, number, identity, spec, pins, weights) SELECT id, 1, '', '{}', '{}', %s FROM models",
        weights.digest,
    )
    with pytest.raises(CollectionRefused, match="Nothing was collected") as caught:
        bench.service().collect(grace=NOW)
    assert "pt2hub admin reindex" in str(caught.value.hint)
    assert {state for _, state in bench.rows} == {"stored"}


def test_a_reindex_that_begins_beside_a_collection_stops_its_marks(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(collection, "_BATCH", 1)
    bench.store(b"a", b"b", b"c")
    marks = bench.steps().mark()
    assert len(next(marks)) == 1
    bench.sql("INSERT INTO server_settings (name, value) VALUES ('reindex_unfinished', 'running')")
    assert list(marks) == []
    assert bench.sql("SELECT count(*) FROM blobs WHERE state = 'stored'") == [(2,)]


def test_an_object_that_cannot_be_removed_does_not_keep_the_others(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = bench.store(*(b"%d" % number for number in range(6)))
    locked, remove = {sorted(keys)[1].digest}, LocalStorage.remove

    def refuse(storage: LocalStorage, asked: Sequence[StorageKey]) -> None:
        if locked.intersection(key.digest for key in asked):
            raise StorageUnavailable
        remove(storage, asked)

    monkeypatch.setattr(LocalStorage, "remove", refuse)
    report = bench.service().collect(grace=NOW)
    assert (report.removed, report.stuck, report.waiting) == (5, 1, 1)
    bench.sql("UPDATE blobs SET state = 'deleted'")  # as a leftover that the listing finds
    assert bench.service().collect(grace=NOW).stuck == 1
    locked.clear()
    assert bench.service().collect(grace=NOW).orphans == 1
    locked.update(key.digest for key in bench.store(*(b"x%d" % number for number in range(6))))
    with pytest.raises(StorageUnavailable):  # it is away
        bench.service().collect(grace=NOW)


def test_a_file_that_cannot_be_removed_keeps_no_other_file(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = sorted(bench.store(b"a", b"b", b"c"))
    unlink = Path.unlink

    def refuse(path: Path, *, missing_ok: bool = False) -> None:
        if path.name == Path(keys[0].path).name:
            raise PermissionError(errno.EACCES, "Permission denied")
        unlink(path, missing_ok=missing_ok)

    monkeypatch.setattr(Path, "unlink", refuse)
    with pytest.raises(StorageUnavailable):
        bench.storage.remove(keys)
    assert [bench.storage.size(key) for key in keys] == [1, None, None]
