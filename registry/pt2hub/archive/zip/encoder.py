"""Deterministic zip encoder: equal members give equal bytes on every machine and Python version.

Members are stored, dated 1980-01-01, without extra fields or comments and with mode 0644. A member whose CRC is
not known before its bytes is followed by a data descriptor, as torch's own writer does for every member, so
that a single file can be streamed without a first pass over its weights.
"""

from __future__ import annotations

import hashlib
import struct
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pt2hub.archive.zip import records
from pt2hub.archive.zip.validation import check_name, printable_name
from pt2hub.domain.artifacts import Member
from pt2hub.domain.digests import Digest
from pt2hub.errors import CorruptArchive

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Iterator
    from pathlib import Path

_VERSION = 20
_VERSION64 = 45
_UNIX = 3 << 8
_DATE = 1 << 5 | 1
"""1980-01-01, the earliest date that every reader accepts (torch writes day 0 of month 0)."""
_MODE = 0o100644 << 16


@dataclass(frozen=True, slots=True)
class _Placed:
    name: bytes
    flags: int
    crc: int
    size: int
    offset: int


class ZipEncoder:
    """Encodes members as chunks of a zip, in the given order.

    Attributes:
        members: What was encoded so far; empty unless `listed`.

    Args:
        zip64_from: Sizes and offsets from here on are written as zip64; lower only in tests.
    """

    def __init__(self, *, listed: bool = False, zip64_from: int = records.MAX32) -> None:
        self.members: list[Member] = []
        self._listed = listed
        self._zip64_from = zip64_from
        self._placed: list[_Placed] = []
        self._names: set[str] = set()
        self._offset = 0

    def whole(self, name: str, data: bytes) -> Iterator[bytes]:
        """Yield the chunks of an in-memory member."""
        return self.member(name, len(data), [data], crc=zlib.crc32(data))

    def member(
        self, name: str, size: int, chunks: Iterable[bytes], *, crc: int | None = None
    ) -> Iterator[bytes]:
        """Yield the chunks of a member.

        Args:
            chunks: Its bytes.
            crc: Their CRC-32 where known; otherwise a data descriptor follows them.

        Raises:
            CorruptArchive: The name is none, is there already, or the bytes are not of that size or CRC.
        """
        self._take_name(name)
        flags = records.UTF8 | (records.WITH_DESCRIPTOR if crc is None else 0)
        wide = size >= self._zip64_from
        begin = self._offset
        yield self._count(_local(name.encode(), flags, crc or 0, size, wide=wide))
        found = yield from self._data(name, size, chunks)
        if crc is None:
            form = records.DESCRIPTOR64 if wide else records.DESCRIPTOR
            yield self._count(form.pack(records.DESCRIPTOR_MAGIC, found, size, size))
        elif found != crc:
            raise CorruptArchive("a member's bytes do not match its CRC", where=printable_name(name))
        self._placed.append(_Placed(name.encode(), flags, found, size, begin))

    def end(self) -> Iterator[bytes]:
        """Yield the central directory and the end record."""
        begin = self._offset
        for item in self._placed:
            yield self._count(_central(item, self._zip64_from))
        size = self._offset - begin
        if max(begin, size) >= self._zip64_from or len(self._placed) >= records.MAX16:
            yield _end64(len(self._placed), size, begin)
        yield _end(len(self._placed), size, begin, self._zip64_from)

    def _take_name(self, name: str) -> None:
        check_name(name)
        if name in self._names:
            raise CorruptArchive("two members have the same name", where=printable_name(name))
        self._names.add(name)

    def _data(self, name: str, size: int, chunks: Iterable[bytes]) -> Generator[bytes, None, int]:
        crc = done = 0
        hasher = hashlib.sha256()
        for chunk in chunks:
            crc = zlib.crc32(chunk, crc)
            done += len(chunk)
            if self._listed:
                hasher.update(chunk)
            yield self._count(chunk)
        if done != size:
            raise CorruptArchive(f"a member has {done} bytes instead of {size}", where=printable_name(name))
        if self._listed:
            self.members.append(Member(name, size, Digest("sha256:" + hasher.hexdigest())))
        return crc

    def _count(self, piece: bytes) -> bytes:
        self._offset += len(piece)
        return piece


def write_zip(out: Path, members: Iterable[tuple[str, bytes]]) -> Digest:
    """Write members to a file, in the given order.

    Args:
        out: The file, replaced where it exists.
        members: Names and bytes.

    Returns:
        The file's digest.

    Raises:
        CorruptArchive: A name is none or comes twice.
    """
    encoder = ZipEncoder()

    def pieces() -> Iterator[bytes]:
        for name, data in members:
            yield from encoder.whole(name, data)
        yield from encoder.end()

    digest, _ = write_pieces(out, pieces())
    return digest


def write_pieces(out: Path, pieces: Iterable[bytes]) -> tuple[Digest, int]:
    """Write and hash a file; it is removed if a chunk fails.

    Returns:
        The file's digest and size.
    """
    hasher = hashlib.sha256()
    try:
        with out.open("wb") as file:
            for piece in pieces:
                hasher.update(piece)
                file.write(piece)
            size = file.tell()
    except BaseException:
        out.unlink(missing_ok=True)
        raise
    return Digest("sha256:" + hasher.hexdigest()), size


def _local(name: bytes, flags: int, crc: int, size: int, *, wide: bool) -> bytes:
    later = bool(flags & records.WITH_DESCRIPTOR)
    extra = struct.pack("<2H2Q", records.ZIP64_EXTRA, 16, size, size) if wide else b""
    narrow = records.MAX32 if wide else 0 if later else size
    version = _VERSION64 if wide else _VERSION
    head = records.LOCAL.pack(
        records.LOCAL_MAGIC, version, flags, 0, 0, _DATE, crc, narrow, narrow, len(name), len(extra)
    )
    return head + name + extra


def _central(item: _Placed, zip64_from: int) -> bytes:
    numbers = (item.size, item.size, item.offset)
    wide = [number for number in numbers if number >= zip64_from]
    size, compressed, offset = (number if number < zip64_from else records.MAX32 for number in numbers)
    extra = struct.pack(f"<2H{len(wide)}Q", records.ZIP64_EXTRA, 8 * len(wide), *wide) if wide else b""
    version = _VERSION64 if wide else _VERSION
    head = records.CENTRAL.pack(
        records.CENTRAL_MAGIC, _UNIX | version, version, item.flags, 0, 0, _DATE, item.crc,
        compressed, size, len(item.name), len(extra), 0, 0, 0, _MODE, offset,
    )  # fmt: skip
    return head + item.name + extra


def _end64(entries: int, size: int, begin: int) -> bytes:
    record = records.END64.pack(
        records.END64_MAGIC, records.END64_BODY, _UNIX | _VERSION64, _VERSION64, 0, 0,
        entries, entries, size, begin,
    )  # fmt: skip
    return record + records.LOCATOR.pack(records.LOCATOR_MAGIC, 0, begin + size, 1)


def _end(entries: int, size: int, begin: int, zip64_from: int) -> bytes:
    entries = min(entries, records.MAX16)
    size, begin = (number if number < zip64_from else records.MAX32 for number in (size, begin))
    return records.END.pack(records.END_MAGIC, 0, 0, entries, entries, size, begin, 0)
