"""Real processes that use too much, bounded by control groups where this machine has them, and by the watcher alone."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING

import pytest

from pt2hub_workers.sandbox import watcher
from pt2hub_workers.sandbox.cgroup_locations import own_cgroup
from pt2hub_workers.sandbox.proc import descend, find_process
from support.limited import MIB, SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pt2hub_workers.sandbox.cgroups import Cgroup
    from support.limited import Bounded

HOG = f"""
held = []
for _ in range(60):  # at most 600 MiB, whatever happens
    held.append(b"x" * {10 * MIB})
    time.sleep(0.02)
time.sleep(30)
"""
BOMB = """
for _ in range(400):  # at most
    try:
        if os.fork() == 0:
            time.sleep(30)
            os._exit(0)
    except BlockingIOError:
        break
time.sleep(30)
"""
FILES = f"""
for number in range(200):
    with open(f"out/{{number}}", "wb") as file:
        file.write(b"x" * {MIB})
    time.sleep(0.02)
time.sleep(30)
"""
ONE_FILE = f"""
with open("out/big", "wb", buffering=0) as file:
    for _ in range(200):
        file.write(b"x" * {MIB})
"""
NAMELESS = f"""
file = open("out/gone", "wb")
os.unlink("out/gone")
for _ in range(20):
    file.write(b"x" * {MIB})
other = open("out/gone", "wb")
os.unlink("out/gone")
for _ in range(20):
    other.write(b"x" * {MIB})
file.flush(); other.flush()
time.sleep(30)
"""
SPARSE = f"""
for number in range(10):
    with open(f"out/{{number}}", "wb") as file:
        file.truncate({20 * MIB})
time.sleep(0.7)
"""
IN_MEMORY = f"""
held = []
for number in range(15):
    held.append(open(f"/dev/shm/{{number}}", "wb"))
    held[-1].write(b"x" * {20 * MIB})
    time.sleep(0.02)
time.sleep(30)
"""
DAEMON = """
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        with open("out/daemon", "w") as file:
            file.write(str(os.getpid()))
        os.rename("out/daemon", "out/pid")
        time.sleep(30)
    os._exit(0)
while not os.path.exists("out/pid"):
    time.sleep(0.01)
"""
KILLED_WORKER = """
import os, signal, subprocess, sys, time
from pathlib import Path
from pt2hub_workers.sandbox.limits import Bounds, Limits
bounds = Bounds(Limits(1 << 30, 1 << 30, 1 << 20), workspace=None, name="left behind")
bounds.prepare()
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(30)"], preexec_fn=bounds.in_child,
                         stdout=subprocess.DEVNULL)
print(child.pid, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture(autouse=True)
def nothing_left() -> Iterator[None]:
    """No test leaves a thread or a control group behind."""
    yield
    assert not [thread.name for thread in threading.enumerate() if thread.name.startswith("bounds-")]
    place = own_cgroup()
    assert not (place and [*place.folder.glob(f"build-*-{os.getpid()}-*")])


@pytest.fixture
def brief_stops(monkeypatch: pytest.MonkeyPatch) -> None:
    """A child may stay stopped for less time."""
    monkeypatch.setattr(watcher, "STOPPED_SECONDS", 0.3)


@pytest.fixture
def counting() -> Cgroup:
    """A control group that counts all there is to count."""
    place = own_cgroup()
    if place is None or place.counts != {"memory", "processes"}:
        pytest.skip("this process may make no control groups here")
    return place


@pytest.fixture(params=["cgroups", "watcher"])
def place(request: pytest.FixtureRequest) -> Cgroup | None:
    """Both ways of counting."""
    return request.getfixturevalue("counting") if request.param == "cgroups" else None


def gone(pid: int) -> bool:
    """Whether a process ends within some seconds."""
    deadline = time.monotonic() + SECONDS
    while find_process(pid) is not None:
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def test_memory_beyond_the_limit_ends_the_child_and_is_named_as_the_reason(
    bounded: Callable[..., Bounded], place: Cgroup | None
) -> None:
    child = bounded(HOG, place)

    exceeded = child.end()

    assert exceeded is not None
    assert (exceeded.what, exceeded.limit) == ("memory", 128 * MIB)
    assert exceeded.text == "The build exceeded its memory limit of 0.125 GiB."
    assert "PT2HUB_BUILD_MEMORY" in exceeded.hint
    assert child.process.returncode == -signal.SIGKILL


def test_files_in_memory_count_as_memory(
    bounded: Callable[..., Bounded], place: Cgroup | None, bubblewrap: list[str]
) -> None:
    exceeded = bounded(IN_MEMORY, place, bubblewrap).end()

    assert exceeded is not None
    assert exceeded.what == "memory"


@pytest.mark.usefixtures("brief_stops")
def test_what_runs_below_bubblewrap_is_found(
    bounded: Callable[..., Bounded], place: Cgroup | None, bubblewrap: list[str]
) -> None:
    stopped = bounded("os.kill(os.getpid(), signal.SIGSTOP); time.sleep(30)", place, bubblewrap)
    hog = bounded(HOG, place, bubblewrap)
    bomb = bounded(BOMB, place, bubblewrap)

    found = [child.end() for child in (stopped, hog, bomb)]

    assert [exceeded and exceeded.what for exceeded in found] == [None, "memory", "processes"]
    assert stopped.bounds.stopped_itself


def test_a_fork_bomb_is_stopped_and_nothing_of_it_is_left(
    bounded: Callable[..., Bounded], place: Cgroup | None
) -> None:
    others = {process.pid for process in descend(os.getpid())}  # the session's servers among them
    child = bounded(BOMB, place)

    exceeded = child.end()

    assert exceeded is not None
    assert (exceeded.what, exceeded.limit) == ("processes", 60)
    assert "60" in exceeded.text
    assert "PT2HUB_BUILD_PROCESSES" in exceeded.hint
    child.bounds.close()
    assert {process.pid for process in descend(os.getpid())} <= others


@pytest.mark.parametrize("filler", [FILES, NAMELESS], ids=["many files", "deleted files"])
def test_a_room_that_is_too_full_ends_the_child(
    bounded: Callable[..., Bounded], place: Cgroup | None, filler: str
) -> None:
    child = bounded(filler, place)

    exceeded = child.end()

    assert exceeded is not None
    assert (exceeded.what, exceeded.limit) == ("disk", 24 * MIB)
    assert exceeded.text == "The build exceeded its disk limit of 0.0234 GiB."
    assert "PT2HUB_BUILD_DISK" in exceeded.hint
    assert child.process.returncode == -signal.SIGKILL


def test_a_file_that_is_too_large_ends_at_the_limit_and_is_named_as_the_reason(
    bounded: Callable[..., Bounded], tmp_path: Path
) -> None:
    child = bounded(ONE_FILE, None)

    exceeded = child.end()

    assert exceeded is not None
    assert exceeded.what == "disk"
    assert (tmp_path / "out" / "big").stat().st_size <= 24 * MIB


def test_files_full_of_holes_and_a_child_that_behaves_pass_no_bound(
    bounded: Callable[..., Bounded], place: Cgroup | None
) -> None:
    child = bounded(SPARSE, place)

    assert child.end() is None
    assert child.process.returncode == 0
    assert not child.struck.is_set()


@pytest.mark.usefixtures("brief_stops")
def test_a_child_that_stopped_itself_is_struck_and_passed_no_bound(
    bounded: Callable[..., Bounded], place: Cgroup | None
) -> None:
    child = bounded("os.kill(os.getpid(), signal.SIGSTOP); time.sleep(30)", place)

    assert child.end() is None
    assert child.bounds.stopped_itself
    assert child.struck.is_set()


def test_a_quick_child_leaves_nothing_and_bounds_are_closed_as_often_as_one_likes(
    bounded: Callable[..., Bounded], place: Cgroup | None
) -> None:
    children = [bounded("", place) for _ in range(5)]

    for child in children:
        assert child.end() is None
        assert child.process.returncode == 0
        child.bounds.close()
        child.bounds.close()
        assert child.bounds.find_exceeded() is None
        assert not child.bounds.stopped_itself


def test_what_was_passed_is_known_after_the_bounds_were_closed(
    bounded: Callable[..., Bounded], place: Cgroup | None
) -> None:
    child = bounded(ONE_FILE, place)
    child.process.wait(SECONDS)

    child.bounds.close()

    exceeded = child.bounds.find_exceeded()
    assert exceeded is not None
    assert exceeded.what == "disk"


def test_a_daemon_that_left_the_childs_group_ends_with_its_control_group(
    bounded: Callable[..., Bounded], counting: Cgroup, tmp_path: Path
) -> None:
    child = bounded(DAEMON, counting)
    assert child.end() is None
    daemon = int((tmp_path / "out" / "pid").read_text())
    assert find_process(daemon) is not None

    child.bounds.close()

    assert gone(daemon)


def test_a_later_worker_removes_the_control_groups_of_a_killed_one(counting: Cgroup) -> None:
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    worker = subprocess.run(
        [sys.executable, "-c", KILLED_WORKER], env=environ, stdout=subprocess.PIPE, check=False
    )
    assert worker.returncode == -signal.SIGKILL
    orphan = int(worker.stdout.split()[-1])
    left = [*counting.folder.glob("build-*left_behind")]
    assert left
    assert find_process(orphan) is not None

    counting.tidy()

    assert gone(orphan)
    assert not [folder for folder in left if folder.is_dir()]


def test_every_child_has_resource_limits_but_none_on_its_addresses(
    bounded: Callable[..., Bounded], place: Cgroup | None
) -> None:
    code = "import resource as r\nprint(*(r.getrlimit(getattr(r, f'RLIMIT_{n}'))[1] for n in sys.argv[1].split()))"
    names = ("CORE", "NOFILE", "FSIZE", "AS", "NPROC")
    child = bounded(f"sys.argv.append({' '.join(names)!r})\n{code}", place)
    out, _ = child.process.communicate(timeout=SECONDS)

    found = dict(zip(names, map(int, out.split()), strict=True))
    _, own = resource.getrlimit(resource.RLIMIT_NPROC)
    assert (found["CORE"], found["NOFILE"], found["FSIZE"]) == (0, 100, 24 * MIB)
    assert found["AS"] == resource.RLIM_INFINITY
    assert (found["NPROC"] == own) == bool(place)
