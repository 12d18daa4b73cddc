"""Downloads over several connections: every byte once, in any order, and the digest of all."""

from __future__ import annotations

import os
import random
import threading
import time
from contextlib import suppress
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pt2hub.client.blobs import download
from pt2hub.client.blobs.download import Download
from pt2hub.client.blobs.partial import PartialFile
from pt2hub.client.blobs.range_set import RangeSet
from pt2hub.client.http.ranges import RangesIgnored
from pt2hub.domain.digests import digest_bytes
from pt2hub.errors import BadResponse, ServerUnreachable, StorageUnavailable
from support.blob_sources import MemoryBlob

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

DATA = random.Random(3).randbytes(200_000)
NAME = "ab" * 32


def unseen(_: int) -> None:
    pass


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pieces that fit the data, and short pauses."""
    monkeypatch.setattr(download, "MIN_PIECE_BYTES", 5000)
    monkeypatch.setattr(download, "MAX_PIECE_BYTES", 20_000)
    monkeypatch.setattr(download, "_PAUSE_SECONDS", 0.002)


@pytest.fixture
def partial(tmp_path: Path) -> Iterator[PartialFile]:
    made = PartialFile.open(tmp_path, NAME, len(DATA), watch=unseen)
    yield made
    made.close()


def run(source: MemoryBlob, partial: PartialFile) -> None:
    assert Download(source, partial, unseen).run() == digest_bytes(DATA)
    assert partial.missing() == []


def overlaps(reads: list[tuple[int, int]]) -> bool:
    ordered = sorted(reads)
    return any(stop > start for (_, stop), (start, _) in pairwise(ordered))


@given(st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40))))
def test_a_set_of_ranges_is_the_set_of_their_bytes(ranges: list[tuple[int, int]]) -> None:
    found, expected = RangeSet(), set[int]()
    for start, stop in ranges:
        found.add(start, stop)
        expected |= set(range(start, stop))
    assert {at for start, stop in found for at in range(start, stop)} == expected
    assert found.total == len(expected)
    missing = {at for start, stop in found.missing(40) for at in range(start, stop)}
    assert missing == set(range(40)) - expected
    assert found.reach == min(set(range(42)) - expected)
    assert not overlaps(list(found))


def test_one_connection_reads_in_order(partial: PartialFile) -> None:
    source = MemoryBlob(DATA)
    run(source, partial)
    assert source.reads == sorted(source.reads)
    assert not overlaps(source.reads)


def test_several_connections_read_each_byte_once_with_smaller_pieces_towards_the_end(
    partial: PartialFile,
) -> None:
    threads = set()

    def note(_: int) -> None:
        threads.add(threading.get_ident())
        time.sleep(0.0005)

    source = MemoryBlob(DATA, connections=4, on_chunk=note)
    run(source, partial)
    assert len(threads) == 4
    assert not overlaps(source.reads)
    sizes = [stop - start for start, stop in sorted(source.reads)]
    assert sizes[0] == 20_000
    assert sizes[-1] < 10_000


def test_connections_are_added_when_the_first_answer_says_that_they_pay(partial: PartialFile) -> None:
    busy, most = set(), [0]

    def note(_: int) -> None:
        source.connections = 3
        busy.add(threading.get_ident())
        most[0] = max(most[0], len(busy))
        time.sleep(0.001)

    source = MemoryBlob(DATA, connections=1, on_chunk=note)
    run(source, partial)
    assert most == [3]


@pytest.mark.parametrize("error", [ServerUnreachable, StorageUnavailable])
def test_a_connection_that_breaks_goes_on_where_it_broke(
    partial: PartialFile, error: type[Exception]
) -> None:
    dice, lock = random.Random(1), threading.Lock()

    def breaks(_: int) -> None:
        with lock:
            if dice.random() < 0.1:
                raise error

    source = MemoryBlob(DATA, connections=4, on_chunk=breaks)
    run(source, partial)
    assert len(source.reads) > 20


def test_a_place_that_always_breaks_is_given_up_with_the_number_of_bytes_that_came(
    partial: PartialFile,
) -> None:
    def breaks(at: int) -> None:
        if at >= 150_000:
            raise ServerUnreachable("gone")

    with pytest.raises(ServerUnreachable, match=r"after \d+ of 200000 bytes, .*: gone") as caught:
        run(MemoryBlob(DATA, connections=4, on_chunk=breaks), partial)
    assert caught.value.context == {"received": partial.done, "expected": 200_000}
    assert partial.done >= 150_000, "the other connections went on"
    assert partial.missing()[0][0] >= 150_000


def test_a_connection_that_often_fails_is_tried_again_while_others_bring_bytes(
    partial: PartialFile,
) -> None:
    bad: list[int] = []

    def breaks(at: int) -> None:
        time.sleep(0.002)
        if at == 0 and partial.done < 100_000:
            bad.append(at)
            raise StorageUnavailable

    run(MemoryBlob(DATA, connections=3, on_chunk=breaks), partial)
    assert len(bad) > 1


def test_what_no_retry_cures_ends_the_download_at_once(partial: PartialFile) -> None:
    def refuses(at: int) -> None:
        if at == 0:
            raise BadResponse("no")
        time.sleep(0.001)

    source = MemoryBlob(DATA, connections=4, on_chunk=refuses)
    with pytest.raises(BadResponse, match="no"):
        run(source, partial)
    assert len(source.reads) < 10


def test_what_the_watcher_raises_ends_the_download(partial: PartialFile) -> None:
    def watch(done: int) -> None:
        if done > 50_000:
            raise KeyboardInterrupt

    source = MemoryBlob(DATA, on_chunk=lambda _: time.sleep(0.0002))
    with pytest.raises(KeyboardInterrupt):
        Download(source, partial, watch).run()
    assert 0 < partial.done < len(DATA)
    read = len(source.reads)
    time.sleep(0.05)
    assert len(source.reads) == read, "the threads ended too"


def test_a_source_that_ignores_ranges_is_read_in_one_go(partial: PartialFile) -> None:
    partial.write(0, DATA[:3000])

    def ignores(_: int) -> None:
        if source.ranged:
            source.ranged = False
            raise RangesIgnored

    source = MemoryBlob(DATA, on_chunk=ignores)
    run(source, partial)
    assert source.reads == [(3000, 20_000), (3000, len(DATA))]


def test_the_digest_is_that_of_the_bytes_that_stay(partial: PartialFile) -> None:
    there = slice(100_000, 110_000)
    partial.write(0, DATA[:3000])
    partial.write(there.start, DATA[there])
    other = bytearray(DATA)
    other[there] = bytes(10_000)

    def ignores(at: int) -> None:
        if source.ranged:
            source.ranged = False
            raise RangesIgnored
        if at == there.start:
            time.sleep(0.1)  # what is there is hashed meanwhile

    source = MemoryBlob(bytes(other), on_chunk=ignores)
    found, kept = Download(source, partial, unseen).run(), bytearray(len(DATA))
    assert partial.read_into(memoryview(kept), 0) == len(DATA)
    assert found == digest_bytes(bytes(kept))


def test_connections_that_all_meet_a_proxy_that_ignores_ranges_leave_the_rest_to_one(
    partial: PartialFile,
) -> None:
    met = threading.Barrier(4)

    def ignores(at: int) -> None:
        if source.ranged:
            with suppress(threading.BrokenBarrierError):
                met.wait(5)
            source.ranged = False
            source.connections = 1
            raise RangesIgnored
        time.sleep(0.0002)
        assert at >= 0

    source = MemoryBlob(DATA, connections=4, on_chunk=ignores)
    run(source, partial)
    assert len(source.reads) <= 8, "four in vain, and mostly one for the rest"


def test_connections_do_not_wait_for_the_hash_of_what_is_there(
    partial: PartialFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    partial.write(0, DATA[:100_000])
    monkeypatch.setattr(download, "CHUNK", 1000)
    hashed, threads = [], set()
    read = partial.read_into

    def slowly(buffer: memoryview, start: int) -> int:
        time.sleep(0.002)
        hashed.append(start)
        return read(buffer, start)

    def note(_: int) -> None:
        source.connections = 3
        threads.add((threading.get_ident(), len(hashed) < 90))
        time.sleep(0.005)

    monkeypatch.setattr(partial, "read_into", slowly)
    source = MemoryBlob(DATA, on_chunk=note)
    run(source, partial)
    assert sum(early for _, early in threads) == 3


def test_bytes_that_something_else_takes_away_are_an_error(partial: PartialFile, tmp_path: Path) -> None:
    partial.write(0, DATA)
    (folder,) = tmp_path.iterdir()
    os.truncate(folder / "data", 1000)
    with pytest.raises(OSError, match="truncated"):
        run(MemoryBlob(DATA), partial)


def test_only_what_is_missing_is_read(partial: PartialFile) -> None:
    for start in (10_000, 100_000):
        partial.write(start, DATA[start : start + 30_000])
    source = MemoryBlob(DATA, connections=2)
    run(source, partial)
    assert sum(stop - start for start, stop in source.reads) == len(DATA) - 60_000
    assert not overlaps([*source.reads, (10_000, 40_000), (100_000, 130_000)])
