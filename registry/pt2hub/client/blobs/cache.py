"""Cache of pulled blobs, named by digest.

A file appears under its name only whole and verified, is read-only from then on and never rewritten: a mapped
file that changes changes results, and one that shrinks is a crash (docs/facts/aoti.md#mapped-weights).
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from contextlib import closing, contextmanager, suppress
from typing import TYPE_CHECKING, Literal

from pt2hub.domain.digests import Digest, digest_file, hex_of
from pt2hub.errors import BadResponse, DigestMismatch, HomeUnusable

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator
    from pathlib import Path

Verify = Literal["stat", "always"]
"""How a cached file is checked: by size, time and inode as recorded after a full hash, or hashed again."""
_ABANDONED_SECONDS = 86400.0


class BlobCache:
    """A folder of verified files.

    Args:
        directory: Usually `<home>/cache`.
    """

    def __init__(self, directory: Path) -> None:
        self._blobs = directory / "blobs" / "sha256"
        self._locks = directory / "locks"

    def path(self, digest: Digest) -> Path:
        """Return where a file is or would be."""
        return self._blobs / hex_of(digest)

    def find(self, digest: Digest, *, verify: Verify = "stat") -> Path | None:
        """Return an intact cached file, or None; a damaged one stays until `get` replaces it.

        Args:
            verify: `stat` trusts a file whose size, time and inode are as recorded after a full hash.
        """
        path = self.path(digest)
        try:
            stamp = _stamp(path)
            if verify == "stat" and self._read_record(path) == stamp:
                return path
            whole = digest_file(path) == digest
        except OSError:  # none, one that another process just took away, or one that nobody may read
            return None
        if whole:
            self._record(path, stamp)
            return path
        # Not the file: without the lock, it may by now be the one that another process put there.
        with suppress(OSError):
            path.with_suffix(".stat").unlink(missing_ok=True)
        return None

    def get(
        self, digest: Digest, size: int, fetch: Callable[[], Iterable[bytes]], *, verify: Verify = "stat"
    ) -> Path:
        """Return a cached file, fetching it if necessary; concurrent processes fetch it once.

        Args:
            size: Its length in bytes; no more is taken.
            fetch: Opens the stream of its bytes.
            verify: As for `find`.

        Raises:
            DigestMismatch: The stream held other bytes.
            BadResponse: The stream had another length.
            HomeUnusable: The folder cannot be written.
        """
        if found := self.find(digest, verify=verify):
            return found
        with self._writing(), self._lock(digest):
            return self.find(digest, verify=verify) or self._store(digest, size, fetch())

    def _store(self, digest: Digest, size: int, chunks: Iterable[bytes]) -> Path:
        path = self.path(digest)
        # In the same folder: a rename must not cross file systems.
        incomplete = path.with_suffix(".incomplete")
        self._sweep()
        try:
            with closing(_stream(chunks)) as stream:  # a refused download must not stay open behind the error
                _write(incomplete, digest, size, stream)
            incomplete.chmod(0o444)
            incomplete.replace(path)
        finally:
            incomplete.unlink(missing_ok=True)
        self._record(path, _stamp(path))
        return path

    def _sweep(self) -> None:
        """Remove leftovers of killed processes."""
        limit = time.time() - _ABANDONED_SECONDS
        for path in self._blobs.glob("*.incomplete"):
            with suppress(FileNotFoundError):  # another process stored or swept it meanwhile
                if path.stat().st_mtime < limit:
                    path.unlink()

    @contextmanager
    def _lock(self, digest: Digest) -> Iterator[None]:
        import filelock  # it brings asyncio, which a load from the cache does without

        self._blobs.mkdir(parents=True, exist_ok=True)
        self._locks.mkdir(parents=True, exist_ok=True)
        with filelock.FileLock(self._locks / hex_of(digest)):
            yield

    @contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except OSError as exc:
            raise HomeUnusable(
                f"Cannot write to the cache: {exc.strerror or exc}",
                where=str(exc.filename or self._blobs),
                hint="Free space or correct the permissions, or set PT2HUB_HOME to another folder.",
            ) from exc

    def _read_record(self, path: Path) -> list[int] | None:
        try:
            return list(json.loads(path.with_suffix(".stat").read_text(encoding="ascii")))
        except (OSError, ValueError, TypeError):
            return None

    def _record(self, path: Path, stamp: list[int]) -> None:
        record = path.with_suffix(f".stat{os.getpid()}")
        try:
            record.write_text(json.dumps(stamp), encoding="ascii")
            record.replace(path.with_suffix(".stat"))
        except OSError:  # a read-only cache still serves; its files are hashed on each load
            record.unlink(missing_ok=True)


def _stream(chunks: Iterable[bytes]) -> Generator[bytes, None, None]:
    yield from chunks


def _write(path: Path, digest: Digest, size: int, chunks: Iterable[bytes]) -> None:
    hasher, done = hashlib.sha256(), 0
    with path.open("wb") as file:
        for chunk in chunks:
            done += len(chunk)
            if done > size:
                break
            hasher.update(chunk)
            file.write(chunk)
    if done != size:
        raise BadResponse(
            f"The blob has {'more' if done > size else 'fewer'} than {size} bytes", where=digest
        )
    if (found := f"sha256:{hasher.hexdigest()}") != digest:
        raise DigestMismatch(
            f"Digest mismatch: received {found}",
            where=digest,
            hint="Try again; if it persists, a proxy changes the bytes or the storage is damaged.",
        )


def _stamp(path: Path) -> list[int]:
    status = path.stat()
    return [status.st_size, status.st_mtime_ns, status.st_ino]
