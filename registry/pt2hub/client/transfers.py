"""Bytes on their way: hashing, uploads and downloads, with a bar where somebody watches."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, BinaryIO

from pt2hub.domain.digests import CHUNK, Digest, digest_chunks

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path
    from typing import TypeAlias

    from rich.console import Console
    from rich.progress import Progress

    Meter: TypeAlias = "Callable[[int], None]"

SMALL = 1 << 20
"""Bytes below which a transfer is over before a bar could be read."""


@contextmanager
def meter(what: str, total: int, progress: bool | None) -> Iterator[Meter]:
    """Shows how far a transfer is.

    Args:
        what: What happens to which file.
        total: Its length in bytes.
        progress: Whether it is shown; None where somebody watches.

    Yields:
        Takes the number of bytes done so far.
    """
    if total < SMALL or progress is False:
        yield _unseen
        return
    from pt2hub.client import watching  # it brings rich, which a load from the cache does without

    if not (progress or watching.watched()):
        yield _unseen
        return
    with shown(watching.stderr(), what, total) as seen:
        yield seen


@contextmanager
def shown(out: Console, what: str, total: int) -> Iterator[Meter]:
    """A bar with bytes, speed and remaining time; one line where text cannot move."""
    from rich.filesize import decimal

    from pt2hub.client import watching

    if not watching.moves(out):
        out.print(f"{what} ({decimal(total)})", markup=False)
        yield _unseen
        return
    bar = _bar(out)
    task = bar.add_task(what, total=total)
    with watching.live(out, bar.get_renderable):
        yield lambda done: bar.update(task, completed=done)


def counted(chunks: Iterable[bytes], what: str, total: int, progress: bool | None) -> Iterator[bytes]:
    """The same chunks, shown as they pass; arguments as for `meter`."""
    with meter(what, total, progress) as seen:
        done = 0
        for chunk in chunks:
            done += len(chunk)
            seen(done)
            yield chunk


def hashed(path: Path, progress: bool | None) -> Digest:
    """The digest of a user's file, shown while it is read."""
    with (
        path.open("rb") as file,
        meter(f"hashing {path.name}", path.stat().st_size, progress) as seen,
    ):
        reader = Counted(file, seen)
        return digest_chunks(iter(lambda: reader.read(CHUNK), b""))


class Counted:
    """A file whose position is shown as it is read; an upload that is tried again begins anew."""

    def __init__(self, file: BinaryIO, seen: Meter) -> None:
        """Wraps a file.

        Args:
            file: Open for reading.
            seen: Takes the position.
        """
        self._file = file
        self._seen = seen

    def read(self, size: int = -1) -> bytes:
        """Reads on."""
        data = self._file.read(size)
        self._seen(self._file.tell())
        return data

    def tell(self) -> int:
        """The position."""
        return self._file.tell()

    def seek(self, position: int) -> int:
        """Goes to a position."""
        return self._file.seek(position)


def _bar(out: Console) -> Progress:
    from rich import progress as rich

    return rich.Progress(
        rich.TextColumn("{task.description}", markup=False),
        rich.BarColumn(),
        rich.DownloadColumn(),
        rich.TransferSpeedColumn(),
        rich.TimeRemainingColumn(),
        console=out,
    )


def _unseen(_: int) -> None:
    """Takes what nobody watches."""
