"""Records of the zip format (APPNOTE 6.3)."""

from __future__ import annotations

import struct
from typing import NamedTuple

LOCAL = struct.Struct("<4s5H3L2H")
CENTRAL = struct.Struct("<4s6H3L5H2L")
DESCRIPTOR = struct.Struct("<4s3L")
DESCRIPTOR64 = struct.Struct("<4sL2Q")
END = struct.Struct("<4s4H2LH")
END64 = struct.Struct("<4sQ2H2L4Q")
LOCATOR = struct.Struct("<4sLQL")

LOCAL_MAGIC = b"PK\x03\x04"
CENTRAL_MAGIC = b"PK\x01\x02"
DESCRIPTOR_MAGIC = b"PK\x07\x08"
END_MAGIC = b"PK\x05\x06"
END64_MAGIC = b"PK\x06\x06"
LOCATOR_MAGIC = b"PK\x06\x07"
MAGICS = (LOCAL_MAGIC, CENTRAL_MAGIC, DESCRIPTOR_MAGIC, END_MAGIC, END64_MAGIC, LOCATOR_MAGIC)

STORED = 0
DEFLATED = 8
WITH_DESCRIPTOR = 0x0008
UTF8 = 0x0800
DEFLATE_LEVEL = 0x0006
"""Flag bits 1 and 2: the compression effort, which readers ignore."""

MAX16 = 0xFFFF
MAX32 = 0xFFFF_FFFF
ZIP64_EXTRA = 0x0001
END64_BODY = END64.size - 12
"""Size that the zip64 end record states, without signature and size field."""


class LocalHeader(NamedTuple):
    """The header in front of a member's bytes."""

    magic: bytes
    version: int
    flags: int
    method: int
    time: int
    date: int
    crc: int
    compressed: int
    size: int
    name_length: int
    extra_length: int


class CentralHeader(NamedTuple):
    """A member's entry in the central directory, without its variable parts."""

    magic: bytes
    made_by: int
    version: int
    flags: int
    method: int
    time: int
    date: int
    crc: int
    compressed: int
    size: int
    name_length: int
    extra_length: int
    comment_length: int
    disk: int
    internal: int
    external: int
    offset: int


class EndRecord(NamedTuple):
    """The record at the end of every zip."""

    magic: bytes
    disk: int
    directory_disk: int
    entries_here: int
    entries: int
    directory_size: int
    directory_offset: int
    comment_length: int


class End64Record(NamedTuple):
    """The zip64 end record, with 64-bit numbers."""

    magic: bytes
    body: int
    made_by: int
    version: int
    disk: int
    directory_disk: int
    entries_here: int
    entries: int
    directory_size: int
    directory_offset: int


class Locator(NamedTuple):
    """Offset of the zip64 end record."""

    magic: bytes
    disk: int
    offset: int
    disks: int
