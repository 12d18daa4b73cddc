"""Archives of source code: what is packed, what is taken, and what is refused."""

from __future__ import annotations

import os
import sys
import zipfile
from typing import TYPE_CHECKING

import pytest

from pt2hub.archive.code import LIMITS, check_code, pack_code, unpack_code
from pt2hub.archive.sources import open_source
from pt2hub.archive.zip import records
from pt2hub.errors import BadCodeArchive, NotFound
from support.zips import RawMember, raw_zip

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

DEFLATED = 8
UTF8 = 0x800
CODE = RawMember(b"net.py", data=b"WIDTH = 8\n")


def folder_of(root: Path, files: dict[str, bytes]) -> Path:
    for name, data in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return root


def contents(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()
    }


SOURCE = {
    "net.py": b"from parts import width\n",
    "parts/__init__.py": b"",
    "parts/width.py": b"WIDTH = 8\n",
    "labels.txt": b"cat\ndog\n",
}
JUNK = {
    ".git/config": b"[core]",
    ".env": b"SECRET=1",
    "__pycache__/net.cpython-311.pyc": b"\0",
    "parts/__pycache__/width.cpython-311.pyc": b"\0",
    "old.pyc": b"\0",
    "CVS/Root": b"x",
    "net.egg-info/PKG-INFO": b"x",
    "venv/pyvenv.cfg": b"home = /usr",
    "venv/lib/thing.py": b"x",
}


def test_a_folder_comes_back_as_it_was_without_what_is_no_code(tmp_path: Path) -> None:
    folder = folder_of(tmp_path / "code", SOURCE | JUNK)
    count = pack_code(folder, tmp_path / "code.zip")
    unpack_code(tmp_path / "code.zip", tmp_path / "out")
    assert contents(tmp_path / "out") == SOURCE
    assert count == len(SOURCE)
    assert check_code(tmp_path / "code.zip") == sorted(SOURCE)


def test_equal_folders_give_equal_bytes_whatever_their_dates_modes_and_order(tmp_path: Path) -> None:
    first = folder_of(tmp_path / "a", SOURCE)
    second = folder_of(tmp_path / "b", dict(reversed(SOURCE.items())) | JUNK)
    os.utime(second / "net.py", (1_000_000_000, 1_000_000_000))
    (second / "net.py").chmod(0o700)
    for folder in (first, second):
        pack_code(folder, folder.with_suffix(".zip"))
    assert first.with_suffix(".zip").read_bytes() == second.with_suffix(".zip").read_bytes()
    with zipfile.ZipFile(first.with_suffix(".zip")) as archive:
        assert archive.testzip() is None


def test_code_in_a_storage_is_checked_like_a_file(tmp_path: Path) -> None:
    pack_code(folder_of(tmp_path / "code", SOURCE), tmp_path / "code.zip")
    with open_source((tmp_path / "code.zip").read_bytes()) as stored:
        assert check_code(stored) == sorted(SOURCE)


def test_a_link_inside_the_folder_is_packed_as_what_it_names(tmp_path: Path) -> None:
    folder = folder_of(tmp_path / "code", {"net.py": b"X = 1\n"})
    (folder / "alias.py").symlink_to("net.py")
    pack_code(folder, tmp_path / "code.zip")
    unpack_code(tmp_path / "code.zip", tmp_path / "out")
    assert contents(tmp_path / "out") == {"net.py": b"X = 1\n", "alias.py": b"X = 1\n"}


def link_out(folder: Path) -> str:
    (folder / "passwd").symlink_to("/etc/passwd")
    return "target is outside the folder"


def link_to_parent(folder: Path) -> str:
    (folder / "up").symlink_to("..")
    return "target is outside the folder"


def link_to_nothing(folder: Path) -> str:
    (folder / "gone.py").symlink_to("nothing.py")
    return "target does not exist"


def link_to_itself(folder: Path) -> str:
    (folder / "loop").symlink_to(".")
    return "target does not exist"


def pipe(folder: Path) -> str:
    os.mkfifo(folder / "pipe")
    return "Neither a file nor a folder"


def backslash(folder: Path) -> str:
    (folder / "a\\b.py").touch()
    return r"a\\b.py: a member's name holds a backslash"


def no_utf8(folder: Path) -> str:
    os.close(os.open(os.fsencode(folder) + b"/\xff.py", os.O_CREAT | os.O_WRONLY))
    return "not valid UTF-8"


def two_cases(folder: Path) -> str:
    (folder / "NET.py").touch()
    return "on some systems it has the same name as"


def too_much(folder: Path) -> str:
    with (folder / "weights.bin").open("wb") as file:
        file.truncate(LIMITS.total + 1)
    return "more than 256 MiB"


@pytest.mark.skipif(sys.platform != "linux", reason="other systems refuse some of these names themselves")
@pytest.mark.parametrize(
    "spoil",
    [
        link_out,
        link_to_parent,
        link_to_nothing,
        link_to_itself,
        pipe,
        backslash,
        no_utf8,
        two_cases,
        too_much,
    ],
)
def test_what_cannot_be_packed_is_refused_with_its_name(spoil: Callable[[Path], str], tmp_path: Path) -> None:
    folder = folder_of(tmp_path / "code", SOURCE)
    with pytest.raises(BadCodeArchive, match=spoil(folder)) as caught:
        pack_code(folder, tmp_path / "code.zip")
    assert caught.value.hint
    assert (caught.value.where or "").startswith(str(folder))
    assert not (tmp_path / "code.zip").exists()


def test_a_link_that_leads_out_is_named(tmp_path: Path) -> None:
    folder = folder_of(tmp_path / "code", SOURCE)
    link_out(folder)
    with pytest.raises(BadCodeArchive) as caught:
        pack_code(folder, tmp_path / "code.zip")
    assert caught.value.where == str(folder / "passwd")


def test_a_folder_that_does_not_exist_is_not_found(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="Folder not found"):
        pack_code(tmp_path / "nothing", tmp_path / "code.zip")
    (tmp_path / "net.py").touch()
    with pytest.raises(NotFound, match="It is a file"):
        pack_code(tmp_path / "net.py", tmp_path / "code.zip")


@pytest.mark.parametrize("files", [{}, {"readme.txt": b"hello"}, {".hidden.py": b""}])
def test_a_folder_without_code_is_refused(files: dict[str, bytes], tmp_path: Path) -> None:
    (tmp_path / "code").mkdir()
    with pytest.raises(BadCodeArchive, match="no Python file"):
        pack_code(folder_of(tmp_path / "code", files), tmp_path / "code.zip")


HOSTILE = {
    "not a zip": (b"print('hello')\n", "no end record"),
    "nothing": (b"", "no end record"),
    "without members": (raw_zip(), "no Python file"),
    "without Python": (raw_zip(RawMember(b"readme.txt")), "no Python file"),
    "traversal": (
        raw_zip(CODE, RawMember(b"../../x.py")),
        r"\.\./\.\./x\.py: a member's name leaves its folder",
    ),
    "absolute": (raw_zip(RawMember(b"/etc/cron.d/x.py")), "absolute"),
    "backslash": (raw_zip(RawMember(b"..\\x.py")), "backslash"),
    "drive letter": (raw_zip(RawMember(b"C:/x.py")), "drive letter"),
    "symlink": (raw_zip(CODE, RawMember(b"x", central={"external": 0o120777 << 16})), "symbolic link"),
    "device": (raw_zip(CODE, RawMember(b"x", central={"external": 0o020666 << 16})), "not a regular file"),
    "duplicates": (raw_zip(CODE, CODE), "same name"),
    "duplicates but for case": (raw_zip(CODE, RawMember(b"NET.py")), "has the same name as net.py"),
    "folders that differ in case": (
        raw_zip(RawMember(b"Net/a.py"), RawMember(b"net/b.py")),
        "has the same name as Net",
    ),
    "duplicates but for accents": (
        raw_zip(
            RawMember("\u00e9.py".encode(), flags=UTF8),
            RawMember("e\u0301.py".encode(), flags=UTF8),
        ),
        "has the same name as \u00e9.py",
    ),
    "a file below a file": (raw_zip(CODE, RawMember(b"net.py/x")), "below another"),
    "encrypted": (raw_zip(RawMember(b"net.py", flags=1)), "encrypted"),
    "no UTF-8": (raw_zip(RawMember(b"\xff.py", flags=UTF8)), "not utf-8"),
    "a null in a name": (raw_zip(RawMember(b"net.py\0.txt")), "control characters"),
    "a long name": (raw_zip(RawMember(b"n" * 253 + b".py")), "longer than 255 bytes"),
    "deep": (raw_zip(RawMember(b"a/" * 40 + b"x.py")), "folders deep"),
    "a bomb": (raw_zip(RawMember(b"net.py", data=bytes(8 << 20), method=DEFLATED)), "expands more than"),
    "a bomb that lies": (
        raw_zip(RawMember(b"net.py", central={"size": 1 << 30, "compressed": 1 << 30})),
        "differ in the member's size",
    ),
    "too many": (
        raw_zip(*(RawMember(b"%d.py" % index, data=b"") for index in range(LIMITS.members + 1))),
        "more than 10000 members",
    ),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_archive_is_refused_before_anything_is_written(name: str, tmp_path: Path) -> None:
    data, reason = HOSTILE[name]
    path = tmp_path / "code.zip"
    path.write_bytes(data)
    with pytest.raises(BadCodeArchive, match=reason) as caught:
        check_code(path)
    assert caught.value.where == "source.code"
    assert "--code" in (caught.value.hint or "")
    with pytest.raises(BadCodeArchive, match=reason):
        unpack_code(path, tmp_path / "out")
    assert [item.name for item in tmp_path.iterdir()] == ["code.zip"]


def test_many_small_members_that_are_large_together_are_refused(tmp_path: Path) -> None:
    piece = RawMember(b"0.py", data=bytes(60_000), method=DEFLATED)
    payload = piece.stored
    members = [
        RawMember(b"%d.py" % index, data=piece.data, method=DEFLATED, payload=payload)
        for index in range(LIMITS.total // 60_000 + 1)
    ]
    (tmp_path / "code.zip").write_bytes(raw_zip(*members))
    with pytest.raises(BadCodeArchive, match="expand to more than"):
        check_code(tmp_path / "code.zip")


class Huge:
    """A stored object of 2 GiB whose end claims a directory of 1 GiB."""

    size = 1 << 31
    end = records.END.pack(records.END_MAGIC, 0, 0, 1, 1, 1 << 30, (1 << 30) - records.END.size, 0)

    def __init__(self) -> None:
        self.taken = 0

    def read(self, start: int, stop: int) -> list[bytes]:
        self.taken += stop - start
        whole = bytes(self.size - len(self.end) - start) + self.end
        return [whole[: stop - start]]


def test_a_huge_directory_is_refused_without_reading_it() -> None:
    huge = Huge()
    with pytest.raises(BadCodeArchive, match="central directory is larger"):
        check_code(huge)  # type: ignore[arg-type]  # all that is read of it
    assert huge.taken < 1 << 20


@pytest.mark.parametrize(
    "member",
    [
        RawMember(b"net.py", data=b"right", payload=b"wrong"),
        RawMember(
            b"net.py", data=b"short", method=DEFLATED, payload=RawMember(data=b"x" * 99, method=8).stored
        ),
    ],
)
def test_damaged_bytes_are_refused_on_unpacking(member: RawMember, tmp_path: Path) -> None:
    (tmp_path / "code.zip").write_bytes(raw_zip(member))
    with pytest.raises(BadCodeArchive, match="size and CRC"):
        unpack_code(tmp_path / "code.zip", tmp_path / "out")
