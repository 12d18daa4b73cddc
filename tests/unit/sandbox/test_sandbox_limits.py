"""What a child may use: the settings, the disk it takes, and control groups as folders that imitate them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pt2hub.errors import BadConfiguration
from pt2hub_workers.inside.builds.shortage import format_gib
from pt2hub_workers.sandbox import watcher
from pt2hub_workers.sandbox.cgroup_locations import find_delegated_cgroup, memory_ceiling
from pt2hub_workers.sandbox.cgroups import Cgroup
from pt2hub_workers.sandbox.limits import AvailableResources, Bounds, Limits, limits_from_environ
from pt2hub_workers.sandbox.proc import count_threads, descend, threads_of_user
from pt2hub_workers.sandbox.watcher import measure_workspace

if TYPE_CHECKING:
    from pt2hub_workers.sandbox.cgroups import Counted

MIB, GIB = 1 << 20, 1 << 30
MEANS = AvailableResources(memory_bytes=100 * GIB, free_bytes=1000 * GIB)
BOTH: frozenset[Counted] = frozenset({"memory", "processes"})


def test_limits_that_are_not_set_follow_from_the_machine() -> None:
    limits = limits_from_environ({}, MEANS)

    assert limits == Limits(80 * GIB, disk_bytes=64 * GIB, tmp_bytes=2 * GIB, processes=2048)


def test_builds_at_a_time_share_the_memory_and_a_full_disk_gives_half_of_what_is_free() -> None:
    limits = limits_from_environ(
        {}, AvailableResources(memory_bytes=10 * GIB, free_bytes=30 * GIB, concurrency=4)
    )

    assert limits.memory_bytes == 2 * GIB
    assert limits.tmp_bytes == GIB // 2
    assert limits.disk_bytes == 15 * GIB // 4


def test_limits_are_read_with_their_units() -> None:
    environ = {
        "PT2HUB_BUILD_MEMORY": "1.5GiB",
        "PT2HUB_BUILD_DISK": "2 tib",
        "PT2HUB_BUILD_TMP": "64MiB",
        "PT2HUB_BUILD_PROCESSES": "100",
    }

    assert limits_from_environ(environ, MEANS) == Limits(GIB * 3 // 2, 2048 * GIB, 64 * MIB, 100)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("PT2HUB_BUILD_MEMORY", "16"),
        ("PT2HUB_BUILD_MEMORY", "16GB"),
        ("PT2HUB_BUILD_MEMORY", "-1GiB"),
        ("PT2HUB_BUILD_MEMORY", "1MiB"),
        ("PT2HUB_BUILD_DISK", "plenty"),
        ("PT2HUB_BUILD_TMP", "200GiB"),
        ("PT2HUB_BUILD_PROCESSES", "1"),
        ("PT2HUB_BUILD_PROCESSES", "99999999"),
        ("PT2HUB_BUILD_PROCESSES", "2k"),
    ],
)
def test_a_wrong_limit_is_refused_by_its_name_with_what_to_write(name: str, value: str) -> None:
    with pytest.raises(BadConfiguration) as caught:
        limits_from_environ({name: value}, MEANS)

    assert caught.value.where == name
    assert caught.value.hint


def test_a_workers_means_are_this_machines_though_its_scratch_is_not_made_yet(tmp_path: Path) -> None:
    available = AvailableResources.of_worker(
        {"PT2HUB_SCRATCH": str(tmp_path / "a" / "b"), "PT2HUB_CONCURRENCY": "3"}
    )

    assert 0 < available.memory_bytes <= os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert available.free_bytes > 0
    assert available.concurrency == 3


def test_figures_are_in_gib() -> None:
    assert [format_gib(count) for count in (16 * GIB, 100 * MIB, 2500 * GIB)] == [
        "16 GiB",
        "0.0977 GiB",
        "2500 GiB",
    ]


def test_a_room_counts_blocks_and_every_file_once_and_not_what_the_worker_put_there(tmp_path: Path) -> None:
    for name in ("in", "out", "held"):
        (tmp_path / name).mkdir()
    (tmp_path / "in" / "weights").write_bytes(bytes(MIB))
    (tmp_path / "out" / "code").write_bytes(b"x" * MIB)
    (tmp_path / "held" / "code").hardlink_to(tmp_path / "out" / "code")
    (tmp_path / "out" / "elsewhere").symlink_to("/usr")
    with (tmp_path / "out" / "sparse").open("wb") as file:
        file.truncate(GIB)

    assert MIB <= measure_workspace(tmp_path).size < MIB + 64 * 1024
    assert measure_workspace(tmp_path / "out" / "in") == (0, False, False, False)


def test_a_deleted_file_counts_as_long_as_it_is_open(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    before = measure_workspace(tmp_path, [os.getpid()]).size  # what other tests hold
    with (tmp_path / "out" / "gone").open("wb") as file:
        file.write(b"x" * MIB)
        file.flush()
        (tmp_path / "out" / "gone").unlink()
        assert measure_workspace(tmp_path, [os.getpid()]).size - before >= MIB

    assert measure_workspace(tmp_path, [os.getpid()]).size - before < MIB


@pytest.mark.skipif(os.getuid() != 0, reason="the kernel shows it to root only")
def test_a_deleted_file_counts_as_long_as_it_is_mapped(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    program = (
        "import ctypes, os, sys\n"
        "mmap = ctypes.CDLL(None).mmap\n"
        "mmap.restype, mmap.argtypes = ctypes.c_void_p, [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]\n"
        "file = os.open('gone', os.O_RDWR | os.O_CREAT)\n"
        f"os.write(file, b'x' * {MIB})\n"
        "mmap(None, 4096, 1, 1, file, 0)\n"
        "os.close(file); os.unlink('gone')\n"
        "print(flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program], cwd=tmp_path / "out", stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        child.stdout.readline()
        held = measure_workspace(tmp_path, [child.pid]).size
        child.stdin.close()

    assert held > MIB
    assert measure_workspace(tmp_path).size < MIB


def test_too_many_files_are_not_counted_to_their_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watcher, "MAX_ENTRIES", 20)
    for number in range(30):
        (tmp_path / str(number)).touch()

    assert measure_workspace(tmp_path).many
    exceeded = Bounds(
        limits_from_environ({}, MEANS), workspace=tmp_path, name="x", find_cgroup=lambda: None
    ).find_exceeded()
    assert exceeded is not None
    assert "files, directories" in exceeded.text


def test_what_lies_too_deep_to_be_measured_is_a_bound_passed(tmp_path: Path) -> None:
    nest = "import os\nfor _ in range(20): os.mkdir('d' * 250); os.chdir('d' * 250)"
    subprocess.run([sys.executable, "-c", nest], cwd=tmp_path, check=True)
    try:
        assert measure_workspace(tmp_path).hidden
        exceeded = Bounds(
            limits_from_environ({}, MEANS), workspace=tmp_path, name="x", find_cgroup=lambda: None
        ).find_exceeded()
        assert exceeded is not None
        assert (exceeded.what, exceeded.limit) == ("disk", 64 * GIB)
        assert "64 GiB" in exceeded.text
    finally:
        subprocess.run(["rm", "-rf", *tmp_path.iterdir()], check=True)


def imitated(
    root: Path, *, own: str = "/unit", controllers: str = "cpu memory pids", enabled: str = "", top: str = "/"
) -> Path:
    """The files of a worker's own group, where no kernel stands behind."""
    (root / "proc/self").mkdir(parents=True)
    (root / "proc/self/cgroup").write_text(f"0::{own}\n")
    (root / "proc/self/mountinfo").write_text(
        f"41 31 0:38 {top} /tree rw shared:9 - cgroup2 cgroup2 rw,nsdelegate\n"
    )
    folder = root / "tree" / Path(own).relative_to(top)
    folder.mkdir(parents=True)
    (folder / "cgroup.type").write_text("domain\n")
    (folder / "cgroup.controllers").write_text(controllers)
    (folder / "cgroup.subtree_control").write_text(enabled)
    (folder / "cgroup.procs").write_text("")
    return folder


def test_a_delegated_group_is_emptied_into_a_leaf_and_its_controllers_handed_down(
    tmp_path: Path,
) -> None:
    folder = imitated(tmp_path, own="/docker/abc", top="/docker/abc")
    (folder / "cgroup.procs").write_text("4711\n")

    place = find_delegated_cgroup(tmp_path)

    assert place == Cgroup(folder, BOTH)
    assert (folder / "worker" / "cgroup.procs").read_text() == "4711"
    assert (folder / "cgroup.subtree_control").read_text() == "+memory +pids"


def test_a_worker_that_was_started_in_the_leaf_uses_the_group_above_it(tmp_path: Path) -> None:
    leaf = imitated(tmp_path, own="/worker")
    for name in ("cgroup.type", "cgroup.controllers", "cgroup.procs"):
        (leaf.parent / name).write_text((leaf / name).read_text())
    (leaf.parent / "cgroup.subtree_control").write_text("memory pids")

    assert find_delegated_cgroup(tmp_path) == Cgroup(leaf.parent, BOTH)
    assert not (leaf / "worker").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may write where nothing was delegated")
def test_root_leaves_a_group_alone_that_was_not_delegated(tmp_path: Path) -> None:
    folder = imitated(tmp_path)

    assert find_delegated_cgroup(tmp_path) is None
    assert not (folder / "worker").exists()
    os.setxattr(folder, "user.delegate", b"1")
    assert find_delegated_cgroup(tmp_path) == Cgroup(folder, BOTH)


def test_a_tree_without_controllers_bounds_nothing(tmp_path: Path) -> None:
    imitated(tmp_path, own="/", controllers="cpu hugetlb")

    assert find_delegated_cgroup(tmp_path) is None
    assert find_delegated_cgroup(tmp_path / "nowhere") is None


def test_a_child_has_its_bounds_in_the_kernels_files(tmp_path: Path) -> None:
    child = Cgroup(tmp_path, BOTH).child("build-x", memory_bytes=GIB, processes=100)

    found = {path.name: path.read_text() for path in child.folder.iterdir()}
    assert found == {
        "memory.max": str(GIB),
        "memory.swap.max": "0",
        "memory.oom.group": "1",
        "pids.max": "100",
    }


def test_only_what_the_groups_own_limits_did_counts_as_passed(tmp_path: Path) -> None:
    child = Cgroup(tmp_path, BOTH).child("build-x", memory_bytes=GIB, processes=100)
    assert child.exceeded_bounds() == set()

    (child.folder / "memory.events").write_text("low 0\nhigh 0\nmax 9\noom 0\noom_kill 1\noom_group_kill 0\n")
    (child.folder / "pids.events").write_text("max 0\n")
    assert child.exceeded_bounds() == set()  # the machine was short of memory, not the child

    (child.folder / "memory.events").write_text("low 0\nhigh 0\nmax 9\noom 1\noom_kill 1\noom_group_kill 0\n")
    (child.folder / "pids.events").write_text("max 3\n")
    assert child.exceeded_bounds() == {"memory", "processes"}


def test_the_ceiling_of_memory_is_the_lowest_limit_of_all_groups_around(tmp_path: Path) -> None:
    folder = imitated(tmp_path, own="/slice/unit")
    assert memory_ceiling(tmp_path) is None

    (folder / "memory.max").write_text("max\n")
    (folder.parent / "memory.max").write_text(f"{4 * GIB}\n")
    assert memory_ceiling(tmp_path) == 4 * GIB


def test_a_limit_of_an_older_hosts_container_is_a_ceiling_too(tmp_path: Path) -> None:
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/cgroup").write_text("5:cpu,cpuacct:/\n4:memory:/docker/box\n0::/\n")
    (tmp_path / "proc/self/mountinfo").write_text(
        "30 25 0:26 /docker/box /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
    )
    folder = tmp_path / "sys/fs/cgroup/memory"
    folder.mkdir(parents=True)

    (folder / "memory.stat").write_text("cache 1\nhierarchical_memory_limit 9223372036854771712\n")
    assert memory_ceiling(tmp_path) is None
    (folder / "memory.stat").write_text(f"cache 1\nhierarchical_memory_limit {2 * GIB}\n")
    assert memory_ceiling(tmp_path) == 2 * GIB


_MANY_THREADS = """
import ctypes, sys, threading, time
for number in range(40):
    threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
ctypes.CDLL(None).prctl(15, sys.argv[1].encode())
print("ready", flush=True)
time.sleep(60)
"""


@pytest.mark.parametrize("name", ["Threads:\t0", "Uid:\t77\t77\t77", "a) R 1 0 (b"])
def test_a_process_cannot_hide_its_threads_behind_its_name(name: str) -> None:
    argv = [sys.executable, "-c", _MANY_THREADS, name]
    with subprocess.Popen(argv, stdout=subprocess.PIPE) as child:  # this interpreter
        try:
            assert child.stdout is not None
            assert child.stdout.readline() == b"ready\n"
            processes = descend(os.getpid())

            assert {os.getpid(), child.pid} <= {each.pid for each in processes}
            assert [count_threads(each) for each in processes if each.pid == child.pid] == [41]
            assert threads_of_user(os.getuid()) > 41
        finally:
            child.kill()
