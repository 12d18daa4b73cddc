"""Which zips are taken for a `.pt2`: a table of those that are and of those that are not."""

from __future__ import annotations

import io
import struct
import zipfile
import zlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pt2hub.archive import Archive, Limits, validate
from pt2hub.errors import CorruptArchive, NotFound
from support.zips import SENTINEL, RawMember, end_record, raw_zip

TORCH = 0x808
"""The flags that torch's own writer sets: UTF-8 names, data descriptor."""
PADDING = struct.pack("<2H", 0x4246, 8) + b"Z" * 8
DEFLATED = 8


def wide_field(*values: int) -> bytes:
    return struct.pack(f"<2H{len(values)}Q", 1, 8 * len(values), *values)


def wide_descriptor(member: RawMember) -> bytes:
    return struct.pack("<4sL2Q", b"PK\7\x08", member.crc, len(member.data), len(member.data))


def like_torch_above_4_gib() -> bytes:
    # torch leaves the local 32-bit sizes 0, puts the size it knows beside them, and 64-bit sizes behind.
    member = RawMember(
        flags=TORCH,
        local_extra=wide_field(5, 0) + PADDING,
        central={"size": SENTINEL, "compressed": SENTINEL},
        central_extra=wide_field(5, 5),
    )
    member.descriptor = wide_descriptor(member)
    return raw_zip(member, wide={}, offset=SENTINEL)


def like_python_above_4_gib() -> bytes:
    return raw_zip(
        RawMember(
            local={"size": SENTINEL, "compressed": SENTINEL},
            local_extra=wide_field(5, 5),
            central={"size": SENTINEL, "compressed": SENTINEL},
            central_extra=wide_field(5, 5),
        ),
        wide={},
    )


def by_zipfile(method: int) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", method) as archive:
        archive.writestr("model/archive_format", "pt2")
        archive.writestr("model/data/größe.json", "{}" * 100)
    return out.getvalue()


ACCEPTED = {
    "stored": raw_zip(RawMember()),
    "stored with torch's data descriptor and padding": raw_zip(
        RawMember(flags=TORCH, local_extra=PADDING), RawMember(b"model/b", flags=TORCH, local_extra=PADDING)
    ),
    "torch's zip64 end record beside a plain one that says the same": raw_zip(
        RawMember(flags=TORCH), wide={}
    ),
    "torch's form of a member above 4 GiB": like_torch_above_4_gib(),
    "Python's form of a member above 4 GiB": like_python_above_4_gib(),
    "deflated": raw_zip(RawMember(data=b"text " * 100, method=DEFLATED)),
    "an empty member": raw_zip(RawMember(data=b"")),
    "no members": raw_zip(),
    "an archive inside a stored member": raw_zip(RawMember(data=raw_zip(RawMember()) * 2)),
    "written by zipfile, stored": by_zipfile(zipfile.ZIP_STORED),
    "written by zipfile, deflated": by_zipfile(zipfile.ZIP_DEFLATED),
    "a regular file's Unix mode": raw_zip(RawMember(central={"external": 0o100755 << 16})),
    "a comment": raw_zip(RawMember(), comment=3, after=b"abc"),
    "the longest comment": raw_zip(RawMember(), comment=0xFFFF, after=b"c" * 0xFFFF),
    "a comment behind a zip64 end record": raw_zip(
        RawMember(flags=TORCH), wide={}, comment=0xFFFF, after=b"c" * 0xFFFF
    ),
    "a member with a comment": raw_zip(RawMember(comment=b"built by hand")),
}

FOLDER = {"external": 0o040755 << 16 | 0x10}
UNIX_EXTRA = struct.pack("<2HBL", 0x5455, 5, 1, 1_700_000_000) + struct.pack("<2H3BL", 0x7875, 7, 1, 4, 0, 0)
"""What Info-ZIP appends: time and owner."""


def by_zipfile_with_folders() -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.comment = b"zipped again"
        archive.mkdir("model")
        archive.mkdir("model/data")
        archive.writestr("model/data/weights", bytes(100))
        archive.mkdir("model/empty")
    return out.getvalue()


WITH_FOLDERS = {
    "by zipfile": (by_zipfile_with_folders(), ["model/data/weights"]),
    "by Info-ZIP": (
        raw_zip(
            RawMember(b"model/", data=b"", central=FOLDER, local_extra=UNIX_EXTRA),
            RawMember(method=DEFLATED, local_extra=UNIX_EXTRA),
        ),
        ["model/a"],
    ),
    "without attributes": (raw_zip(RawMember(), RawMember(b"model/", data=b"")), ["model/a"]),
}

SECOND = RawMember(b"model/b")


def hidden_member() -> bytes:
    first = RawMember()
    body = b"".join(member.local_header() + member.stored for member in (first, SECOND))
    directory = first.central_header(0)
    return body + directory + end_record(1, len(directory), len(body))


REFUSED = {
    "not a zip": (b"\x7fELF" + bytes(100), "no end record"),
    "nothing": (b"", "no end record"),
    "cut short": (raw_zip(RawMember())[:-1], "truncated"),
    "a name that climbs out": (raw_zip(RawMember(b"model/../../etc/passwd")), "leaves its folder"),
    "an absolute name": (raw_zip(RawMember(b"/etc/passwd")), "absolute"),
    "a backslash": (raw_zip(RawMember(b"model\\..\\a")), "backslash"),
    "a drive letter": (raw_zip(RawMember(b"C:/windows")), "drive letter"),
    "a control character": (raw_zip(RawMember(b"model/a\x1b[2J")), "control characters"),
    "a null in the name": (raw_zip(RawMember(b"model/a\0.txt")), "control characters"),
    "a character that turns the line round": (
        raw_zip(RawMember("model/a\u202etxt.so".encode(), flags=0x800)),
        "control characters",
    ),
    "an empty name": (raw_zip(RawMember(b"")), "empty"),
    "an empty part": (raw_zip(RawMember(b"model//a")), r"empty part or \."),
    "a folder with bytes": (raw_zip(RawMember(b"model/", central=FOLDER)), "a folder has bytes"),
    "a file with a folder's name": (
        raw_zip(RawMember(b"model/", data=b"", central={"external": 0o100644 << 16})),
        "a file's name ends with /",
    ),
    "a folder with a file's name": (raw_zip(RawMember(data=b"", central=FOLDER)), "must end with /"),
    "a folder that is a member too": (
        raw_zip(RawMember(), RawMember(b"model/a/", data=b"")),
        "below another",
    ),
    "a folder twice": (
        raw_zip(RawMember(b"model/", data=b""), RawMember(b"model/", data=b"")),
        "same name",
    ),
    "a folder that climbs out": (raw_zip(RawMember(b"model/../../", data=b"")), "leaves its folder"),
    "the root as a folder": (raw_zip(RawMember(b"/", data=b"")), "empty"),
    "a name that is no UTF-8": (raw_zip(RawMember(b"model/\xff", flags=0x800)), "not utf-8"),
    "a name in an unnamed code page": (raw_zip(RawMember(b"model/\xe4")), "not ascii"),
    "the same name twice": (raw_zip(RawMember(), RawMember()), "same name"),
    "a member below a member": (raw_zip(RawMember(), RawMember(b"model/a/b")), "below another"),
    "a symbolic link": (raw_zip(RawMember(central={"external": 0o120777 << 16})), "symbolic link"),
    "a device": (raw_zip(RawMember(central={"external": 0o020666 << 16})), "not a regular file"),
    "encrypted": (raw_zip(RawMember(flags=1)), "encrypted"),
    "another compression": (raw_zip(RawMember(central={"method": 12}, local={"method": 12})), "compression"),
    "another local name": (raw_zip(RawMember(local_name=b"model/b")), "differ in the member's name"),
    "another local size": (raw_zip(RawMember(local={"size": 4})), "differ in the member's size"),
    "another local crc": (raw_zip(RawMember(local={"crc": 1})), "differ in the member's crc"),
    "another local method": (
        raw_zip(RawMember(local={"method": DEFLATED})),
        "differ in the member's compression",
    ),
    "other local flags": (raw_zip(RawMember(local={"flags": 0x800})), "differ in the member's flags"),
    "no local header": (raw_zip(RawMember(local={"magic": b"PK\5\5"})), "no local header"),
    "a descriptor with another crc": (
        raw_zip(RawMember(flags=TORCH, descriptor=struct.pack("<4s3L", b"PK\7\x08", 1, 5, 5))),
        "data descriptor",
    ),
    "a descriptor without its signature": (
        raw_zip(RawMember(flags=TORCH, descriptor=struct.pack("<3L", zlib.crc32(b"bytes"), 5, 5))),
        "data descriptor",
    ),
    "a compressed member with a descriptor": (
        raw_zip(RawMember(flags=TORCH, method=DEFLATED)),
        "compressed member has a data descriptor",
    ),
    "a stored member with two sizes": (raw_zip(RawMember(central={"size": 4})), "two sizes"),
    "a member's comment that is missing": (
        raw_zip(RawMember(central={"comment_length": 1})),
        "malformed central directory",
    ),
    "an unknown flag": (raw_zip(RawMember(flags=0x20)), "unknown flags"),
    "an extra field that renames the member": (
        raw_zip(RawMember(local_extra=struct.pack("<2H5s", 0x7075, 5, b"other"))),
        "unknown extra field",
    ),
    "an extra field that renames the member in the directory": (
        raw_zip(RawMember(central_extra=struct.pack("<2H5s", 0x7075, 5, b"other"))),
        "unknown extra field",
    ),
    "an extra field that ends early": (raw_zip(RawMember(local_extra=b"FB\x40\0")), "malformed extra"),
    "two end records": (
        raw_zip(RawMember(), after=end_record(1, 53, 42)),
        "several end records",
    ),
    "an end record in a comment": (
        raw_zip(RawMember(), comment=22, after=end_record(0, 0, 0)),
        "several end records",
    ),
    "an end record in a member's comment": (
        raw_zip(RawMember(comment=end_record(0, 0, 0))),
        "several end records",
    ),
    "a local header in a comment": (
        raw_zip(RawMember(), comment=4, after=b"PK\3\4"),
        "comment holds parts of a zip",
    ),
    "a comment of another length": (raw_zip(RawMember(), comment=4, after=b"abc"), "junk after"),
    "junk after the archive": (raw_zip(RawMember(), after=b"#!/bin/sh\n"), "junk after"),
    "junk before the archive": (raw_zip(RawMember(), before=b"#!/bin/sh\n"), "junk before"),
    "junk before that offsets do not count": (b"MZ" + raw_zip(RawMember()), "does not end where"),
    "two archives in one file": (
        raw_zip(RawMember()) + raw_zip(SECOND),
        "several end records",
    ),
    "junk between two members": (raw_zip(RawMember(), SECOND, gap=b"hidden"), "junk between"),
    "a member the directory does not name": (hidden_member(), "do not end where"),
    "more entries than members": (raw_zip(RawMember(), here=2, entries=2), "fewer members"),
    "several disks": (raw_zip(RawMember(), disk=1), "disks"),
    "a member on another disk": (raw_zip(RawMember(central={"disk": 1})), "another disk"),
    "a directory outside the file": (raw_zip(RawMember(), offset=10_000), "outside"),
    "a zip64 record that says otherwise": (
        raw_zip(RawMember(), wide={"entries": 2, "here": 2}),
        "contradict",
    ),
    "a zip64 record elsewhere": (raw_zip(RawMember(), wide={"located": 0}), "locator points elsewhere"),
    "a zip64 record that is not there": (
        raw_zip(RawMember(), offset=SENTINEL),
        "refers to a missing zip64 record",
    ),
    "zip64 sizes that nothing asks for": (
        raw_zip(RawMember(central_extra=wide_field(6, 6))),
        "the zip64 field does not match the header",
    ),
    "zip64 sizes that are missing": (
        raw_zip(RawMember(central={"size": SENTINEL})),
        "the zip64 field does not match the header",
    ),
    "local zip64 sizes that contradict": (
        raw_zip(RawMember(flags=TORCH, local_extra=wide_field(99, 99))),
        "contradicts",
    ),
    "a deflate bomb": (raw_zip(RawMember(data=bytes(1 << 20), method=DEFLATED)), "expands more than"),
}


@pytest.mark.parametrize("name", ACCEPTED)
def test_a_well_formed_archive_is_taken_and_agrees_with_zipfile(name: str) -> None:
    data = ACCEPTED[name]
    archive = Archive(io.BytesIO(data))
    with zipfile.ZipFile(io.BytesIO(data)) as expected:
        assert [(entry.name, entry.size) for entry in archive.entries] == [
            (info.filename, info.file_size) for info in expected.infolist()
        ]
        assert [archive.read(entry.name) for entry in archive.entries] == [
            expected.read(info) for info in expected.infolist()
        ]


@pytest.mark.parametrize("name", WITH_FOLDERS)
def test_entries_of_folders_are_checked_and_left_out(name: str) -> None:
    data, members = WITH_FOLDERS[name]
    archive = Archive(io.BytesIO(data))
    assert [entry.name for entry in archive.entries] == members
    with zipfile.ZipFile(io.BytesIO(data)) as expected:
        assert [archive.read(member) for member in members] == [expected.read(member) for member in members]


@pytest.mark.parametrize("name", REFUSED)
def test_a_hostile_archive_is_refused_with_the_reason(name: str) -> None:
    data, reason = REFUSED[name]
    with pytest.raises(CorruptArchive, match=reason):
        validate(io.BytesIO(data))


def test_overlapping_members_are_refused() -> None:
    # Both entries of the directory point to the same local header's neighbourhood.
    inner = RawMember(b"model/b", data=b"x")
    outer = RawMember(b"model/a", data=inner.local_header() + b"x")
    start = len(outer.local_header())
    body = outer.local_header() + outer.stored
    directory = outer.central_header(0) + inner.central_header(start)
    with pytest.raises(CorruptArchive, match="overlap"):
        validate(io.BytesIO(body + directory + end_record(2, len(directory), len(body))))


def test_an_error_names_the_member_and_escapes_what_a_terminal_would_obey() -> None:
    with pytest.raises(CorruptArchive) as caught:
        validate(io.BytesIO(raw_zip(RawMember(b"model/a\x1b[2J"))))
    assert caught.value.where == "'model/a\\x1b[2J'"
    assert caught.value.hint


@pytest.mark.parametrize(
    ("limits", "reason"),
    [
        (Limits(members=1), "more than 1 members"),
        (Limits(total=9), "more than 9 bytes"),
        (Limits(directory=10), "larger than 10 bytes"),
    ],
)
def test_an_archive_above_a_limit_is_refused(limits: Limits, reason: str) -> None:
    with pytest.raises(CorruptArchive, match=reason):
        validate(io.BytesIO(raw_zip(RawMember(), SECOND)), limits=limits)


@pytest.mark.parametrize(
    "member",
    [
        RawMember(data=b"right", payload=b"wrong"),
        RawMember(data=b"r" * 100, method=DEFLATED, payload=b"\xff" * 20),
        RawMember(data=b"short", method=DEFLATED, payload=RawMember(data=b"longer by far", method=8).stored),
        RawMember(data=b"text", method=DEFLATED, payload=RawMember(data=b"text", method=8).stored + b"junk"),
    ],
)
def test_a_member_whose_bytes_are_not_those_of_its_header_is_refused_on_reading(member: RawMember) -> None:
    archive = Archive(io.BytesIO(raw_zip(member)))
    with pytest.raises(CorruptArchive, match="size and CRC"):
        archive.read("model/a")


def test_a_member_that_is_not_there_is_not_found() -> None:
    with pytest.raises(NotFound):
        Archive(io.BytesIO(raw_zip())).read("model/a")


def test_two_members_can_be_read_in_turns() -> None:
    big = {b"model/a": b"a" * (3 << 20), b"model/b": b"b" * (3 << 20)}
    archive = Archive(io.BytesIO(raw_zip(*(RawMember(name, data) for name, data in big.items()))))
    streams = zip(*(archive.chunks(entry) for entry in archive.entries), strict=True)
    first, second = (b"".join(chunks) for chunks in zip(*streams, strict=True))
    assert (first, second) == tuple(big.values())


@settings(deadline=None, max_examples=300)
@given(st.binary(max_size=200), st.integers(0, 300), st.integers(0, 255))
def test_a_damaged_archive_is_refused_or_read_right_and_never_crashes(
    data: bytes, at: int, value: int
) -> None:
    good = raw_zip(RawMember(data=data, flags=TORCH, local_extra=PADDING), SECOND)
    damaged = bytearray(good)
    damaged[at % len(good)] = value
    try:
        archive = Archive(io.BytesIO(damaged))
        contents = {entry.name: archive.read(entry.name) for entry in archive.entries}
    except CorruptArchive:
        return
    # What remains are fields of no meaning (dates, attributes) and consistent renames.
    assert sorted(map(len, contents.values())) == sorted([len(data), len(SECOND.data)])
