"""What a child may use of the machine: the settings, the bounds of one child, and what it passed.

Memory and processes are counted by the kernel where control groups are to be had (`cgroups`), else by a thread that
looks at the child several times a second (`watching`), as is the disk always. What that thread counts may overshoot
by what a child can use between two looks, 0.25 s to 1 s and the look itself: one that writes 2 GB/s may leave 2 to 4 GB
more than its limit, one that touches 8 GB of memory a second may have 2 to 8 GB more. The thread sees what lies in a
tmpfs of the child's own, but not what lies in a memfd that no process has mapped.
"""

from __future__ import annotations

import os
import re
import resource
import shutil
import tempfile
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pt2hub.errors import BadConfiguration
from pt2hub_workers.inside.shortage import gib
from pt2hub_workers.sandbox.cgroups import Group
from pt2hub_workers.sandbox.places import memory_ceiling, own_places
from pt2hub_workers.sandbox.proc import descend, footprint, own_tmpfs, read_processes, threads_of_user
from pt2hub_workers.sandbox.watching import MAX_ENTRIES, Watcher, measure_room

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pt2hub_workers.sandbox.cgroups import Cgroup
    from pt2hub_workers.sandbox.proc import Process

What = Literal["memory", "disk", "processes"]
MEMORY = "PT2HUB_BUILD_MEMORY"
DISK = "PT2HUB_BUILD_DISK"
PROCESSES = "PT2HUB_BUILD_PROCESSES"
TMP = "PT2HUB_BUILD_TMP"
DEFAULT_PROCESSES = 2048
"""Threads count as well: torch starts one for each core, and compilers beside."""
_UNITS = {"kib": 10, "mib": 20, "gib": 30, "tib": 40}
_GIB = 1 << 30
_LEAST_MEMORY = 256 << 20
_LEAST_SPACE = 16 << 20
_LEAST_PROCESSES, _MOST_PROCESSES = 16, 4_194_304
"""An import of torch, a folder, a compiler, and the largest number of processes that Linux has (PID_MAX_LIMIT)."""
_BRAKE = 2
"""RLIMIT_NPROC counts all that runs as the worker's user, so that it is set to what runs there and twice the limit."""
_HINTS: dict[What, str] = {
    "memory": f"Use a smaller model or a smaller example; an operator can raise {MEMORY} of the worker.",
    "disk": f"Let the model's code write less; an operator can raise {DISK} of the worker.",
    "processes": "Let the model's code start fewer processes and threads; "
    f"an operator can raise {PROCESSES} of the worker.",
}


@dataclass(frozen=True, slots=True)
class Limits:
    """What one child may use.

    Attributes:
        memory_bytes: Memory of all its processes together, its tmpfs included, page cache not (`PT2HUB_BUILD_MEMORY`).
        disk_bytes: What it may write to its room, and the length of one file (`PT2HUB_BUILD_DISK`).
        tmp_bytes: Size of its tmpfs on /tmp (`PT2HUB_BUILD_TMP`).
        processes: Processes and threads at a time (`PT2HUB_BUILD_PROCESSES`).
        open_files: Open files of one process.
    """

    memory_bytes: int
    disk_bytes: int
    tmp_bytes: int
    processes: int = DEFAULT_PROCESSES
    open_files: int = 4096


@dataclass(frozen=True, slots=True)
class Exceeded:
    """A bound that a child passed.

    Attributes:
        what: Which.
        limit: Where it is: bytes, or a number of processes or files.
        text: What happened, a sentence for the publisher.
    """

    what: What
    limit: int
    text: str

    @property
    def hint(self) -> str:
        """What to do next; it names the worker's setting."""
        return _HINTS[self.what]


@dataclass(frozen=True, slots=True)
class Means:
    """What a worker has to share out among its builds.

    Attributes:
        memory_bytes: The machine's memory, or the worker's own limit where that is lower.
        free_bytes: Free space where the rooms are.
        concurrency: Builds at a time.
    """

    memory_bytes: int
    free_bytes: int
    concurrency: int = 1

    @classmethod
    def of_worker(cls, environ: Mapping[str, str]) -> Means:
        """Those of this process.

        Args:
            environ: Its environment; PT2HUB_CONCURRENCY and PT2HUB_SCRATCH are read from it.
        """
        ram = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        scratch = Path(environ.get("PT2HUB_SCRATCH") or tempfile.gettempdir()).absolute()
        made = next(folder for folder in (scratch, *scratch.parents) if folder.exists())
        builds = environ.get("PT2HUB_CONCURRENCY") or "1"
        count = (
            int(builds) if re.fullmatch(r"\d{1,4}", builds) else 1
        )  # a wrong value is refused where it is read
        return cls(min(ram, memory_ceiling() or ram), shutil.disk_usage(made).free, max(1, count))


def limits_from_environ(environ: Mapping[str, str], means: Means | None = None) -> Limits:
    """Reads the worker's limits; those that are not set follow from the machine.

    Defaults: 80 % of the memory, divided by the builds at a time; 64 GiB of disk, or half of what is free where that is
    less, divided likewise; 2 GiB of /tmp, or a quarter of the memory where that is less; 2048 processes.

    Args:
        environ: The worker's environment.
        means: What the worker has; found on this machine where omitted.

    Raises:
        BadConfiguration: A value is wrong; the error names the variable.
    """
    means = means or Means.of_worker(environ)
    memory = _size(environ, MEMORY, least=_LEAST_MEMORY) or means.memory_bytes * 4 // 5 // means.concurrency
    tmp = _size(environ, TMP, least=_LEAST_SPACE) or min(2 * _GIB, memory // 4)
    if tmp > memory:
        raise BadConfiguration(
            f"{gib(tmp)} are more than the {gib(memory)} of memory that a build may use, and /tmp lies in memory",
            where=TMP,
            hint=f"Lower it, or raise {MEMORY}.",
        )
    return Limits(
        memory_bytes=memory,
        disk_bytes=_size(environ, DISK, least=_LEAST_SPACE)
        or min(64 * _GIB, means.free_bytes // 2 // means.concurrency),
        tmp_bytes=tmp,
        processes=_count(environ.get(PROCESSES) or str(DEFAULT_PROCESSES)),
    )


class Bounds:
    """The bounds of one child: `prepare`, start it with `in_child`, `watch`, ask `exceeded`, `close`."""

    def __init__(
        self, limits: Limits, *, room: Path | None, name: str, places: Sequence[Cgroup] | None = None
    ) -> None:
        """Describes them; nothing is made yet.

        Args:
            limits: What it may use.
            room: The worker's view of the child's room, whose disk use is watched; None for a child without one.
            name: Of the child, for people.
            places: Control groups to make the child's own in; the worker's own where omitted.
        """
        self._limits = limits
        self._room = room
        self._name = name
        self._places = places
        self._group: Group | None = None
        self._rlimits: dict[int, int] = {}
        self._watcher: Watcher | None = None
        self._found: Exceeded | None = None
        self._lock = threading.Lock()
        self._closed = False

    @property
    def stopped_itself(self) -> bool:
        """Whether it was struck because its main process had stopped (SIGSTOP, SIGTSTP): no bound, and nobody's limit."""
        return self._watcher is not None and self._watcher.stopped_itself

    def prepare(self) -> None:
        """Makes the child's control groups, where there are any to be had, before it is started."""
        limits = self._limits
        places = own_places() if self._places is None else self._places
        self._group = Group(places, self._name, memory_bytes=limits.memory_bytes, processes=limits.processes)
        self._rlimits = {
            resource.RLIMIT_CORE: 0,
            resource.RLIMIT_NOFILE: limits.open_files,
            resource.RLIMIT_FSIZE: limits.disk_bytes,
        }
        if "processes" not in self._group.counts:
            # A brake for the time between two looks. None for root: the kernel exempts user 0 (copy_process in its
            # kernel/fork.c), also behind a user namespace.
            others = threads_of_user(os.getuid())
            self._rlimits[resource.RLIMIT_NPROC] = others + _BRAKE * limits.processes

    def in_child(self) -> None:
        """Bounds the calling process: between fork and exec, system calls only.

        Never RLIMIT_AS: CUDA maps terabytes.
        """
        if self._group is not None:
            self._group.enter()
        for which, value in self._rlimits.items():
            _, hard = resource.getrlimit(which)
            bound = value if hard == resource.RLIM_INFINITY else min(value, hard)
            resource.setrlimit(which, (bound, bound))

    def watch(self, pid: int, strike: Callable[[], None]) -> None:
        """Watches the child in a thread that ends with it.

        Args:
            pid: The process that was started.
            strike: Kills it and its process group; called once, from the thread, when a bound is passed.
        """
        if self._group is not None:
            self._group.shut()
        self._watcher = Watcher(
            pid,
            name=self._name,
            processes=lambda: self._processes(pid),
            passed=self._passed,
            strike=strike,
        )

    def exceeded(self) -> Exceeded | None:
        """The first bound that was passed. It looks once more: a child may end before the watcher's next look."""
        if self._found is None and not self._closed:
            self._keep(self._refused() or self._overfull(()))
        return self._found

    def close(self) -> None:
        """Ends the watch, and whatever still runs in the child's control groups, and removes those.

        What `exceeded` says stays.
        """
        if self._watcher is not None:
            self._watcher.stop()
        self.exceeded()
        with self._lock:
            group, self._group = self._group, None
            self._closed = True
        if group is not None:
            group.remove()

    def _processes(self, pid: int) -> list[Process]:
        group = self._group
        return read_processes(group.members()) if group is not None and group.counts else descend(pid)

    def _passed(self, processes: Sequence[Process]) -> bool:
        found = self._refused() or self._overused(processes)
        self._keep(found or self._overfull([process.pid for process in processes]))
        return self._found is not None

    def _keep(self, found: Exceeded | None) -> None:
        with self._lock:
            self._found = self._found or found

    def _refused(self) -> Exceeded | None:
        """What the kernel refused it."""
        group = self._group
        passed = group.passed() if group is not None else set()
        if "memory" in passed:
            return self._of_memory()
        return self._of_processes() if "processes" in passed else None

    def _overused(self, processes: Sequence[Process]) -> Exceeded | None:
        """What it used of that which the kernel does not count for us."""
        group = self._group
        counted = group.counts if group is not None else set()
        if "processes" not in counted and sum(each.threads for each in processes) > self._limits.processes:
            return self._of_processes()
        if "memory" in counted:
            return None
        files = own_tmpfs(processes[-1].pid) if processes else 0  # the last one's parents may be bubblewrap
        if sum(each.resident for each in processes) + files <= self._limits.memory_bytes:
            return None  # what is resident counts shared pages several times: an upper bound, and cheap
        used = sum(footprint(each.pid) for each in processes) + files
        return self._of_memory() if used > self._limits.memory_bytes else None

    def _overfull(self, pids: Sequence[int]) -> Exceeded | None:
        if self._room is None:
            return None
        usage, limit = measure_room(self._room, pids), self._limits.disk_bytes
        if usage.size >= limit:  # a single file ends there: RLIMIT_FSIZE
            return Exceeded("disk", limit, f"The build wrote more to disk than it may: {gib(limit)}.")
        if usage.many:
            return Exceeded("disk", MAX_ENTRIES, f"The build left more than {MAX_ENTRIES} files and folders.")
        if usage.hidden:
            text = f"The build made folders that nobody can look into, so that its {gib(limit)} of disk cannot be kept."
            return Exceeded("disk", limit, text)
        return None

    def _of_memory(self) -> Exceeded:
        limit = self._limits.memory_bytes
        return Exceeded("memory", limit, f"The build needed more memory than it may use: {gib(limit)}.")

    def _of_processes(self) -> Exceeded:
        limit = self._limits.processes
        return Exceeded("processes", limit, f"The build ran more processes and threads than it may: {limit}.")


def _size(environ: Mapping[str, str], name: str, *, least: int) -> int | None:
    text = environ.get(name)
    if not text:
        return None
    match = re.fullmatch(r"(\d{1,9}(?:\.\d{1,3})?)\s*([kmgt]ib)", text.strip(), re.IGNORECASE)
    value = int(float(match[1]) * (1 << _UNITS[match[2].lower()])) if match else -1
    if value < least:
        raise BadConfiguration(
            f"{text[:80]!r} is no size of at least {least >> 20} MiB",
            where=name,
            hint="Write a number with its unit, KiB, MiB, GiB or TiB: 16GiB.",
        )
    return value


def _count(text: str) -> int:
    if not re.fullmatch(r"\d{1,7}", text) or not _LEAST_PROCESSES <= int(text) <= _MOST_PROCESSES:
        raise BadConfiguration(
            f"{text[:80]!r} is no whole number from {_LEAST_PROCESSES} to {_MOST_PROCESSES}",
            where=PROCESSES,
            hint=f"It is the number of processes and threads of one build; the default is {DEFAULT_PROCESSES}.",
        )
    return int(text)
