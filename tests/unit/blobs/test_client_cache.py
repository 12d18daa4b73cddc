"""A file appears in the cache only whole and verified, and a damaged one is never served."""

from __future__ import annotations

import os
import shutil
import stat
import time
from typing import TYPE_CHECKING

import pytest

from pt2hub.client.blobs import records
from pt2hub.client.blobs.cache import BlobCache
from pt2hub.client.blobs.records import Record
from pt2hub.domain.digests import digest_bytes, hex_of
from pt2hub.errors import BadResponse, DigestMismatch, HomeUnusable
from support.blob_sources import MemoryBlob

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

DATA = bytes(range(256)) * 40
DIGEST = digest_bytes(DATA)
WRONG = DATA[:-1] + b"x"
OTHER = digest_bytes(WRONG)


def stored(folder: Path) -> tuple[BlobCache, Path]:
    cache = BlobCache(folder)
    return cache, cache.get(DIGEST, len(DATA), MemoryBlob(DATA))


def files(folder: Path) -> list[str]:
    """Names of all files and links, below `blobs` without the record."""
    found = (path for path in folder.rglob("*") if path.is_symlink() or path.is_file())
    return sorted(path.name for path in found if path.suffix != ".stat")


def reads_of(cache: BlobCache) -> int:
    """How often the source is read to get the file, which must be right."""
    source = MemoryBlob(DATA)
    assert cache.get(DIGEST, len(DATA), source).read_bytes() == DATA
    return len(source.reads)


def test_a_file_is_fetched_once_and_is_read_only(tmp_path: Path) -> None:
    cache, path = stored(tmp_path)
    assert path == cache.find(DIGEST)
    assert reads_of(cache) == 0
    assert path.read_bytes() == DATA
    assert files(tmp_path) == [hex_of(DIGEST)]


def test_an_empty_cache_has_nothing(tmp_path: Path) -> None:
    assert BlobCache(tmp_path / "absent").find(DIGEST) is None
    assert not (tmp_path / "absent").exists()


def test_a_document_is_stored_only_if_its_bytes_are_right(tmp_path: Path) -> None:
    cache = BlobCache(tmp_path)
    with pytest.raises(DigestMismatch, match="received sha256:"):
        cache.put(DIGEST, WRONG)
    assert cache.find(DIGEST) is None
    assert cache.put(DIGEST, DATA) == cache.find(DIGEST) == cache.put(DIGEST, DATA)
    assert files(tmp_path) == [hex_of(DIGEST)]


def test_an_empty_blob_needs_no_bytes(tmp_path: Path) -> None:
    source = MemoryBlob(b"")
    assert BlobCache(tmp_path).get(digest_bytes(b""), 0, source).read_bytes() == b""
    assert source.reads == []


def test_wrong_bytes_leave_nothing_behind(tmp_path: Path) -> None:
    cache = BlobCache(tmp_path)
    with pytest.raises(DigestMismatch, match="received sha256:"):
        cache.get(DIGEST, len(DATA), MemoryBlob(WRONG))
    assert cache.find(DIGEST) is None
    assert files(tmp_path) == []


def test_a_stream_that_breaks_is_continued_by_the_next_get(tmp_path: Path) -> None:
    def breaks(at: int) -> None:
        if at >= 5000:
            raise BadResponse

    cache = BlobCache(tmp_path)
    with pytest.raises(BadResponse):
        cache.get(DIGEST, len(DATA), MemoryBlob(DATA, on_chunk=breaks))
    assert cache.find(DIGEST) is None
    source = MemoryBlob(DATA)
    assert cache.get(DIGEST, len(DATA), source).read_bytes() == DATA
    assert source.reads == [(5000, len(DATA))]
    assert files(tmp_path) == [hex_of(DIGEST)]


# -- files that are not what they were -------------------------------------------------------------------


def rewrite(path: Path, data: bytes) -> None:
    path.chmod(0o644)
    path.write_bytes(data)


def flip(path: Path) -> None:
    rewrite(path, WRONG)


def flip_and_hide(path: Path) -> None:
    before = path.stat()
    rewrite(path, WRONG)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def truncate(path: Path) -> None:
    rewrite(path, DATA[:-1])


def link_in_place(path: Path) -> None:
    path.rename(path.with_name("elsewhere"))
    path.symlink_to(path.with_name("elsewhere"))


def link_to_nothing(path: Path) -> None:
    path.unlink()
    path.symlink_to(path.with_name("nowhere"))


def another_blob(path: Path) -> None:
    path.unlink()
    path.write_bytes(b"the bytes of another digest")


DAMAGES = [flip, flip_and_hide, truncate, link_in_place, link_to_nothing, another_blob]


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_file_is_not_served_and_is_fetched_again(
    tmp_path: Path, damage: Callable[[Path], None]
) -> None:
    cache, path = stored(tmp_path)
    damage(path)
    assert cache.find(DIGEST) is None
    assert reads_of(cache) == 1
    assert stat.S_ISREG(path.lstat().st_mode)
    assert cache.find(DIGEST) == path


def test_a_folder_in_a_files_place_is_an_error_that_names_it(tmp_path: Path) -> None:
    cache, path = stored(tmp_path)
    path.unlink()
    (path / "below").mkdir(parents=True)
    with pytest.raises(HomeUnusable, match="Cannot write to the cache") as caught:
        cache.get(DIGEST, len(DATA), MemoryBlob(DATA))
    assert hex_of(DIGEST) in str(caught.value.where)
    shutil.rmtree(path)
    assert reads_of(cache) == 0, "the bytes were kept"


def test_foreign_files_are_left_alone(tmp_path: Path) -> None:
    cache, path = stored(tmp_path)
    for name in ("notes.txt", "0" * 63, f"{'0' * 64}.part"):
        path.with_name(name).write_text("mine")
    rewrite(path, WRONG)
    assert reads_of(cache) == 1
    assert {"notes.txt", "0" * 63, f"{'0' * 64}.part"} < set(files(tmp_path))


def test_bytes_that_rot_on_disk_are_found_by_hashing_only(tmp_path: Path) -> None:
    cache, path = stored(tmp_path)
    rewrite(path, WRONG)
    found = records.regular_stamp(path)
    assert found
    Record(found, "").write(path, 0o600)  # as if the disk had changed them, which changes no time
    assert cache.find(DIGEST) == path
    assert cache.find(DIGEST, verify="always") is None
    assert cache.find(DIGEST) is None, "not trusted later either"
    assert reads_of(cache) == 1


@pytest.mark.parametrize(
    "text", ["", "[1, 2, 3]", "{", '{"stamp": 3}', '{"stamp": ["a"], "boot": ""}', "\xff"]
)
def test_a_record_that_cannot_be_read_costs_one_hash(tmp_path: Path, text: str) -> None:
    cache, path = stored(tmp_path)
    path.with_suffix(".stat").write_text(text, encoding="latin-1")
    assert reads_of(cache) == 0
    assert Record.read(path)


def test_a_touched_file_is_hashed_once_more_and_kept(tmp_path: Path) -> None:
    cache, path = stored(tmp_path)
    os.utime(path)
    assert Record.read(path) != Record(records.stamp(path.stat()), records.boot_id())
    assert reads_of(cache) == 0
    assert Record.read(path) == Record(records.stamp(path.stat()), records.boot_id())


# -- power failures --------------------------------------------------------------------------------------


def test_a_file_that_may_not_be_on_disk_is_hashed_again_after_a_restart(tmp_path: Path) -> None:
    cache, path = stored(tmp_path)
    record = Record.read(path)
    assert record
    assert record.boot == records.boot_id()
    Record(record.stamp, "an earlier start").write(path, 0o600)
    found = path.with_suffix(".stat").stat().st_ino
    assert cache.find(DIGEST) == path
    assert Record.read(path) == record
    assert path.with_suffix(".stat").stat().st_ino != found


def test_a_file_that_was_used_a_minute_later_is_known_to_be_on_disk(tmp_path: Path) -> None:
    cache, path = stored(tmp_path)
    record = Record.read(path)
    assert record
    old = time.time() - 61
    os.utime(path.with_suffix(".stat"), (old, old))
    assert cache.find(DIGEST) == path
    assert Record.read(path) == Record(record.stamp, "")


def test_a_use_is_noted_once_an_hour(tmp_path: Path) -> None:
    cache, path = stored(tmp_path)
    record = path.with_suffix(".stat")
    Record(records.stamp(path.stat()), "").write(path, 0o600)
    for seconds, noted in ((3000, False), (4000, True)):
        old = time.time() - seconds
        os.utime(record, (old, old))
        assert cache.find(DIGEST) == path
        assert (record.stat().st_mtime > old + 10) == noted


# -- modes and owners ------------------------------------------------------------------------------------


@pytest.fixture(params=[0o000, 0o022, 0o077])
def umask(request: pytest.FixtureRequest) -> Iterator[int]:
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


def modes(root: Path) -> dict[str, str]:
    found = {path: stat.S_IMODE(path.lstat().st_mode) for path in [root, *root.rglob("*")]}
    return {path.name.replace(hex_of(DIGEST), "blob"): f"{mode:o}" for path, mode in found.items()}


@pytest.mark.usefixtures("umask")
def test_the_umask_does_not_change_the_modes(tmp_path: Path) -> None:
    stored(tmp_path / "above" / "below" / "cache")
    private = {"cache": "700", "blobs": "700", "sha256": "700", "partial": "700", "leaders": "700"}
    assert modes(tmp_path / "above" / "below" / "cache") == private | {"blob": "444", "blob.stat": "600"}
    assert [modes(tmp_path)[name] for name in ("above", "below")] == ["700", "700"]


@pytest.mark.usefixtures("umask")
def test_a_shared_cache_can_be_read_by_others_and_written_by_its_owner_only(tmp_path: Path) -> None:
    cache = BlobCache(tmp_path / "own", shared=tmp_path / "above" / "shared")
    assert cache.get(DIGEST, len(DATA), MemoryBlob(DATA)).is_relative_to(tmp_path / "above" / "shared")
    assert cache.put(OTHER, WRONG).is_relative_to(tmp_path / "above" / "shared")
    found = modes(tmp_path / "above")
    assert [found[name] for name in ("above", "shared", "blobs", "sha256", "blob", "blob.stat")] == [
        "755",
        "755",
        "755",
        "755",
        "444",
        "644",
    ]
    assert (found["partial"], found["leaders"], found[hex_of(OTHER)]) == ("700", "700", "444")
    assert not (tmp_path / "own").exists()


def test_a_shared_cache_that_others_can_write_is_refused(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    BlobCache(tmp_path / "own", shared=shared).put(DIGEST, DATA)
    (shared / "blobs").chmod(0o775)
    with pytest.raises(HomeUnusable, match="can be written by others") as caught:
        BlobCache(tmp_path / "own", shared=shared).find(DIGEST)
    assert caught.value.hint == f"Its owner corrects it with: chmod go-w {shared / 'blobs'}"


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file")
    with pytest.raises(HomeUnusable, match="PT2HUB_CACHE") as caught:
        BlobCache(tmp_path / "cache").get(DIGEST, len(DATA), MemoryBlob(DATA))
    assert str(tmp_path) in str(caught.value.where)
