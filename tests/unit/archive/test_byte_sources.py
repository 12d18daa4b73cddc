"""Bytes read in ranges: the same from a file, from memory and from a storage."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from pt2hub.archive.sources import open_source
from pt2hub.domain.digests import CHUNK, digest_bytes
from pt2hub.server.blobs.keys import StorageKey
from pt2hub.server.blobs.memory import MemoryStorage
from pt2hub.server.blobs.sources import StoredSource

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

DATA = os.urandom(2 * CHUNK + 1000)
KEY = StorageKey.blob(digest_bytes(DATA))
RANGES = [
    (0, 0),
    (0, 8),
    (8, 200),
    (100, 300),
    (CHUNK - 1, CHUNK + 1),
    (5, 2 * CHUNK),
    (len(DATA) - 1, len(DATA)),
    (0, len(DATA)),
]


class Counted(MemoryStorage):
    """A storage that notes what is read."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[tuple[int, int | None]] = []

    def read(self, key: StorageKey, start: int = 0, stop: int | None = None) -> Iterator[bytes]:
        self.asked.append((start, stop))
        return super().read(key, start, stop)


@pytest.fixture
def storage() -> Counted:
    made = Counted()
    made.write(KEY, [DATA])
    return made


@pytest.mark.parametrize("kind", ["file", "bytes", "stored"])
def test_ranges_in_any_order_are_exact(kind: str, storage: Counted, tmp_path: Path) -> None:
    (tmp_path / "data").write_bytes(DATA)
    sources: dict[str, Path | bytes | StoredSource] = {
        "file": tmp_path / "data",
        "bytes": DATA,
        "stored": StoredSource(storage, KEY, len(DATA)),
    }
    with open_source(sources[kind]) as source:
        assert source.size == len(DATA)
        for start, stop in [*RANGES, *reversed(RANGES)]:
            pieces = list(source.read(start, stop))
            assert b"".join(pieces) == DATA[start:stop]
            assert max(map(len, pieces), default=0) <= CHUNK


def test_small_pieces_that_lie_together_cost_one_request(storage: Counted) -> None:
    source = StoredSource(storage, KEY, len(DATA))
    for start in range(0, 100_000, 100):
        assert b"".join(source.read(start, start + 100)) == DATA[start : start + 100]
    assert storage.asked == [(0, CHUNK)]
    list(source.read(len(DATA) - 10, len(DATA)))
    assert storage.asked[1:] == [(len(DATA) - 10, len(DATA))]
