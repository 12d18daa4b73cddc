"""Partial downloads on disk, which a later process continues.

Each is a folder of its own with the bytes (`data`) and a list of the ranges that are there (`ranges`). Its process holds a
lock on the list, so that others know whether it lives. A folder of a dead process is adopted under another name; one of a
process that lives but lost its leadership is copied and removed: whatever that process still writes goes to files that no
name leads to any more.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import stat
import threading
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Self

from pt2hub.client.blobs.range_set import RangeSet
from pt2hub.errors import DiskFull
from pt2hub.rendering.quantities import format_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

DATA, RANGES = "data", "ranges"
RESERVE_BYTES = 16 << 20
"""Disk space that a download leaves free."""
_COPY_BYTES = 1 << 20
_SEAL = "seal "
_MAX_RANGES_BYTES = 64 << 20
_PRIVATE = 0o600


class LeadershipLost(Exception):
    """Another process took the download over."""


class PartialFile:
    """A blob that is being downloaded. Several threads may write at a time.

    Attributes:
        size: Size of the whole blob in bytes.
        resumed: Bytes that earlier processes left.
        seal: URL and ETag that the bytes came from, empty if unknown.

    Args:
        folder: Folder of the two files, which exists.
        descriptor: The list of ranges, opened to append and locked.
    """

    def __init__(self, folder: Path, size: int, descriptor: int) -> None:
        self.size = size
        self.seal = ""
        self._folder = folder
        self._list = descriptor
        self._lock = threading.Lock()
        self._writers, self._closed = 0, False
        self._data = -1
        try:
            self._data = os.open(folder / DATA, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, _PRIVATE)
            whole = os.fstat(self._data).st_size == size  # else the list belongs to other bytes
            self._ranges, self.seal = _parse(_read_all(descriptor), size) if whole else (RangeSet(), "")
            self.resumed = self._ranges.total
            _check_space(folder, size - self.resumed)
            os.truncate(self._data, size)
        except BaseException:
            self.close()
            raise

    @classmethod
    def open(
        cls, parent: Path, name: str, size: int, *, watch: Callable[[int], None], resume: bool = True
    ) -> Self:
        """Continue the download that earlier processes left, or begin one.

        Args:
            parent: Folder of all partial downloads, which exists.
            name: Hexadecimal digits of the digest.
            watch: Called while bytes are copied, with their number.
            resume: Whether to take what others left; only for one process at a time.

        Raises:
            DiskFull: The disk lacks space for the missing bytes.
            OSError: The folder cannot be written.
        """
        found = list(parent.glob(f"{name}.*")) if resume else []
        left = sorted(filter(_is_sound, found), key=count_bytes)
        own = parent / f"{name}.{os.urandom(4).hex()}"
        best = left.pop() if left else None
        adopted = best is not None and _adopt(best, own)
        made = cls(own, size, adopted or _create(own))
        try:
            if best and not adopted:
                made.copy(best, watch)
        except BaseException:
            made.close()
            raise
        for path in found:
            shutil.rmtree(path, ignore_errors=True)  # an adopted one has another name now
        return made

    @property
    def done(self) -> int:
        """Number of bytes that are there."""
        return self._ranges.total

    @property
    def reach(self) -> int:
        """End of the bytes that are there from the first one on."""
        with self._lock:
            return self._ranges.reach

    def missing(self) -> list[tuple[int, int]]:
        """Return the ranges that are not there."""
        with self._lock:
            return self._ranges.missing(self.size)

    def write(self, start: int, data: bytes) -> None:
        """Write bytes and record their range.

        Raises:
            OSError: The disk is full or fails.
        """
        view, at = memoryview(data), start
        with self._writing():
            while view:
                written = os.pwrite(self._data, view, at)
                view, at = view[written:], at + written
            with self._lock:
                self._ranges.add(start, at)
                os.write(self._list, b"%d %d\n" % (start, at))

    def read_into(self, buffer: memoryview, start: int) -> int:
        """Read bytes from a position, and return how many.

        Raises:
            OSError: There are none, because something else changed the file.
        """
        count = os.preadv(self._data, [buffer], start)
        if not count:
            raise OSError(errno.EIO, "The partial download was truncated", str(self._folder / DATA))
        return count

    def record_seal(self, seal: str) -> None:
        """Record where the bytes come from."""
        if seal != self.seal:
            with self._writing(), self._lock:
                self.seal = seal
                os.write(self._list, f"{_SEAL}{seal}\n".encode())

    def reset(self) -> None:
        """Forget all bytes, which turned out to be wrong."""
        with self._lock:
            self._ranges, self.resumed, self.seal = RangeSet(), 0, ""
            os.ftruncate(self._list, 0)

    def copy(self, other: Path, watch: Callable[[int], None]) -> None:
        """Copy the bytes of another partial download, whose process may live."""
        with suppress(FileNotFoundError), (other / DATA).open("rb") as source:
            ranges, seal = _parse((other / RANGES).read_bytes(), self.size)
            if os.fstat(source.fileno()).st_size != self.size:
                return
            for start, stop in ranges:
                for at in range(start, stop, _COPY_BYTES):
                    self.write(at, os.pread(source.fileno(), min(_COPY_BYTES, stop - at), at))
                    watch(self.done)
            self.record_seal(seal)
            self.resumed = self.done

    def finish(self, path: Path, mode: int) -> None:
        """Move the whole, verified file to its name and make it read-only.

        Raises:
            LeadershipLost: Another process took the download over and removed this one's folder.
        """
        os.fchmod(self._data, mode)
        try:
            (self._folder / DATA).rename(path)
        except FileNotFoundError as exc:
            raise LeadershipLost from exc
        self.discard()

    def discard(self) -> None:
        """Remove the download from disk."""
        shutil.rmtree(self._folder, ignore_errors=True)
        self.close()

    def leave(self) -> None:
        """Leave what is there for a later process."""
        if self.done:
            self.close()
        else:
            self.discard()

    def close(self) -> None:
        """Close the files; a second time does nothing."""
        with self._lock:
            closes = not self._closed and not self._writers
            self._closed = True
        if closes:
            self._close()

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """Keep the files open for a thread; one that comes too late must not write to whatever has their numbers then."""
        with self._lock:
            if self._closed:
                raise OSError(errno.EBADF, "The download has ended", str(self._folder))
            self._writers += 1
        try:
            yield
        finally:
            with self._lock:
                self._writers -= 1
                closes = self._closed and not self._writers
            if closes:
                self._close()

    def _close(self) -> None:
        os.close(self._list)
        if self._data >= 0:
            os.close(self._data)


def is_abandoned(folder: Path) -> bool:
    """Return whether no process works on a partial download."""
    try:
        descriptor = os.open(folder / RANGES, os.O_RDONLY | os.O_NOFOLLOW)
    except OSError:
        return True  # no list: nothing can be continued
    try:
        return try_lock(descriptor)
    except OSError:  # no locks: nobody can be known to be dead
        return False
    finally:
        os.close(descriptor)


def try_lock(descriptor: int) -> bool:
    """Lock a file for this process, which ends with it; return whether nobody else holds it.

    Raises:
        OSError: The file system has no locks.
    """
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _adopt(path: Path, own: Path) -> int:
    """Rename a dead process's download; return its open list, 0 if the process lives or it is gone."""
    try:
        descriptor = os.open(path / RANGES, os.O_RDWR | os.O_APPEND | os.O_NOFOLLOW)
    except OSError:
        return 0
    try:
        if try_lock(descriptor):
            path.rename(own)
            return descriptor
    except OSError:
        pass
    os.close(descriptor)
    return 0


def _create(own: Path) -> int:
    own.mkdir(mode=0o700)
    flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_EXCL
    descriptor = os.open(own / RANGES, flags, _PRIVATE)
    with suppress(OSError):  # no locks: nobody adopts it
        try_lock(descriptor)
    return descriptor


def _check_space(folder: Path, needed: int) -> None:
    status = os.statvfs(folder)
    free = max(0, status.f_bavail * status.f_frsize - RESERVE_BYTES)
    if free < needed:
        raise DiskFull(
            f"The disk of the cache lacks space: {format_bytes(needed)} are needed, {format_bytes(free)} are free",
            where=str(folder.parent.parent),
            context={"needed": needed, "free": free},
        )


def _is_sound(folder: Path) -> bool:
    """Return whether both files are there, and are files."""
    try:
        return all(stat.S_ISREG((folder / name).lstat().st_mode) for name in (DATA, RANGES))
    except OSError:
        return False


def count_bytes(folder: Path) -> int:
    """Return how many bytes a partial download has."""
    try:
        return _parse((folder / RANGES).read_bytes(), None)[0].total
    except OSError:
        return 0


def _read_all(descriptor: int) -> bytes:
    return os.pread(descriptor, min(os.fstat(descriptor).st_size, _MAX_RANGES_BYTES), 0)


def _parse(data: bytes, size: int | None) -> tuple[RangeSet, str]:
    """Return the ranges and the seal of a list; lines that are damaged or beyond the size count for nothing."""
    ranges, seal = RangeSet(), ""
    for line in _lines(data):
        if line.startswith(_SEAL):
            seal = line.removeprefix(_SEAL)
            continue
        start, _, stop = line.partition(" ")
        if start.isdecimal() and stop.isdecimal() and (size is None or int(stop) <= size):
            ranges.add(int(start), int(stop))
    return ranges, seal


def _lines(data: bytes) -> Iterator[str]:
    whole = data.rpartition(b"\n")[0]  # a process that was killed may leave half a line
    yield from whole.decode("utf-8", "replace").splitlines()
