"""Zips written field by field, so that a test can make any of them lie."""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass, field
from typing import Any

LOCAL = "<4s5H3L2H"
CENTRAL = "<4s6H3L5H2L"
SENTINEL = 0xFFFF_FFFF


@dataclass
class RawMember:
    """A member; `local` and `central` overwrite fields of the two headers."""

    name: bytes = b"model/a"
    data: bytes = b"bytes"
    method: int = 0
    flags: int = 0
    descriptor: bytes | None = None
    local: dict[str, Any] = field(default_factory=dict)
    central: dict[str, Any] = field(default_factory=dict)
    local_name: bytes | None = None
    local_extra: bytes = b""
    central_extra: bytes = b""
    comment: bytes = b""
    payload: bytes | None = None

    @property
    def stored(self) -> bytes:
        """The bytes in the file."""
        if self.payload is not None:
            return self.payload
        if self.method == 0:
            return self.data
        deflater = zlib.compressobj(9, zlib.DEFLATED, -15)
        return deflater.compress(self.data) + deflater.flush()

    @property
    def crc(self) -> int:
        """CRC-32 of the bytes before compression."""
        return zlib.crc32(self.data)

    def local_header(self) -> bytes:
        """The header in front of the bytes."""
        later = self.flags & 8
        fields = {
            "magic": b"PK\3\4",
            "version": 20,
            "flags": self.flags,
            "method": self.method,
            "time": 0,
            "date": 33,
            "crc": 0 if later else self.crc,
            "compressed": 0 if later else len(self.stored),
            "size": 0 if later else len(self.data),
            "name_length": len(self.local_name or self.name),
            "extra_length": len(self.local_extra),
        } | self.local
        return struct.pack(LOCAL, *fields.values()) + (self.local_name or self.name) + self.local_extra

    def central_header(self, offset: int) -> bytes:
        """The entry in the central directory."""
        fields = {
            "magic": b"PK\1\2",
            "made_by": 0x314,
            "version": 20,
            "flags": self.flags,
            "method": self.method,
            "time": 0,
            "date": 33,
            "crc": self.crc,
            "compressed": len(self.stored),
            "size": len(self.data),
            "name_length": len(self.name),
            "extra_length": len(self.central_extra),
            "comment_length": len(self.comment),
            "disk": 0,
            "internal": 0,
            "external": 0,
            "offset": offset,
        } | self.central
        return struct.pack(CENTRAL, *fields.values()) + self.name + self.central_extra + self.comment

    def footer(self) -> bytes:
        """The data descriptor, where there is one."""
        if self.descriptor is not None or not self.flags & 8:
            return self.descriptor or b""
        return struct.pack("<4s3L", b"PK\7\x08", self.crc, len(self.stored), len(self.data))


def end_record(entries: int, size: int, offset: int, overrides: dict[str, int] | None = None) -> bytes:
    """An end record."""
    values = {
        "disk": 0,
        "start": 0,
        "here": entries,
        "entries": entries,
        "size": size,
        "offset": offset,
        "comment": 0,
    } | (overrides or {})
    return struct.pack("<4s4H2LH", b"PK\5\6", *values.values())


def end64(entries: int, size: int, offset: int, overrides: dict[str, int]) -> bytes:
    """A zip64 end record and its locator."""
    values = {
        "body": 44,
        "made_by": 0x31E,
        "version": 45,
        "disk": 0,
        "start": 0,
        "here": entries,
        "entries": entries,
        "size": size,
        "offset": offset,
        "located": offset + size,
    } | overrides
    located = values.pop("located")
    record = struct.pack("<4sQ2H2L4Q", b"PK\6\6", *values.values())
    return record + struct.pack("<4sLQL", b"PK\6\7", 0, located, 1)


def raw_zip(
    *members: RawMember,
    before: bytes = b"",
    gap: bytes = b"",
    wide: dict[str, int] | None = None,
    after: bytes = b"",
    **end: int,
) -> bytes:
    """A zip of these members.

    Args:
        members: In the order of the file.
        before: Junk before the first member; offsets count it.
        gap: Junk between two members.
        wide: Fields of a zip64 end record, where there is to be one.
        after: What follows the end record.
        end: Fields of the end record.
    """
    body = before
    offsets = []
    for index, member in enumerate(members):
        body += gap if index else b""
        offsets.append(len(body))
        body += member.local_header() + member.stored + member.footer()
    directory = b"".join(
        member.central_header(offset) for member, offset in zip(members, offsets, strict=True)
    )
    numbers = (len(members), len(directory), len(body))
    tail = b"" if wide is None else end64(*numbers, wide)
    return body + directory + tail + end_record(*numbers, end) + after
