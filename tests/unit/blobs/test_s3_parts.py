"""Large objects in parts: cut to size, sent by several threads, never more held than these send."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pt2hub.server.blobs.s3.writer import THREADS, Part, _in_parallel, cut

if TYPE_CHECKING:
    from collections.abc import Iterator


@given(st.lists(st.binary(max_size=40)), st.integers(1, 30))
def test_whatever_the_chunks_parts_have_one_size_and_only_the_last_is_shorter(
    chunks: list[bytes], size: int
) -> None:
    parts = list(cut(chunks, size))
    assert b"".join(parts) == b"".join(chunks)
    assert all(len(part) == size for part in parts[:-1])
    assert len(parts[-1]) <= size
    assert b"" not in parts[1:]
    assert all(type(part) is bytes for part in parts)


def test_chunks_that_have_the_size_of_a_part_are_not_copied() -> None:
    chunks = [bytes(7), b"x" * 7, b"tail"]
    parts = list(cut(chunks, 7))
    assert parts[0] is chunks[0]
    assert parts[1] is chunks[1]


class Source:
    """Pieces without end; counts how many were taken."""

    def __init__(self, last: int = 1 << 30) -> None:
        self.taken = 0
        self._last = last

    def __iter__(self) -> Iterator[bytes]:
        while self.taken < self._last:
            self.taken += 1
            yield b"piece"


def test_no_more_pieces_are_held_than_there_are_threads() -> None:
    source, go = Source(3 * THREADS), threading.Event()

    def send(number: int, piece: bytes) -> Part:
        assert go.wait(10)
        return Part(number, len(piece), "etag")

    with ThreadPoolExecutor(1) as pool:
        parts = pool.submit(_in_parallel, source, send)
        until = time.monotonic() + 10
        while source.taken < THREADS and time.monotonic() < until:
            time.sleep(0.01)
        time.sleep(0.1)  # would it take more?
        assert source.taken == THREADS
        go.set()
        assert sorted(part.number for part in parts.result(10)) == list(range(1, 3 * THREADS + 1))


def test_the_first_error_ends_it_and_nothing_is_on_its_way_any_more() -> None:
    source, sending, failed = Source(), threading.Semaphore(0), threading.Event()

    def send(number: int, piece: bytes) -> Part:
        if number == THREADS + 2:
            failed.set()
            raise ConnectionResetError
        assert number <= 2 or failed.wait(10)
        time.sleep(0.02)
        sending.release()
        return Part(number, len(piece), "etag")

    with pytest.raises(ConnectionResetError):
        _in_parallel(source, send)
    sent = sending._value
    time.sleep(0.1)
    assert sending._value == sent
    assert source.taken <= THREADS + 2 + THREADS


def test_an_error_of_the_source_passes_through() -> None:
    def pieces() -> Iterator[bytes]:
        yield b"piece"
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        _in_parallel(pieces(), lambda number, piece: Part(number, len(piece), "etag"))
