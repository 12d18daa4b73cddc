"""Strict validation of zip archives.

A zip can be read from its front, by the local headers, or from its end, by the central directory, and two
readers that see different members in one file are how hostile archives pass checks. So the whole file must be
explained: members, directory and end record follow each other without a gap or an overlap, and everything
that is said twice must be said alike. torch's own writer stores members with data descriptors (flags 0x808);
those are taken where the descriptor repeats the central directory (docs/facts/trust.md#zip-files).

What other tools add harmlessly is taken: comments, timestamps, and entries of folders, which are checked like
members and then left out.
"""

from __future__ import annotations

import re
import stat
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from pt2hub.archive.zip import records
from pt2hub.archive.zip.directory import Central, central_entries, check_extras, extra_fields, read_exactly
from pt2hub.errors import CorruptArchive

if TYPE_CHECKING:
    from collections.abc import Sequence

_DRIVE = re.compile(r"[A-Za-z]:")
_ALLOWED_FLAGS = records.WITH_DESCRIPTOR | records.UTF8 | records.DEFLATE_LEVEL
_ENCRYPTED = 0x0001 | 0x0040 | 0x2000
_DOS_FOLDER = 0x10
_NEWEST_VERSION = 45
_MAX_NAME_BYTES = 1024
REBUILD = "Build the archive again with torch's own writer; do not load this one."


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits on an archive's content.

    Attributes:
        total: Bytes of all members after decompression.
        ratio: Bytes a compressed member may expand to per compressed byte; tiny members are not judged.
        directory: Bytes of the central directory.
    """

    members: int = 20_000
    total: int = 1 << 38
    ratio: int = 100
    directory: int = 32 << 20


_DEFAULT_LIMITS = Limits()
_RATIO_FLOOR = 1 << 16
"""Members up to this size are accepted at any compression ratio."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A member of a checked archive and the position of its bytes.

    Attributes:
        size: Length in bytes after decompression.
        crc: CRC-32 of its bytes, as the archive claims it.
        method: 0 (stored) or 8 (deflated).
        header_offset: Where its local header begins.
        data_offset: Where its bytes begin.
        end_offset: Where the next member begins.
    """

    name: str
    size: int
    compressed_size: int
    crc: int
    method: int
    header_offset: int
    data_offset: int
    end_offset: int


def validate(source: Path | BinaryIO, *, limits: Limits = _DEFAULT_LIMITS) -> tuple[Entry, ...]:
    """Check a zip's structure without extracting; members' bytes are checked when they are read.

    Args:
        source: A file by its path, or open and seekable.
        limits: How much it may hold.

    Returns:
        The members in the order of the central directory, without entries of folders.

    Raises:
        CorruptArchive: The archive is malformed, ambiguous, too large or hostile; `where` names the member.
    """
    if isinstance(source, Path):
        with source.open("rb") as file:
            return validate(file, limits=limits)
    directory, declared = central_entries(source, most=limits.members, most_bytes=limits.directory)
    # By their places: a directory in another order must not make a remote file be read to and fro.
    placed = {item: _entry(source, item, limits) for item in sorted(declared, key=lambda item: item.offset)}
    _check_names([entry.name for entry in placed.values()])
    _check_tiling(tuple(placed.values()), directory)
    entries = tuple(placed[item] for item in declared if not _is_folder(placed[item].name))
    if sum(entry.size for entry in entries) > limits.total:
        raise CorruptArchive(f"the members expand to more than {limits.total} bytes")
    return entries


def check_name(name: str) -> None:
    """Check that a member's name is a plain relative path.

    Raises:
        CorruptArchive: It could leave the folder it belongs to, or fool a reader of the listing.
    """
    problem = _name_problem(name)
    if problem:
        raise CorruptArchive(f"a member's name {problem}", where=printable_name(name), hint=REBUILD)


def printable_name(name: str) -> str:
    """Return a member's name for printing: shortened, with control characters escaped."""
    return name[:200] if name.isprintable() else repr(name[:200])


def _name_problem(name: str) -> str | None:
    parts = name.split("/")
    problems = (
        (not name or len(name) > _MAX_NAME_BYTES, f"is empty or longer than {_MAX_NAME_BYTES} characters"),
        (not name.isprintable(), "contains control characters"),
        ("\\" in name, "holds a backslash"),
        (name.startswith("/"), "is absolute"),
        (bool(_DRIVE.match(name)), "starts with a drive letter"),
        (".." in parts, "leaves its folder (..)"),
        (name.endswith("/"), "is a folder's"),
        ("" in parts or "." in parts, "has an empty part or ."),
    )
    return next((text for found, text in problems if found), None)


def _check_names(names: Sequence[str]) -> None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise CorruptArchive("two members have the same name", where=printable_name(name), hint=REBUILD)
        seen.add(name)
    for name in names:  # a folder's name ends with "/", so its own path is among its parents
        parents = (name[:at] for at, letter in enumerate(name) if letter == "/")
        if any(parent in seen for parent in parents):
            raise CorruptArchive("a member is below another member", where=printable_name(name), hint=REBUILD)


def _check_tiling(entries: Sequence[Entry], directory: int) -> None:
    at = 0
    for entry in sorted(entries, key=lambda item: item.header_offset):
        if entry.header_offset < at:
            raise CorruptArchive("two members overlap", where=printable_name(entry.name), hint=REBUILD)
        if entry.header_offset > at:
            place = "before the archive" if at == 0 else "between two members"
            raise CorruptArchive(f"junk {place}", where=printable_name(entry.name), hint=REBUILD)
        at = entry.end_offset
    if at != directory:
        raise CorruptArchive("the members do not end where the central directory begins", hint=REBUILD)


def _entry(file: BinaryIO, central: Central, limits: Limits) -> Entry:
    name = _name(central)
    check_name(name.removesuffix("/"))
    problem = (
        _central_problem(central)
        or _size_problem(central, limits)
        or _folder_problem(central, folder=_is_folder(name))
    )
    if problem:
        raise CorruptArchive(problem, where=printable_name(name), hint=REBUILD)
    try:
        return _locate_entry(file, central, name)
    except CorruptArchive as error:
        raise CorruptArchive(error.message, where=printable_name(name), hint=REBUILD) from error


def _name(central: Central) -> str:
    codec = "utf-8" if central.header.flags & records.UTF8 else "ascii"
    try:
        return central.name.decode(codec)
    except UnicodeDecodeError as error:
        raise CorruptArchive(
            f"a member's name is not {codec}", where=repr(central.name[:200]), hint=REBUILD
        ) from error


def _central_problem(central: Central) -> str | None:
    header = central.header
    kind = stat.S_IFMT(header.external >> 16)
    problems = (
        (header.flags & _ENCRYPTED, "the member is encrypted"),
        (header.flags & ~_ALLOWED_FLAGS, f"the member has unknown flags {header.flags:#06x}"),
        (header.method not in (records.STORED, records.DEFLATED), f"unknown compression {header.method}"),
        (
            header.flags & records.WITH_DESCRIPTOR and header.method != records.STORED,
            "a compressed member has a data descriptor",
        ),
        (kind == stat.S_IFLNK, "the member is a symbolic link"),
        (kind not in (0, stat.S_IFREG, stat.S_IFDIR), "the member is not a regular file"),
        (header.disk != 0, "the member is on another disk"),
        (header.version & 0xFF > _NEWEST_VERSION, f"the member needs zip version {header.version & 0xFF}"),
    )
    return next((text for found, text in problems if found), None)


def _is_folder(name: str) -> bool:
    return name.endswith("/")


def _folder_problem(central: Central, *, folder: bool) -> str | None:
    """Return what is wrong with an entry that is a folder by its name and not by its attributes, or the reverse."""
    external = central.header.external
    kind = stat.S_IFMT(external >> 16)
    if not folder:
        return "a folder's name must end with /" if external & _DOS_FOLDER or kind == stat.S_IFDIR else None
    if kind == stat.S_IFREG:
        return "a file's name ends with /"
    return "a folder has bytes" if any((central.size, central.compressed, central.header.crc)) else None


def _size_problem(central: Central, limits: Limits) -> str | None:
    if central.header.method == records.STORED:
        return "a stored member has two sizes" if central.size != central.compressed else None
    if central.size > max(_RATIO_FLOOR, limits.ratio * central.compressed):
        return f"the member expands more than {limits.ratio} times"
    return None


def _locate_entry(file: BinaryIO, central: Central, name: str) -> Entry:
    raw = read_exactly(file, central.offset, records.LOCAL.size)
    local = records.LocalHeader._make(records.LOCAL.unpack(raw))
    if local.magic != records.LOCAL_MAGIC:
        raise CorruptArchive("no local header at the central directory's offset")
    tail = read_exactly(file, central.offset + len(raw), local.name_length + local.extra_length)
    extras = extra_fields(tail[local.name_length :])
    _check_same(central, local, tail[: local.name_length], extras)
    start = central.offset + len(raw) + len(tail)
    end = start + central.compressed
    if local.flags & records.WITH_DESCRIPTOR:
        end += _check_descriptor(file, end, central, wide=records.ZIP64_EXTRA in extras)
    return Entry(
        name, central.size, central.compressed, central.header.crc, local.method, central.offset, start, end
    )


def _check_same(central: Central, local: records.LocalHeader, name: bytes, extras: dict[int, bytes]) -> None:
    check_extras(extras)
    later = bool(local.flags & records.WITH_DESCRIPTOR)
    sizes = _local_sizes(central, local, extras)
    checks = (
        ("name", name == central.name),
        ("flags", local.flags == central.header.flags),
        ("compression", local.method == central.header.method),
        ("crc", local.crc == central.header.crc or (later and local.crc == 0)),
        ("size", sizes == (central.size, central.compressed) or (later and sizes == (0, 0))),
    )
    for what, same in checks:
        if not same:
            raise CorruptArchive(f"local header and central directory differ in the member's {what}")


def _local_sizes(central: Central, local: records.LocalHeader, extras: dict[int, bytes]) -> tuple[int, int]:
    wide = extras.get(records.ZIP64_EXTRA)
    if wide is None:
        return local.size, local.compressed
    values = struct.unpack(f"<{len(wide) // 8}Q", wide) if len(wide) in (8, 16, 24) else (-1,)
    if records.MAX32 in (local.size, local.compressed):
        return (values[0], values[1]) if len(values) == 2 else (-1, -1)  # noqa: PLR2004  # size and compressed
    # torch leaves the 32-bit sizes 0 and puts the known sizes next to them.
    known = {0, central.size, central.compressed, central.offset}
    if not local.flags & records.WITH_DESCRIPTOR or not known.issuperset(values):
        raise CorruptArchive("a zip64 field that contradicts the member's header")
    return local.size, local.compressed


def _check_descriptor(file: BinaryIO, at: int, central: Central, *, wide: bool) -> int:
    form = records.DESCRIPTOR64 if wide else records.DESCRIPTOR
    found = form.unpack(read_exactly(file, at, form.size))
    if found != (records.DESCRIPTOR_MAGIC, central.header.crc, central.compressed, central.size):
        raise CorruptArchive("data descriptor and central directory differ")
    return form.size


__all__ = ["REBUILD", "Entry", "Limits", "check_name", "printable_name", "validate"]
