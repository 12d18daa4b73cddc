"""Hashing, uploads and downloads with progress bars."""

from __future__ import annotations

import hashlib
import stat
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Self

from pt2hub.domain.digests import CHUNK, Digest
from pt2hub.errors import Conflict, NotFound

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import TypeAlias

    from rich.console import Console
    from rich.progress import Progress

    Meter: TypeAlias = "Callable[[int], None]"

SMALL = 1 << 20
"""Bytes below which a transfer shows no bar, because it ends too soon."""


@contextmanager
def meter(what: str, total: int, progress: bool | None) -> Iterator[Meter]:
    """Show the progress of a transfer.

    Args:
        total: Its length in bytes.
        progress: Whether to show it; None for only on a terminal or in a notebook.

    Yields:
        Takes the number of bytes done so far.
    """
    if total < SMALL or progress is False:
        yield _unseen
        return
    from pt2hub.client import output  # it brings rich, which a load from the cache does without

    if not (progress or output.is_watched()):
        yield _unseen
        return
    with show_meter(output.stderr(), what, total) as seen:
        yield seen


@contextmanager
def show_meter(out: Console, what: str, total: int) -> Iterator[Meter]:
    """Yield a bar with bytes, speed and remaining time; one line where text cannot be redrawn."""
    from pt2hub.client import output

    if not output.moves(out):
        from pt2hub.rendering.quantities import format_bytes

        out.print(f"{what} ({format_bytes(total)})")
        yield _unseen
        return
    bar = _bar(out)
    task = bar.add_task(what, total=total)
    with output.live(out, bar.get_renderable):
        yield lambda done: bar.update(task, completed=done)


class Slice:
    """A part of a file to send; reading it advances the progress, and a retry starts over.

    Args:
        start: Its first byte that is sent.
    """

    def __init__(self, path: Path, start: int, size: int, seen: Meter) -> None:
        self._path, self._start, self._size, self._seen = path, start, size, seen
        with readable(path):
            self._file = path.open("rb")
        self.seek(0)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self._file.close()

    def read(self, size: int = -1) -> bytes:
        """Read the next bytes.

        Raises:
            Conflict: The file has become shorter.
        """
        left = self._size - self.tell()
        with readable(self._path):
            data = self._file.read(left if size < 0 else min(left, size))
        if left and size and not data:
            raise file_changed(self._path)
        self._seen(self.tell())
        return data

    def tell(self) -> int:
        """Return the position in the part."""
        return self._file.tell() - self._start

    def seek(self, position: int) -> int:
        """Seek to a position in the part."""
        return self._file.seek(self._start + position) - self._start


@dataclass(frozen=True, slots=True)
class Source:
    """A user's file, as it was when it was hashed.

    Attributes:
        size: Its length in bytes.
        digest: Of its bytes.
    """

    path: Path
    size: int
    digest: Digest
    stamp: tuple[int, int, int]

    @classmethod
    def of(cls, path: Path, progress: bool | None) -> Source:
        """Hash a file and show the progress.

        Raises:
            NotFound: It cannot be read.
            Conflict: It changed meanwhile.
        """
        stamp = _stamp(path)
        hasher, size = hashlib.sha256(), 0
        with (
            readable(path),
            path.open("rb") as file,
            meter(f"hashing {path.name}", stamp[0], progress) as seen,
        ):
            while chunk := file.read(CHUNK):
                hasher.update(chunk)
                seen(size := size + len(chunk))
        source = cls(path, size, Digest(f"sha256:{hasher.hexdigest()}"), stamp)
        source.check()
        return source

    def check(self) -> None:
        """Check that the file is unchanged.

        Raises:
            Conflict: The file changed.
        """
        if _stamp(self.path) != self.stamp or self.stamp[0] != self.size:
            raise file_changed(self.path)

    def open(self, start: int, size: int, seen: Meter) -> Slice:
        """Return a part of the file, for one attempt to send it."""
        self.check()
        return Slice(self.path, start, size, seen)


@contextmanager
def readable(path: Path) -> Iterator[None]:
    """Translate errors from reading a user's file.

    Raises:
        NotFound: The block raised an OSError.
    """
    try:
        yield
    except OSError as exc:
        raise NotFound(
            f"Cannot read the file: {exc.strerror or exc}",
            where=str(path),
            hint="Pass the path of a readable file.",
        ) from exc


def file_changed(path: Path) -> Conflict:
    """Return the error for a file that changed after it was hashed."""
    return Conflict(
        "The file changed during the upload",
        where=str(path),
        hint="Upload it again when nothing writes to it any more.",
    )


def _bar(out: Console) -> Progress:
    from rich import progress as rich

    return rich.Progress(
        rich.TextColumn("{task.description}", markup=False),
        rich.BarColumn(),
        rich.DownloadColumn(binary_units=True),
        rich.TransferSpeedColumn(),
        rich.TimeRemainingColumn(),
        console=out,
    )


def _stamp(path: Path) -> tuple[int, int, int]:
    with readable(path):
        found = path.stat()
    if not stat.S_ISREG(found.st_mode):
        raise NotFound("Not a regular file", where=str(path), hint="Pass the path of a file.")
    return found.st_size, found.st_mtime_ns, found.st_ino


def _unseen(_: int) -> None:
    """Ignore progress."""
