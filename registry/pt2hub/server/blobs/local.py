"""Storage in a local directory, the default of `pt2hub up`."""

from __future__ import annotations

import os
import secrets
import shutil
import time
from contextlib import suppress
from typing import TYPE_CHECKING

from pt2hub.errors import NotFound, StorageUnavailable
from pt2hub.server.blobs.keys import StorageKey, StoredObject, blob_missing
from pt2hub.server.blobs.verification import (
    INCOMPLETE,
    file_chunks,
    kept,
    os_errors,
    sync_folder,
    verify_digest,
    verify_stored,
    write_atomically,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from pt2hub.domain.storage import Kind

_PROBE = ".probe"
_READ_ONLY = 0o444
"""Stored bytes never change: what is mapped by a reader must not be rewritten in place."""


class LocalStorage:
    """Storage with one file per blob, written atomically (temporary file, sync, rename)."""

    def __init__(self, root: Path) -> None:
        self._root = root
        with os_errors(root):
            root.mkdir(parents=True, exist_ok=True)

    def size(self, key: StorageKey) -> int | None:
        """See `Reads.size`."""
        found = self._find(key)
        return None if found is None else found[1]

    def read(self, key: StorageKey, start: int = 0, stop: int | None = None) -> Iterator[bytes]:
        """See `Reads.read`."""
        found = self._find(key)
        if found is None:
            raise blob_missing(key)
        yield from file_chunks(found[0], start, stop)

    def fetch(self, key: StorageKey, path: Path) -> None:
        """See `Reads.fetch`."""
        write_atomically(path, verify_stored(self.read(key), key))

    def write(self, key: StorageKey, chunks: Iterable[bytes], *, limit: int | None = None) -> int:
        """See `Writes.write`."""
        checked = verify_digest(chunks, key.digest, limit=limit)
        stored = self.size(key.exact)
        if stored is not None:
            return kept(stored, sum(len(chunk) for chunk in checked), key)
        path = self._root / key.path
        self._make(path.parent)
        return write_atomically(path, checked, mode=_READ_ONLY, durable=True)

    def write_file(self, key: StorageKey, path: Path) -> int:
        """See `Writes.write_file`."""
        stored = self.size(key.exact)
        return self.write(key, file_chunks(path)) if stored is None else stored

    def quarantine(self, key: StorageKey) -> None:
        """See `BlobQuarantine.quarantine`."""
        path, target = self._root / key.exact.path, self._root / key.exact.quarantine_path
        self._make(target.parent)
        with os_errors(path), suppress(FileNotFoundError):
            path.replace(target)
            sync_folder(path.parent)

    def read_quarantined(self, key: StorageKey) -> Iterator[bytes]:
        """See `BlobQuarantine.read_quarantined`."""
        path = self._root / key.exact.quarantine_path
        if not path.is_file():
            raise blob_missing(key)
        yield from file_chunks(path)

    def keys(self, kind: Kind) -> Iterator[StorageKey]:
        """See `Lists.keys`."""
        for folder in self._children(self._root / kind / "sha256"):
            for path in self._children(folder):
                key = self._key(path)
                if key is not None:
                    yield key

    def objects(self, kind: Kind) -> Iterator[StoredObject]:
        """See `BlobLister.objects`."""
        for key in self.keys(kind):
            size = self.size(key)
            if size is not None:  # deleted meanwhile
                yield StoredObject(key, size)

    def remove(self, keys: Sequence[StorageKey]) -> None:
        """See `BlobRemover.remove`. Readers that have a file open read it to its end."""
        refused = None
        for key in keys:
            path = self._root / key.exact.path
            try:
                with os_errors(path):
                    path.unlink(missing_ok=True)
            except StorageUnavailable as error:  # as with S3, one that stays keeps no other
                refused = refused or error
        if refused:
            raise refused

    def free(self) -> int | None:
        """See `Measures.free`."""
        with os_errors(self._root):
            return shutil.disk_usage(self._root).free

    def check(self) -> None:
        """See `Checks.check`: a file is written and synced; none is ever renamed over other bytes."""
        path = self._root / _PROBE
        write_atomically(path, [b"probe"], durable=True)
        with os_errors(path):
            path.unlink(missing_ok=True)  # another process may have tried it at the same moment

    def probe(self) -> None:
        """See `StorageHealth.probe`."""
        self.check()

    def sweep(self, older_than: float) -> int:
        """See `StorageHealth.sweep`."""
        until = time.time() - older_than
        removed = 0
        for path in self._root.rglob(f"*{INCOMPLETE}"):
            with os_errors(path), suppress(FileNotFoundError):  # its writer lived, and is done
                if path.stat().st_mtime <= until:
                    path.unlink()
                    removed += 1
        return removed

    def create_object(self, path: str, data: bytes) -> bool:
        """See `NamedObjects.create_object`."""
        target = self._root / path
        self._make(target.parent)
        whole = target.parent / f".{target.name}.{secrets.token_hex(8)}{INCOMPLETE}"
        try:
            write_atomically(whole, [data], durable=True)
            with os_errors(target):
                os.link(whole, target)  # unlike a rename, it replaces nothing
                sync_folder(target.parent)
        except StorageUnavailable as error:
            if isinstance(error.__cause__, FileExistsError):
                return False
            raise
        finally:
            with suppress(OSError):
                whole.unlink(missing_ok=True)
        return True

    def read_object(self, path: str) -> bytes:
        """See `NamedObjects.read_object`."""
        target = self._root / path
        try:
            with os_errors(target):
                return target.read_bytes()
        except StorageUnavailable as error:
            if isinstance(error.__cause__, FileNotFoundError):
                raise NotFound("Object not found in the storage.", where=path) from error
            raise

    def list_objects(self, folder: str) -> Iterator[tuple[str, int]]:
        """See `NamedObjects.list_objects`."""
        for path in self._children(self._root / folder):
            if not path.name.endswith(INCOMPLETE):
                with os_errors(path), suppress(FileNotFoundError):  # removed meanwhile
                    yield path.relative_to(self._root).as_posix(), path.stat().st_size

    def delete_object(self, path: str) -> None:
        """See `NamedObjects.delete_object`."""
        target = self._root / path
        with os_errors(target):
            target.unlink(missing_ok=True)

    def _find(self, key: StorageKey) -> tuple[Path, int] | None:
        for path in self._candidate_paths(key):
            with os_errors(path), suppress(FileNotFoundError):
                return path, path.stat().st_size
        return None

    def _candidate_paths(self, key: StorageKey) -> Iterator[Path]:
        """Yield possible paths of a blob, the most likely one first."""
        path = self._root / key.path
        yield path
        if key.generation is None:
            found = (self._key(each) for each in path.parent.glob(f"{path.name}.*"))
            yield from (self._root / each.path for each in sorted(each for each in found if each))

    def _key(self, path: Path) -> StorageKey | None:
        return StorageKey.from_path(path.relative_to(self._root).as_posix())

    def _children(self, folder: Path) -> list[Path]:
        with os_errors(folder):
            try:
                return sorted(folder.iterdir())
            except FileNotFoundError:
                return []

    def _make(self, folder: Path) -> None:
        if folder == self._root or folder.is_dir():
            return
        self._make(folder.parent)
        with os_errors(folder):
            folder.mkdir(exist_ok=True)
            sync_folder(folder.parent)
