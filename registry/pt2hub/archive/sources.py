"""Byte sources with range reads: files, memory and stored blobs."""

from __future__ import annotations

import io
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Protocol

from pt2hub.domain.digests import CHUNK

if TYPE_CHECKING:
    from collections.abc import Iterator


class ByteSource(Protocol):
    """Bytes of a known length; several ranges may be read one after the other, in any order."""

    @property
    def size(self) -> int:
        """Size in bytes."""
        ...

    def read(self, start: int, stop: int) -> Iterator[bytes]:
        """Yield the bytes from `start` up to `stop`, in chunks; fewer if the source was truncated."""
        ...


class FileSource:
    """An open file.

    Attributes:
        size: How many bytes it has.
    """

    def __init__(self, file: BinaryIO) -> None:
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


class SourceFile(io.RawIOBase):
    """A source as a seekable file, for the zip parser; wrap it in a buffer."""

    def __init__(self, source: ByteSource) -> None:
        self._source = source
        self._at = 0

    def seekable(self) -> bool:
        """Return True."""
        return True

    def readable(self) -> bool:
        """Return True."""
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """See `io.IOBase.seek`."""
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._source.size}[whence]
        self._at = max(0, start + offset)
        return self._at

    def readinto(self, buffer: Any) -> int:
        """See `io.RawIOBase.readinto`."""
        stop = min(self._at + len(buffer), self._source.size)
        data = b"".join(self._source.read(self._at, stop)) if stop > self._at else b""
        buffer[: len(data)] = data
        self._at += len(data)
        return len(data)


@contextmanager
def open_file(source: Path | ByteSource) -> Iterator[BinaryIO]:
    """Open an archive for random access, from a path or a source.

    Args:
        source: Either; a source is read in ranges of 1 MiB, and its owner closes it.
    """
    if isinstance(source, Path):
        with source.open("rb") as file:
            yield file
    else:
        yield io.BufferedReader(SourceFile(source), 1 << 20)


@contextmanager
def open_source(source: Path | bytes | ByteSource) -> Iterator[ByteSource]:
    """Open a path or bytes as a source; a given source stays open afterwards."""
    if isinstance(source, bytes):
        yield FileSource(io.BytesIO(source))
    elif isinstance(source, Path):
        with source.open("rb") as file:
            yield FileSource(file)
    else:
        yield source
