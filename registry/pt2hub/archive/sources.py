"""Bytes that are read in ranges, wherever they lie: on a disk, in memory, in the server's storage."""

from __future__ import annotations

import io
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Protocol

from pt2hub.domain.digests import CHUNK

if TYPE_CHECKING:
    from collections.abc import Iterator


class ByteSource(Protocol):
    """Bytes of a known length; several ranges may be read one after the other, in any order."""

    @property
    def size(self) -> int:
        """How many bytes there are."""
        ...

    def read(self, start: int, stop: int) -> Iterator[bytes]:
        """The bytes from `start` to before `stop`, in pieces; fewer only where the source became shorter."""
        ...


class FileSource:
    """An open file.

    Attributes:
        size: How many bytes it has.
    """

    def __init__(self, file: BinaryIO) -> None:
        """Takes a file that can be sought in; its owner closes it."""
        self._file = file
        self.size = file.seek(0, io.SEEK_END)

    def read(self, start: int, stop: int) -> Iterator[bytes]:
        """See `ByteSource.read`."""
        while start < stop:
            self._file.seek(start)
            chunk = self._file.read(min(CHUNK, stop - start))
            if not chunk:
                return
            start += len(chunk)
            yield chunk


@contextmanager
def opened(source: Path | bytes | ByteSource) -> Iterator[ByteSource]:
    """A source over a file's path, bytes at hand, or a source that its owner closes.

    Args:
        source: Any of them.
    """
    if isinstance(source, bytes):
        yield FileSource(io.BytesIO(source))
    elif isinstance(source, Path):
        with source.open("rb") as file:
            yield FileSource(file)
    else:
        yield source
