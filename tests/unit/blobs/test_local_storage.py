"""The local directory's own promises: crashes, damage and directories that cannot be used."""

from __future__ import annotations

import errno
import os
import resource
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from pt2hub.domain.artifacts import MANIFEST_TYPE
from pt2hub.domain.digests import digest_bytes
from pt2hub.errors import BadConfiguration, StorageUnavailable
from pt2hub.server.blobs.keys import StorageKey
from pt2hub.server.blobs.local import LocalStorage
from pt2hub.server.blobs.open import open_storage
from pt2hub.server.blobs.verification import os_errors

if TYPE_CHECKING:
    from pathlib import Path

DATA = b"bytes" * 1000
KEY = StorageKey.blob(digest_bytes(DATA))


def test_stored_files_are_read_only(tmp_path: Path) -> None:
    LocalStorage(tmp_path).write(KEY, [DATA])
    assert (tmp_path / KEY.path).stat().st_mode & 0o777 == 0o444


def test_a_writer_killed_half_way_leaves_nothing_that_is_read_and_the_next_one_succeeds(
    tmp_path: Path,
) -> None:
    program = (
        "import os, signal, sys; from pathlib import Path\n"
        "from pt2hub.server.blobs.keys import StorageKey; from pt2hub.server.blobs.local import LocalStorage\n"
        "def chunks():\n"
        "    yield b'bytes'\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
        "LocalStorage(Path(sys.argv[1])).write(StorageKey('blobs', sys.argv[2]), chunks())\n"
    )
    environ = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", program, tmp_path, KEY.digest], env=environ, check=False)
    assert done.returncode == -9
    assert list(tmp_path.rglob("*.incomplete")) != []
    storage = LocalStorage(tmp_path)
    assert storage.size(KEY) is None
    assert list(storage.keys("blobs")) == []
    assert storage.write(KEY, [DATA]) == len(DATA)


def test_a_directory_that_cannot_be_made_is_one_error_with_a_hint(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(StorageUnavailable) as caught:
        LocalStorage(tmp_path / "file" / "blobs")
    assert caught.value.where == str(tmp_path / "file" / "blobs")
    assert caught.value.hint
    assert "writable" in caught.value.hint


def test_a_directory_that_vanished_is_one_error_on_every_write(tmp_path: Path) -> None:
    storage = LocalStorage(tmp_path / "blobs")
    (tmp_path / "blobs").rmdir()
    (tmp_path / "blobs").write_bytes(b"")
    for act in (
        lambda: storage.write(KEY, [DATA]),
        lambda: storage.size(KEY),
        lambda: next(storage.read(KEY)),
        lambda: list(storage.keys("blobs")),
    ):
        with pytest.raises(StorageUnavailable):
            act()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_an_unwritable_directory_is_one_error_with_a_hint(tmp_path: Path) -> None:
    storage = LocalStorage(tmp_path)
    tmp_path.chmod(0o500)
    try:
        with pytest.raises(StorageUnavailable, match="writable"):
            storage.write(KEY, [DATA])
    finally:
        tmp_path.chmod(0o700)


def test_a_disk_that_refuses_bytes_is_one_error_and_nothing_is_left(tmp_path: Path) -> None:
    storage = LocalStorage(tmp_path)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))
    try:
        with pytest.raises(StorageUnavailable, match="too large"):
            storage.write(KEY, [DATA])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_a_file_that_shrinks_while_it_is_read_is_one_error(tmp_path: Path) -> None:
    data = bytes(3 << 20)
    key = StorageKey.blob(digest_bytes(data))
    storage = LocalStorage(tmp_path)
    storage.write(key, [data])
    pieces = storage.read(key)
    next(pieces)
    os.truncate(tmp_path / key.path, 1 << 20)
    with pytest.raises(StorageUnavailable, match="truncated"):
        list(pieces)


def test_a_check_leaves_nothing_and_reports_a_disk_that_refuses_bytes(tmp_path: Path) -> None:
    storage = LocalStorage(tmp_path)
    storage.check()
    assert list(tmp_path.iterdir()) == []
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))
    try:
        with pytest.raises(StorageUnavailable, match="too large"):
            storage.check()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert list(tmp_path.iterdir()) == []


def test_a_check_reports_a_directory_that_vanished(tmp_path: Path) -> None:
    storage = LocalStorage(tmp_path / "blobs")
    (tmp_path / "blobs").rmdir()
    with pytest.raises(StorageUnavailable, match="directory exists"):
        storage.check()


def test_checks_of_several_processes_do_not_disturb_each_other(tmp_path: Path) -> None:
    storages = [LocalStorage(tmp_path) for _ in range(8)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda storage: [storage.check() for _ in range(5)], storages))
    assert list(tmp_path.iterdir()) == []


def test_a_key_names_path_and_headers_and_is_found_again_by_its_path() -> None:
    digest = digest_bytes(b"")
    blob, manifest = StorageKey.blob(digest), StorageKey.manifest(digest)
    assert blob.path == f"blobs/sha256/e3/{digest.removeprefix('sha256:')}"
    assert StorageKey.from_path(manifest.path) == manifest.at(1) == manifest.exact
    assert StorageKey.from_path(blob.at(12).path) == blob.at(12) == blob.at(12).exact
    assert (blob.content_type, manifest.content_type) == ("application/octet-stream", MANIFEST_TYPE)
    assert "immutable" in blob.cache_control


def test_a_directory_is_opened_as_local_storage(tmp_path: Path) -> None:
    assert isinstance(open_storage(str(tmp_path / "blobs")), LocalStorage)
    assert (tmp_path / "blobs").is_dir()


@pytest.mark.parametrize("url", ["gs://bucket", "s3://", "s3://ab", "s3://Bucket/x", "s3://bucket/?a=1"])
def test_a_storage_of_another_kind_is_refused_with_the_forms_that_exist(url: str) -> None:
    with pytest.raises(BadConfiguration) as caught:
        open_storage(url)
    assert caught.value.where == "PT2HUB_STORAGE"
    assert "s3://bucket/prefix" in str(caught.value)


@pytest.mark.parametrize(
    ("temporary", "named"),
    [("..probe.834161ce7f777eeb.incomplete", "."), (".backup.83416111.incomplete", "backup"), ("x", "x")],
)
def test_errors_name_no_temporary_files(tmp_path: Path, temporary: str, named: str) -> None:
    with pytest.raises(StorageUnavailable) as caught, os_errors(tmp_path / temporary):
        raise OSError(errno.EROFS, "Read-only file system")
    assert caught.value.where == str(tmp_path / named)
