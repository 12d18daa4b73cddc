"""What a killed process left is continued, and what two processes write at a time never mixes."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest

from pt2hub.client.blobs import partial as partials
from pt2hub.client.blobs.folder import BlobFolder
from pt2hub.client.blobs.partial import LeadershipLost, PartialFile, is_abandoned
from pt2hub.client.blobs.sweep import PARTIAL_SECONDS, sweep
from pt2hub.errors import DiskFull

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

DATA = random.Random(4).randbytes(100_000)
NAME = "cd" * 32
SIZE = len(DATA)


def unseen(_: int) -> None:
    pass


def opened(folder: Path, size: int = SIZE) -> PartialFile:
    return PartialFile.open(folder, NAME, size, watch=unseen)


def write(partial: PartialFile, start: int, stop: int) -> None:
    partial.write(start, DATA[start:stop])


def content(partial: PartialFile) -> bytes:
    buffer = bytearray(SIZE)
    assert partial.read_into(memoryview(buffer), 0) == SIZE
    return bytes(buffer)


def left(folder: Path) -> Path:
    """A download that a dead process left, with 20 kB in two ranges."""
    made = opened(folder)
    write(made, 0, 10_000)
    write(made, 50_000, 60_000)
    made.record_seal("http://s3/x one")
    made.close()
    (path,) = folder.iterdir()
    return path


def test_a_dead_processs_download_is_continued_with_the_same_file(tmp_path: Path) -> None:
    path = left(tmp_path)
    inode = (path / "data").stat().st_ino
    made = opened(tmp_path)
    assert (made.resumed, made.reach, made.seal) == (20_000, 10_000, "http://s3/x one")
    assert made.missing() == [(10_000, 50_000), (60_000, SIZE)]
    (found,) = tmp_path.iterdir()
    assert (found / "data").stat().st_ino == inode
    assert found != path
    for start, stop in made.missing():
        write(made, start, stop)
    assert content(made) == DATA
    made.finish(tmp_path / "whole", 0o444)
    assert (tmp_path / "whole").read_bytes() == DATA
    assert [path.name for path in tmp_path.iterdir()] == ["whole"]


def test_a_living_processs_download_is_copied_and_what_it_writes_later_goes_nowhere(tmp_path: Path) -> None:
    first = opened(tmp_path)
    write(first, 0, 30_000)
    second = opened(tmp_path)
    assert second.resumed == 30_000
    first.write(30_000, b"wrong" * 10)
    write(second, 30_000, SIZE)
    with pytest.raises(LeadershipLost):
        first.finish(tmp_path / "whole", 0o444)
    second.finish(tmp_path / "whole", 0o444)
    first.write(0, b"wrong" * 10)
    first.close()
    assert (tmp_path / "whole").read_bytes() == DATA


DAMAGES: dict[str, Callable[[Path], object]] = {
    "no list": lambda path: (path / "ranges").unlink(),
    "no data": lambda path: (path / "data").unlink(),
    "shorter data": lambda path: os.truncate(path / "data", 10),
    "longer data": lambda path: os.truncate(path / "data", SIZE + 1),
    "an empty list": lambda path: os.truncate(path / "ranges", 0),
    "binary rubbish": lambda path: (path / "ranges").write_bytes(random.Random(5).randbytes(5000)),
    "ranges beyond the end": lambda path: (path / "ranges").write_text(f"0 {SIZE + 1}\n-5 7\n9 3\n"),
    "a link for data": lambda path: ((path / "data").unlink(), (path / "data").symlink_to("/etc/passwd")),
    "a link for the list": lambda path: ((path / "ranges").unlink(), (path / "ranges").symlink_to("data")),
    "a folder for data": lambda path: ((path / "data").unlink(), (path / "data").mkdir()),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_a_damaged_download_is_begun_anew(tmp_path: Path, name: str) -> None:
    DAMAGES[name](left(tmp_path))
    made = opened(tmp_path)
    assert made.missing() == [(0, SIZE)]
    write(made, 0, SIZE)
    assert content(made) == DATA
    made.finish(tmp_path / "whole", 0o444)
    assert [path.name for path in tmp_path.iterdir()] == ["whole"]


@pytest.mark.parametrize("torn", [b"10000 2", b"10000 ", b"1", b"seal http://s3/y"])
def test_half_a_line_of_a_killed_process_counts_for_nothing(tmp_path: Path, torn: bytes) -> None:
    path = left(tmp_path)
    with (path / "ranges").open("ab") as file:
        file.write(torn)
    made = opened(tmp_path)
    assert (made.resumed, made.seal) == (20_000, "http://s3/x one")
    write(made, 60_000, 70_000)
    write(made, 70_000, 80_000)
    made.close()
    again = opened(tmp_path)
    assert 30_000 <= again.resumed <= 40_000
    assert all(content(again)[start:stop] == DATA[start:stop] for start, stop in again._ranges)
    again.close()


def test_files_that_are_not_downloads_do_not_disturb(tmp_path: Path) -> None:
    (tmp_path / f"{NAME}.file").write_text("")
    (tmp_path / f"{NAME}.link").symlink_to(tmp_path)
    opened(tmp_path).discard()


def test_the_larger_of_two_leftovers_is_continued(tmp_path: Path) -> None:
    small, large = opened(tmp_path), PartialFile.open(tmp_path, NAME, SIZE, watch=unseen, resume=False)
    write(small, 0, 10)
    write(large, 0, 50_000)
    for each in (small, large):
        each.close()
    made = opened(tmp_path)
    assert made.resumed == 50_000
    assert len(list(tmp_path.iterdir())) == 1
    made.close()


def test_a_download_without_a_byte_leaves_nothing(tmp_path: Path) -> None:
    opened(tmp_path).leave()
    assert list(tmp_path.iterdir()) == []


def test_a_thread_that_comes_too_late_writes_nowhere(tmp_path: Path) -> None:
    made = opened(tmp_path)
    write(made, 0, 10)
    made.close()
    with pytest.raises(OSError, match="has ended"):
        write(made, 10, 20)


def test_space_is_checked_before_a_byte_is_written(tmp_path: Path) -> None:
    status = os.statvfs(tmp_path)
    size = status.f_bavail * status.f_frsize + 1
    with pytest.raises(DiskFull, match=r"lacks space: .* are needed, .* are free") as caught:
        opened(tmp_path, size)
    assert caught.value.context["needed"] == size
    assert caught.value.context["free"] <= size - partials.RESERVE_BYTES


# -- sweeping --------------------------------------------------------------------------------------------

HOLDER = """
import sys
from pathlib import Path
from pt2hub.client.blobs.partial import PartialFile
made = PartialFile.open(Path(sys.argv[1]), sys.argv[2], 100, watch=lambda _: None)
made.write(0, b"half")
print("ready", flush=True)
sys.stdin.read()
"""


def test_old_downloads_are_swept_unless_somebody_works_on_them(tmp_path: Path) -> None:
    folder = BlobFolder(tmp_path / "cache")
    folder.make()
    command = [sys.executable, "-c", HOLDER, str(folder.partial), NAME]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        assert process.stdout.readline() == "ready\n"
        (path,) = folder.partial.iterdir()
        old = time.time() - PARTIAL_SECONDS - 1
        os.utime(path / "ranges", (old, old))
        assert not is_abandoned(path)
        assert sweep(folder) == []
        process.kill()
        process.wait()
    assert is_abandoned(path)
    assert sweep(folder) == [path]
    assert list(folder.partial.iterdir()) == []


def test_young_downloads_stay_and_old_temporary_files_go(tmp_path: Path) -> None:
    folder = BlobFolder(tmp_path / "cache")
    folder.make()
    kept = left(folder.partial)
    digits = "0" * 64
    temporary = [folder.blobs / f"{digits}.stat12345678", folder.blobs / f"{digits}.12345678"]
    temporary.append(folder.leaders / digits)
    foreign = [folder.blobs / "notes.txt", folder.blobs / f"{digits}.stat", folder.blobs / digits]
    for path in [*temporary, *foreign]:
        path.write_text("")
    assert sweep(folder) == []
    for path in [*temporary, *foreign]:
        os.utime(path, (1, 1))
    assert set(sweep(folder)) == set(temporary)
    assert kept.exists()
    assert all(path.exists() for path in foreign)
    assert sweep(folder, everything=True) == [kept]
