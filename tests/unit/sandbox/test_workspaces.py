"""The directories that children work in, and what comes out of them."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from pt2hub.errors import BadConfiguration, OutputRefused
from pt2hub_workers.sandbox import workspaces as module
from pt2hub_workers.sandbox.workspaces import MAX_SLOTS, Workspace, Workspaces

WORK = Path("/pt2hub-workspace")


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return Workspaces(tmp_path / "rooms", inside=WORK).open()


def test_without_a_sandbox_a_builds_room_is_always_at_the_same_path_whatever_else_works(
    tmp_path: Path,
) -> None:
    workspaces = Workspaces(tmp_path, inside=None)
    first, gate, beside = workspaces.open(), workspaces.open("artifact"), workspaces.open()
    (first.host / "out" / "model").touch()
    assert len({first.host, gate.host, beside.host}) == 3
    first.close()

    again = workspaces.open()

    assert again.host == again.inside == first.host
    assert sorted(path.name for path in again.host.rglob("*")) == ["cache", "held", "in", "out", "tmp"]
    for each in (again, gate, beside):
        each.close()
    assert list(tmp_path.iterdir()) == []


def test_in_a_sandbox_every_room_is_another_directory_seen_at_one_place(tmp_path: Path) -> None:
    workspaces = Workspaces(tmp_path, inside=WORK)
    first, second = workspaces.open(), workspaces.open()

    assert first.host != second.host
    assert first.inside == second.inside == WORK
    assert first.seen(first.incoming("code.zip")) == "/pt2hub-workspace/in/code.zip"
    first.close()
    second.close()
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_was_taken_stays_when_the_child_removes_its_name_for_it(workspace: Workspace) -> None:
    (workspace.host / "out" / "code.zip").write_bytes(b"code")
    held = workspace.take("out/code.zip")
    (workspace.host / "out" / "code.zip").unlink()
    again = workspace.host / "out" / "code.zip"
    again.write_bytes(b"other")

    assert held.read_bytes() == b"code"
    assert workspace.take("out/code.zip").read_bytes() == b"other"


def test_what_a_child_writes_into_a_file_that_was_taken_changes_nothing(workspace: Workspace) -> None:
    with (workspace.host / "out" / "code.zip").open("wb", buffering=0) as file:
        file.write(b"what is published")
        held = workspace.take("out/code.zip")
        file.seek(0)
        file.write(b"what is proven!!!")

    assert held.read_bytes() == b"what is published"


def test_a_file_is_taken_with_its_holes_and_with_one_name_only(workspace: Workspace) -> None:
    out = workspace.host / "out"
    with (out / "holes").open("wb") as file:
        file.write(b"begin")
        file.seek(8 << 20)
        file.write(b"middle")
        file.truncate(4 << 30)
    (out / "other").hardlink_to(out / "holes")
    with pytest.raises(OutputRefused, match="more than one hard link"):
        workspace.take("out/holes")
    (out / "other").unlink()

    held = workspace.take("out/holes")

    assert held.stat().st_size == 4 << 30
    assert held.stat().st_blocks * 512 < 1 << 20
    with held.open("rb") as file:
        assert file.read(6) == b"begin\0"
        file.seek(8 << 20)
        assert file.read(7) == b"middle\0"


def test_a_disk_that_is_too_full_for_a_copy_is_no_fault_of_the_build(workspace: Workspace) -> None:
    (workspace.host / "out" / "code.zip").write_bytes(b"x" * 10_000)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (5000, before[1]))
    try:
        with pytest.raises(OSError, match="too large"):
            workspace.take("out/code.zip")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_what_another_room_is_given_is_the_same_file(workspace: Workspace, tmp_path: Path) -> None:
    (workspace.host / "out" / "code.zip").write_bytes(b"code")
    held = workspace.take("out/code.zip")
    other = Workspaces(tmp_path / "rooms", inside=WORK).open("artifact")

    given = other.give(held, "code.zip")

    assert given.read_bytes() == b"code"
    assert given.samefile(held)
    workspace.close()
    assert given.read_bytes() == b"code"


@pytest.mark.parametrize(
    "named",
    [
        "out/../in/x",
        "/etc/passwd",
        "out/a/b",
        "out/..",
        "tmp/x",
        "held/x",
        "out/",
        "out/x\n",
        "out/\0",
        None,
        7,
        ["out/x"],
    ],
)
def test_a_name_that_is_none_is_refused(workspace: Workspace, named: object) -> None:
    with pytest.raises(OutputRefused, match="not a valid file name"):
        workspace.take(named)


def _link(path: Path) -> None:
    path.symlink_to("/etc/passwd")


@pytest.mark.parametrize("make", [_link, os.mkfifo, Path.mkdir], ids=["symlink", "pipe", "directory"])
def test_what_is_no_plain_file_is_refused(workspace: Workspace, make: object) -> None:
    assert callable(make)
    make(workspace.host / "out" / "code.zip")

    with pytest.raises(OutputRefused):
        workspace.take("out/code.zip")

    assert list((workspace.host / "held").iterdir()) == []


def test_what_is_not_there_and_a_folder_that_became_a_link_are_refused(
    workspace: Workspace, tmp_path: Path
) -> None:
    with pytest.raises(OutputRefused, match="No such file"):
        workspace.take("out/code.zip")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "code.zip").touch()
    (workspace.host / "out").rmdir()
    (workspace.host / "out").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OutputRefused):
        workspace.take("out/code.zip")


def test_a_room_is_removed_however_deep_it_is_and_whatever_its_modes_are(tmp_path: Path) -> None:
    script = (
        "import os, sys\n"
        "from pathlib import Path\n"
        "from pt2hub_workers.sandbox.workspaces import Workspaces\n"
        "os.setgid(65534); os.setuid(65534)\n"  # the superuser could look everywhere
        "room = Workspaces(Path(sys.argv[1]), inside=None).open()\n"
        "os.chdir(room.host / 'tmp')\n"
        "for _ in range(3000): os.mkdir('deeper'); os.chdir('deeper')\n"
        "os.chdir('/')\n"
        "shut = room.host / 'out' / 'shut'\n"
        "(shut / 'inner').mkdir(parents=True)\n"
        "(shut / 'inner' / 'file').touch()\n"
        "(shut / 'inner').chmod(0); shut.chmod(0); (room.host / 'out').chmod(0)\n"
        "room.close()\n"
        "print(os.listdir(sys.argv[1]))\n"
    )
    if os.getuid() == 0:
        place = Path("/tmp") / f"{tmp_path.name}-{os.getpid()}"
        place.mkdir(mode=0o700)
        os.chown(place, 65534, 65534)
    else:
        place, script = tmp_path, script.replace("os.setgid(65534); os.setuid(65534)\n", "")
    try:
        done = subprocess.run(
            [sys.executable, "-c", script, str(place)], capture_output=True, text=True, check=False
        )
    finally:
        if place != tmp_path:
            subprocess.run(["rm", "-rf", str(place)], check=True)

    assert (done.stdout, done.stderr) == ("[]\n", "")


def test_the_rooms_of_a_killed_worker_are_removed_by_the_next_one_and_those_of_a_living_one_are_not(
    tmp_path: Path,
) -> None:
    script = (
        "import sys, time\n"
        "from pathlib import Path\n"
        "from pt2hub_workers.sandbox.workspaces import Workspaces\n"
        f"rooms = [Rooms(Path(sys.argv[1]), inside=inside).open() for inside in (None, Path({str(WORK)!r}))]\n"
        "print(*(room.host for room in rooms), flush=True)\n"
        "time.sleep(60)\n"
    )
    worker = subprocess.Popen(
        [sys.executable, "-c", script, str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    assert worker.stdout is not None
    theirs = [Path(word) for word in worker.stdout.readline().split()]
    own = Workspaces(tmp_path, inside=WORK).open()
    assert all(path.exists() for path in theirs)

    worker.send_signal(signal.SIGKILL)
    worker.wait()
    worker.stdout.close()
    following = Workspaces(tmp_path, inside=WORK).open()

    assert not any(path.exists() for path in theirs)
    assert own.host.exists()
    own.close()
    following.close()
    assert list(tmp_path.iterdir()) == []


def test_threads_that_open_and_close_rooms_at_the_same_time_never_share_one(tmp_path: Path) -> None:
    places, lock, shared = set[Path](), threading.Lock(), list[Path]()

    def work(workspaces: Workspaces) -> None:
        for _ in range(25):
            workspace = workspaces.open()
            with lock:
                if workspace.host in places:
                    shared.append(workspace.host)
                places.add(workspace.host)
            (workspace.host / "out" / "x").touch()
            with lock:
                places.discard(workspace.host)
            workspace.close()

    threads = [
        threading.Thread(target=work, args=(Workspaces(tmp_path, inside=inside),))
        for inside in (None, None, WORK, WORK)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert shared == []
    assert list(tmp_path.iterdir()) == []


def test_a_compiler_that_outlived_its_build_is_not_in_the_way_of_the_next_one(tmp_path: Path) -> None:
    workspaces, ended = Workspaces(tmp_path, inside=None), threading.Event()

    def write_on(folder: int) -> None:
        number = 0
        while not ended.is_set():
            try:
                os.close(os.open(str(number), os.O_CREAT | os.O_WRONLY, dir_fd=folder))
            except FileNotFoundError:  # it was removed, with everything in it
                return
            number += 1

    first = workspaces.open()
    folder = os.open(first.host / "tmp", os.O_RDONLY)
    writers = [threading.Thread(target=write_on, args=(folder,)) for _ in range(2)]
    for writer in writers:
        writer.start()
    time.sleep(0.05)
    first.close()
    try:
        following = workspaces.open()
        assert following.host == first.host
        assert list((following.host / "tmp").iterdir()) == []
    finally:
        ended.set()
        for writer in writers:
            writer.join()
        os.close(folder)
    following.close()
    workspaces.open().close()
    assert list(tmp_path.iterdir()) == []


def test_a_scratch_directory_full_of_builds_and_one_of_someone_else_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_SLOTS", 2)
    workspaces = Workspaces(tmp_path / "rooms", inside=None)
    taken = [workspaces.open(), workspaces.open()]
    with pytest.raises(BadConfiguration, match="all 2 slots of"):
        workspaces.open()
    for workspace in taken:
        workspace.close()
    assert MAX_SLOTS == 64
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    with pytest.raises(BadConfiguration, match="belongs to another user"):
        Workspaces(tmp_path / "link", inside=None).open()
