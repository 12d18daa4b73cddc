"""A file appears in the cache only whole and verified, once, and a damaged one is never served."""

from __future__ import annotations

import os
import threading
import time
from typing import TYPE_CHECKING

import pytest

from pt2hub.client.cache import BlobCache
from pt2hub.domain.digests import digest_bytes
from pt2hub.errors import BadResponse, DigestMismatch, HomeUnusable

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

DATA = bytes(range(256)) * 40
DIGEST = digest_bytes(DATA)


class Source:
    """A stream that counts how often it was opened."""

    def __init__(self, data: bytes = DATA, *, seconds: float = 0.0) -> None:
        self.opened = 0
        self._data = data
        self._seconds = seconds

    def __call__(self) -> Iterable[bytes]:
        self.opened += 1
        return self._chunks()

    def _chunks(self) -> Iterator[bytes]:
        for at in range(0, len(self._data), 1000):
            time.sleep(self._seconds)
            yield self._data[at : at + 1000]


def stored(folder: Path) -> tuple[BlobCache, Path]:
    cache = BlobCache(folder)
    return cache, cache.get(DIGEST, len(DATA), Source())


def left_behind(folder: Path) -> list[str]:
    return [path.name for path in folder.rglob("*.incomplete*")]


def test_a_file_is_fetched_once_and_is_read_only(tmp_path: Path) -> None:
    cache, source = BlobCache(tmp_path), Source()
    path = cache.get(DIGEST, len(DATA), source)
    assert cache.get(DIGEST, len(DATA), source) == path == cache.find(DIGEST)
    assert (source.opened, path.read_bytes()) == (1, DATA)
    assert path.stat().st_mode & 0o777 == 0o444
    assert left_behind(tmp_path) == []


def test_an_empty_cache_has_nothing(tmp_path: Path) -> None:
    assert BlobCache(tmp_path / "absent").find(DIGEST) is None
    assert not (tmp_path / "absent").exists()


@pytest.mark.parametrize(
    ("data", "error", "words"),
    [
        (DATA[:-1] + b"x", DigestMismatch, "digest sha256:"),
        (DATA[:-1], BadResponse, "fewer than 10240 bytes"),
        (DATA + b"x", BadResponse, "more than 10240 bytes"),
    ],
)
def test_wrong_bytes_leave_nothing_behind(
    tmp_path: Path, data: bytes, error: type[Exception], words: str
) -> None:
    cache = BlobCache(tmp_path)
    with pytest.raises(error, match=words):
        cache.get(DIGEST, len(DATA), Source(data))
    assert cache.find(DIGEST) is None
    assert left_behind(tmp_path) == []


def test_a_stream_that_breaks_leaves_nothing_behind_and_the_next_try_works(tmp_path: Path) -> None:
    def broken() -> Iterator[bytes]:
        yield DATA[:100]
        raise BadResponse

    cache = BlobCache(tmp_path)
    with pytest.raises(BadResponse):
        cache.get(DIGEST, len(DATA), broken)
    assert left_behind(tmp_path) == []
    assert cache.get(DIGEST, len(DATA), Source()).read_bytes() == DATA


def rewrite(path: Path, data: bytes) -> None:
    path.chmod(0o644)
    path.write_bytes(data)


def test_a_file_rewritten_in_place_is_noticed_and_fetched_again(tmp_path: Path) -> None:
    cache, path = stored(tmp_path)
    rewrite(path, DATA[:-1] + b"x")
    source = Source()
    assert cache.get(DIGEST, len(DATA), source).read_bytes() == DATA
    assert source.opened == 1


def test_a_change_that_keeps_size_and_time_is_found_by_hashing_only(tmp_path: Path) -> None:
    cache, path = stored(tmp_path)
    before = path.stat()
    rewrite(path, DATA[:-1] + b"x")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert cache.find(DIGEST) == path
    assert cache.find(DIGEST, verify="always") is None


def test_a_touched_file_is_hashed_once_more_and_kept(tmp_path: Path) -> None:
    cache, path = stored(tmp_path)
    os.utime(path)
    source = Source()
    assert cache.get(DIGEST, len(DATA), source) == path
    assert source.opened == 0


def test_two_processes_that_ask_at_once_share_one_download(tmp_path: Path) -> None:
    source = Source(seconds=0.01)
    found: list[Path] = []
    threads = [
        threading.Thread(target=lambda: found.append(BlobCache(tmp_path).get(DIGEST, len(DATA), source)))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert source.opened == 1
    assert len(found) == 4


def test_what_a_killed_process_left_is_swept(tmp_path: Path) -> None:
    folder = tmp_path / "blobs" / "sha256"
    folder.mkdir(parents=True)
    old, young = folder / "aa.incomplete", folder / "bb.incomplete"
    for path in (old, young):
        path.write_bytes(b"half")
    os.utime(old, (1, 1))
    stored(tmp_path)
    assert left_behind(tmp_path) == ["bb.incomplete"]


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file")
    with pytest.raises(HomeUnusable, match="PT2HUB_HOME") as caught:
        BlobCache(tmp_path / "cache").get(DIGEST, len(DATA), Source())
    assert str(tmp_path) in str(caught.value.where)
