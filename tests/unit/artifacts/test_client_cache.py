"""A file appears in the cache only whole and verified, once, and a damaged one is never served."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING

import pytest

from pt2hub.client.blobs.cache import BlobCache
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
        (DATA[:-1] + b"x", DigestMismatch, "received sha256:"),
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


PROGRAM = """
import sys, time
from pathlib import Path
from pt2hub.client.blobs.cache import BlobCache
from pt2hub.domain.digests import digest_bytes
data = bytes(range(256)) * 40
def fetch():
    print("fetching", flush=True)
    yield data[:5000]
    print("half", flush=True)
    sys.stdin.read()
    yield data[5000:]
path = BlobCache(Path(sys.argv[1])).get(digest_bytes(data), len(data), fetch)
print("done", path.read_bytes() == data, flush=True)
"""


def another_process(folder: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", PROGRAM, str(folder)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def said(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def test_a_killed_download_leaves_nothing_that_is_taken_for_whole(tmp_path: Path) -> None:
    with another_process(tmp_path) as process:
        assert [said(process), said(process)] == ["fetching", "half"]
        process.send_signal(signal.SIGKILL)
    assert len(left_behind(tmp_path)) == 1
    cache = BlobCache(tmp_path)
    assert cache.find(DIGEST) is None
    assert cache.get(DIGEST, len(DATA), Source()).read_bytes() == DATA  # its lock went with it
    assert left_behind(tmp_path) == []


def test_a_second_process_waits_for_the_first_ones_download(tmp_path: Path) -> None:
    with another_process(tmp_path) as first, another_process(tmp_path) as second:
        streams = [process.stdout for process in (first, second) if process.stdout]
        ready = select.select(streams, [], [], 30)[0][0]
        loader, waiter = (first, second) if ready is first.stdout else (second, first)
        assert [said(loader), said(loader)] == ["fetching", "half"]
        loader.communicate(timeout=30)
        waiter_said, _ = waiter.communicate(timeout=30)
    assert waiter_said == "done True\n"


def test_a_refused_stream_is_closed_at_once(tmp_path: Path) -> None:
    closed = []

    def endless() -> Iterator[bytes]:
        try:
            while True:
                yield DATA
        finally:
            closed.append(True)

    with pytest.raises(BadResponse) as caught:
        BlobCache(tmp_path).get(DIGEST, len(DATA), endless)
    assert closed, f"not left open behind {caught.value!r}"


def test_processes_that_store_other_blobs_do_not_disturb_the_sweep(tmp_path: Path) -> None:
    folder = tmp_path / "blobs" / "sha256"
    folder.mkdir(parents=True)
    (folder / "gone.incomplete").symlink_to(folder / "nowhere")  # as if renamed between listing and looking
    stored(tmp_path)


def test_a_file_once_found_damaged_is_not_trusted_later_by_its_time_and_size(tmp_path: Path) -> None:
    cache, path = stored(tmp_path)
    before = path.stat()
    path.chmod(0o644)
    path.write_bytes(DATA[:-1] + b"x")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))  # as a disk's error leaves it
    assert cache.find(DIGEST) == path
    assert cache.find(DIGEST, verify="always") is None
    assert cache.find(DIGEST) is None
    assert cache.get(DIGEST, len(DATA), Source()).read_bytes() == DATA
