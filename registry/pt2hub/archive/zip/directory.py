"""Parser of a zip's end records and central directory."""

from __future__ import annotations

import io
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, BinaryIO

from pt2hub.archive.zip import records
from pt2hub.errors import CorruptArchive

if TYPE_CHECKING:
    from collections.abc import Iterator

_MAX_COMMENT_BYTES = 0xFFFF
_PADDING_EXTRA = 0x4246
"""`FB`: torch pads local headers with it, so that data begins at a multiple of 64 bytes."""
_TIME_EXTRAS = frozenset({0x5455, 0x7875})
"""Info-ZIP's timestamps and owner: harmless, and written by the `zip` command."""
_MAX_END_BYTES = records.END64.size + records.LOCATOR.size + records.END.size + _MAX_COMMENT_BYTES


@dataclass(frozen=True, slots=True)
class Central:
    """A member as the central directory declares it.

    Attributes:
        name: The name's bytes.
        size: Length after decompression, zip64 resolved.
        compressed: Length in the file, zip64 resolved.
        offset: Where the local header begins, zip64 resolved.
    """

    header: records.CentralHeader
    name: bytes
    size: int
    compressed: int
    offset: int


@dataclass(frozen=True, slots=True)
class _Directory:
    entries: int
    size: int
    offset: int


def central_entries(file: BinaryIO, *, most: int, most_bytes: int) -> tuple[int, tuple[Central, ...]]:
    """Read the central directory.

    Returns:
        Where the directory begins, and the members.

    Raises:
        CorruptArchive: No end record, or several, or one that contradicts itself or the directory.
    """
    total = file.seek(0, io.SEEK_END)
    directory, ends_at = _end(file, total)
    if directory.entries > most:
        raise CorruptArchive(f"the archive has more than {most} members")
    if directory.size > most_bytes:  # before it is read
        raise CorruptArchive(f"the central directory is larger than {most_bytes} bytes")
    _check_place(file, directory, ends_at, total)
    raw = read_exactly(file, directory.offset, directory.size)
    members = tuple(_members(raw, directory.entries))
    return directory.offset, members


def read_exactly(file: BinaryIO, offset: int, size: int) -> bytes:
    """Read `size` bytes at `offset`.

    Raises:
        CorruptArchive: The file ends before.
    """
    file.seek(offset)
    data = file.read(size)
    if len(data) != size:
        raise CorruptArchive("the archive is truncated")
    return data


def extra_fields(raw: bytes) -> dict[int, bytes]:
    """Return the extra fields of a header by their id.

    Raises:
        CorruptArchive: They do not fill their place, or one comes twice.
    """
    fields: dict[int, bytes] = {}
    at = 0
    while at < len(raw):
        kind, size = struct.unpack_from("<2H", raw, at) if at + 4 <= len(raw) else (0, len(raw))
        if at + 4 + size > len(raw) or kind in fields:
            raise CorruptArchive("malformed extra fields")
        fields[kind] = raw[at + 4 : at + 4 + size]
        at += 4 + size
    return fields


def check_extras(extras: dict[int, bytes]) -> None:
    """Refuse extra fields that could change a member's name or size.

    Raises:
        CorruptArchive: A field that no `.pt2` has.
    """
    unknown = set(extras) - {records.ZIP64_EXTRA, _PADDING_EXTRA} - _TIME_EXTRAS
    if unknown:
        raise CorruptArchive(f"unknown extra field {min(unknown):#06x}")


def _end(file: BinaryIO, total: int) -> tuple[_Directory, int]:
    end, at = _end_record(file, total)
    directory, ends_at = _end64(file, at, end)
    if (end.disk, end.directory_disk) != (0, 0) or end.entries_here != end.entries:
        raise CorruptArchive("the archive is one of several disks")
    if not 0 <= directory.offset <= ends_at:
        raise CorruptArchive("the central directory lies outside the file")
    return directory, ends_at


def _end_record(file: BinaryIO, total: int) -> tuple[records.EndRecord, int]:
    """Return the last end record and where it begins; what follows it must be the comment that it announces."""
    start = max(0, total - records.END.size - _MAX_COMMENT_BYTES)
    tail = read_exactly(file, start, total - start)
    at = tail.rfind(records.END_MAGIC)
    if at < 0 or len(tail) - at < records.END.size:
        raise CorruptArchive("no end record: not a zip, or truncated")
    end = records.EndRecord._make(records.END.unpack_from(tail, at))
    comment = tail[at + records.END.size :]
    if len(comment) != end.comment_length:
        raise CorruptArchive("junk after the archive, or its comment is truncated")
    if any(magic in comment for magic in records.MAGICS):  # another reader may take it for an archive
        raise CorruptArchive("the archive's comment holds parts of a zip")
    return end, start + at


def _check_place(file: BinaryIO, directory: _Directory, ends_at: int, total: int) -> None:
    # Everything after the members is small; anything else there would be another reader's archive.
    tail_size = total - directory.offset
    if tail_size > directory.size + _MAX_END_BYTES:
        raise CorruptArchive("junk between central directory and end record")
    if read_exactly(file, directory.offset, tail_size).count(records.END_MAGIC) != 1:
        raise CorruptArchive("several end records")
    if directory.offset + directory.size != ends_at:
        raise CorruptArchive("the central directory does not end where the end record begins")


def _end64(file: BinaryIO, at: int, end: records.EndRecord) -> tuple[_Directory, int]:
    narrow = _Directory(end.entries, end.directory_size, end.directory_offset)
    here = at - records.LOCATOR.size - records.END64.size
    raw = read_exactly(file, here, at - here) if here >= 0 else b""
    locator = raw[records.END64.size :]
    if not locator.startswith(records.LOCATOR_MAGIC):
        if end.entries == records.MAX16 or records.MAX32 in (end.directory_size, end.directory_offset):
            raise CorruptArchive("the end record refers to a missing zip64 record")
        return narrow, at
    _check_locator(records.Locator._make(records.LOCATOR.unpack(locator)), here)
    wide = records.End64Record._make(records.END64.unpack(raw[: records.END64.size]))
    _check_end64(wide, end)
    return _Directory(wide.entries, wide.directory_size, wide.directory_offset), here


def _check_locator(locator: records.Locator, here: int) -> None:
    if (locator.disk, locator.offset, locator.disks) != (0, here, 1):
        raise CorruptArchive("the zip64 locator points elsewhere")


def _check_end64(wide: records.End64Record, end: records.EndRecord) -> None:
    fixed = (wide.magic, wide.body, wide.disk, wide.directory_disk, wide.entries_here)
    if fixed != (records.END64_MAGIC, records.END64_BODY, 0, 0, wide.entries):
        raise CorruptArchive("malformed zip64 end record")
    pairs = (
        (end.entries, wide.entries, records.MAX16),
        (end.directory_size, wide.directory_size, records.MAX32),
        (end.directory_offset, wide.directory_offset, records.MAX32),
    )
    if any(narrow not in (value, unknown) for narrow, value, unknown in pairs):
        raise CorruptArchive("the two end records, zip64 and plain, contradict each other")


def _members(raw: bytes, count: int) -> Iterator[Central]:
    at = 0
    for _ in range(count):
        if at + records.CENTRAL.size > len(raw):
            raise CorruptArchive("the central directory has fewer members than the end record says")
        header = records.CentralHeader._make(records.CENTRAL.unpack_from(raw, at))
        name_at = at + records.CENTRAL.size
        extra_at = name_at + header.name_length
        at = extra_at + header.extra_length + header.comment_length
        if header.magic != records.CENTRAL_MAGIC or at > len(raw):
            raise CorruptArchive("malformed central directory")
        yield _central(header, raw[name_at:extra_at], raw[extra_at : extra_at + header.extra_length])
    if at != len(raw):
        raise CorruptArchive("the central directory has more members than the end record says")


def _central(header: records.CentralHeader, name: bytes, extra: bytes) -> Central:
    where = repr(name[:200])
    try:
        fields = extra_fields(extra)
        check_extras(fields)
        wide = fields.get(records.ZIP64_EXTRA)
    except CorruptArchive as error:
        raise CorruptArchive(error.message, where=where) from error
    numbers = [header.size, header.compressed, header.offset]
    asked = [index for index, number in enumerate(numbers) if number == records.MAX32]
    if len(wide or b"") != 8 * len(asked) or (wide is not None and not asked):
        raise CorruptArchive("the zip64 field does not match the header", where=where)
    for index, number in zip(asked, struct.unpack(f"<{len(asked)}Q", wide or b""), strict=True):
        numbers[index] = number
    return Central(header, name, *numbers)
