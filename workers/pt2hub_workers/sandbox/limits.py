"""Resource limits of child processes: the settings, their enforcement, and which limit was exceeded.

The kernel counts memory and processes if control groups are available (`cgroups`); otherwise a thread checks the child
several times a second (`watcher`), as it always does for the disk. What the thread counts may overshoot by the use
between two checks, 0.25 s to 1 s plus the check: a child that writes 2 GB/s may leave 2 to 4 GB more than its limit, one
that touches 8 GB of memory per second may have 2 to 8 GB more. The thread also counts what the kernel holds for the child
(`memory`); what cannot be counted is denied by the filter of system calls (`seccomp`).
"""

from __future__ import annotations

import os
import re
import resource
import shutil
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import structlog

from pt2hub.domain.sizes import SIZE_HINT, parse_size
from pt2hub.errors import BadConfiguration
from pt2hub_workers.inside.builds.shortage import format_gib
from pt2hub_workers.sandbox.cgroup_locations import memory_ceiling, own_cgroup
from pt2hub_workers.sandbox.memory import exceeds
from pt2hub_workers.sandbox.proc import count_below, descend, find_process, threads_of_user
from pt2hub_workers.sandbox.watcher import MAX_ENTRIES, MESSAGE_SECONDS, Watcher, measure_workspace

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import psutil

    from pt2hub_workers.sandbox.cgroups import Cgroup, Counted

What = Literal["memory", "disk", "processes"]
MEMORY = "PT2HUB_BUILD_MEMORY"
DISK = "PT2HUB_BUILD_DISK"
PROCESSES = "PT2HUB_BUILD_PROCESSES"
TMP = "PT2HUB_BUILD_TMP"
DEFAULT_PROCESSES = 2048
"""Threads count as well: torch starts one per core, and compilers start more."""
_GIB = 1 << 30
_MIN_MEMORY_BYTES = 256 << 20
_MIN_SPACE_BYTES = 16 << 20
_MIN_PROCESSES, _MAX_PROCESSES = 16, 4_194_304
"""Minima for an import of torch, a directory and a compiler; the maximum is Linux's PID_MAX_LIMIT."""
_BRAKE = 2
"""RLIMIT_NPROC counts all processes of the worker's user, so it is set to their number plus twice the limit."""
_MAX_SIGNALS = 4096
"""Queued signals and timers of a child's user."""
_log = structlog.get_logger()
_HINTS: dict[What, str] = {
    "memory": f"Use a smaller model or a smaller example, or ask an operator to raise the worker's {MEMORY}.",
    "disk": f"Make the model's code write less, or ask an operator to raise the worker's {DISK}.",
    "processes": "Make the model's code start fewer processes and threads, "
    f"or ask an operator to raise the worker's {PROCESSES}.",
}


@dataclass(frozen=True, slots=True)
class Limits:
    """Resource limits of one child.

    Attributes:
        memory_bytes: Memory of all its processes with its tmpfs, without the page cache (`PT2HUB_BUILD_MEMORY`).
        disk_bytes: Bytes written to its workspace, and size of one file (`PT2HUB_BUILD_DISK`).
        tmp_bytes: Size of its tmpfs on /tmp (`PT2HUB_BUILD_TMP`).
        processes: Processes and threads at a time (`PT2HUB_BUILD_PROCESSES`).
    """

    memory_bytes: int
    disk_bytes: int
    tmp_bytes: int
    processes: int = DEFAULT_PROCESSES
    open_files: int = 4096


@dataclass(frozen=True, slots=True)
class Exceeded:
    """Limit that a child exceeded.

    Attributes:
        limit: Bytes, or a number of processes or files.
    """

    what: What
    limit: int
    text: str

    @property
    def hint(self) -> str:
        """Advice that names the worker's setting."""
        return _HINTS[self.what]


@dataclass(frozen=True, slots=True)
class AvailableResources:
    """Resources that a worker divides among its builds.

    Attributes:
        memory_bytes: Memory of the machine, or the worker's own limit if that is lower.
    """

    memory_bytes: int
    free_bytes: int
    concurrency: int = 1

    @classmethod
    def of_worker(cls, environ: Mapping[str, str]) -> AvailableResources:
        """Return the resources of this process.

        Args:
            environ: Its environment, for PT2HUB_CONCURRENCY and PT2HUB_SCRATCH.
        """
        ram = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        scratch = Path(environ.get("PT2HUB_SCRATCH") or tempfile.gettempdir()).absolute()
        made = next(folder for folder in (scratch, *scratch.parents) if folder.exists())
        builds = environ.get("PT2HUB_CONCURRENCY") or "1"
        count = int(builds) if re.fullmatch(r"\d{1,4}", builds) else 1  # `config` refuses an invalid value
        return cls(min(ram, memory_ceiling() or ram), shutil.disk_usage(made).free, max(1, count))


def limits_from_environ(environ: Mapping[str, str], available: AvailableResources | None = None) -> Limits:
    """Read the worker's limits; unset ones depend on the machine.

    Defaults: 80 % of the memory, divided by the concurrency; 64 GiB of disk, but at most half of the free space divided
    by the concurrency; 2 GiB of /tmp, but at most a quarter of the memory; 2048 processes.
    """
    available = available or AvailableResources.of_worker(environ)
    memory = (
        _size(environ, MEMORY, least=_MIN_MEMORY_BYTES)
        or available.memory_bytes * 4 // 5 // available.concurrency
    )
    tmp = _size(environ, TMP, least=_MIN_SPACE_BYTES) or min(2 * _GIB, memory // 4)
    if tmp > memory:
        raise BadConfiguration(
            f"a build's /tmp lies in memory, and {format_gib(tmp)} exceed its memory limit of {format_gib(memory)}",
            where=TMP,
            hint=f"Lower it, or raise {MEMORY}.",
        )
    return Limits(
        memory_bytes=memory,
        disk_bytes=_size(environ, DISK, least=_MIN_SPACE_BYTES)
        or min(64 * _GIB, available.free_bytes // 2 // available.concurrency),
        tmp_bytes=tmp,
        processes=_count(environ.get(PROCESSES) or str(DEFAULT_PROCESSES)),
    )


class Bounds:
    """Enforcement of one child's limits: `prepare`, start it with `in_child`, `watch`, `find_exceeded`, `close`.

    Args:
        workspace: Path of the child's workspace, whose disk use is watched; None without one.
    """

    def __init__(
        self,
        limits: Limits,
        *,
        workspace: Path | None,
        name: str,
        find_cgroup: Callable[[], Cgroup | None] = own_cgroup,
    ) -> None:
        self._limits = limits
        self._workspace = workspace
        self._name = name
        self._find_cgroup = find_cgroup
        self._group: Cgroup | None = None
        self._door: int | None = None
        self._rlimits: dict[int, int] = {}
        self._watcher: Watcher | None = None
        self._pid = 0
        self._in_messages_since: float | None = None
        self._found: Exceeded | None = None
        self._lock = threading.Lock()
        self._closed = False

    @property
    def stopped_itself(self) -> bool:
        """Whether the child was killed because its main process stopped itself (SIGSTOP, SIGTSTP)."""
        return self._watcher is not None and self._watcher.stopped_itself

    def prepare(self) -> None:
        """Create the child's control group if possible, before the child starts."""
        limits = self._limits
        self._make_group()
        self._rlimits = {
            resource.RLIMIT_CORE: 0,
            resource.RLIMIT_NOFILE: limits.open_files,
            resource.RLIMIT_FSIZE: limits.disk_bytes,
            resource.RLIMIT_MSGQUEUE: 0,
            resource.RLIMIT_SIGPENDING: _MAX_SIGNALS,
        }
        if "processes" not in self._kernel_bounds:
            # A brake between two checks. It does not apply to root: the kernel exempts user 0 (copy_process in
            # kernel/fork.c), also in a user namespace.
            others = threads_of_user(os.getuid())
            self._rlimits[resource.RLIMIT_NPROC] = others + _BRAKE * limits.processes

    def in_child(self) -> None:
        """Apply the limits to the calling process, between fork and exec, by system calls only.

        Never RLIMIT_AS: CUDA maps terabytes.
        """
        if self._door is not None:
            os.write(self._door, b"0")
        for which, value in self._rlimits.items():
            _, hard = resource.getrlimit(which)
            bound = value if hard == resource.RLIM_INFINITY else min(value, hard)
            resource.setrlimit(which, (bound, bound))

    def watch(self, pid: int, strike: Callable[[], None]) -> None:
        """Watch the child in a thread that ends with it.

        Args:
            strike: Kills the child's process group; called once, from the thread, when a limit is exceeded.
        """
        self._shut_door()
        self._pid = pid
        self._watcher = Watcher(
            pid,
            name=self._name,
            processes=lambda: self._processes(pid),
            passed=self._is_past,
            strike=strike,
        )

    def find_exceeded(self) -> Exceeded | None:
        """Return the first exceeded limit, after one more check: a child may end between two checks of the watcher."""
        if self._found is None and not self._closed:
            self._keep(self._find_refused() or self._overfull(()))
        return self._found

    def close(self) -> None:
        """Stop watching, kill the processes in the child's control group, and remove the group.

        The result of `find_exceeded` stays.
        """
        if self._watcher is not None:
            self._watcher.stop()
        self._shut_door()
        self.find_exceeded()
        with self._lock:
            group, self._group = self._group, None
            self._closed = True
        if group is not None:
            group.remove()

    @property
    def _kernel_bounds(self) -> frozenset[Counted]:
        """Limits that the kernel enforces."""
        return self._group.counts if self._group is not None else frozenset()

    def _make_group(self) -> None:
        parent, limits = self._find_cgroup(), self._limits
        if parent is None:
            return
        try:
            self._group = parent.child(
                self._name, memory_bytes=limits.memory_bytes, processes=limits.processes
            )
        except OSError as error:
            _log.warning(
                "cannot create a control group for a child process",
                folder=str(parent.folder),
                error=str(error),
            )
        else:
            self._door = self._group.door()

    def _shut_door(self) -> None:
        """Close the group to other processes."""
        door, self._door = self._door, None
        if door is not None:
            os.close(door)

    def _processes(self, pid: int) -> list[psutil.Process]:
        group = self._group
        if group is None or not group.counts:
            return descend(pid)
        found = [find_process(member) for member in group.members()]
        return [process for process in found if process is not None]

    def _is_past(self, processes: Sequence[psutil.Process]) -> bool:
        found = self._find_refused() or self._find_overuse(processes)
        self._keep(found or self._overfull([process.pid for process in processes]))
        return self._found is not None

    def _keep(self, found: Exceeded | None) -> None:
        with self._lock:
            self._found = self._found or found

    def _find_refused(self) -> Exceeded | None:
        """Return a limit that the kernel enforced."""
        group = self._group
        passed = group.exceeded_bounds() if group is not None else set()
        if "memory" in passed:
            return self._of_memory()
        return self._of_processes() if "processes" in passed else None

    def _find_overuse(self, processes: Sequence[psutil.Process]) -> Exceeded | None:
        """Return an exceeded limit that the kernel does not enforce."""
        counted = self._kernel_bounds
        if "processes" not in counted and count_below(self._pid) > self._limits.processes:
            return self._of_processes()
        if "memory" in counted or not exceeds([each.pid for each in processes], self._limits.memory_bytes):
            return None
        return self._of_memory()

    def _overfull(self, pids: Sequence[int]) -> Exceeded | None:
        if self._workspace is None:
            return None
        usage, limit = measure_workspace(self._workspace, pids), self._limits.disk_bytes
        if usage.size >= limit:  # a single file stops there (RLIMIT_FSIZE)
            return Exceeded("disk", limit, f"The build exceeded its disk limit of {format_gib(limit)}.")
        if usage.many:
            return Exceeded(
                "disk",
                MAX_ENTRIES,
                f"The build has more than {MAX_ENTRIES:,} files, directories, open files and file locks.",
            )
        if usage.hidden or self._stay_in_messages(in_messages=usage.in_messages):
            what = "created unreadable directories" if usage.hidden else "leaves files in unread messages"
            text = f"The build {what}, so its disk limit of {format_gib(limit)} cannot be checked."
            return Exceeded("disk", limit, text)
        return None

    def _stay_in_messages(self, *, in_messages: bool) -> bool:
        """Return whether every check of the last seconds found files in messages."""
        now = time.monotonic()
        self._in_messages_since = (self._in_messages_since or now) if in_messages else None
        return self._in_messages_since is not None and now - self._in_messages_since >= MESSAGE_SECONDS

    def _of_memory(self) -> Exceeded:
        limit = self._limits.memory_bytes
        return Exceeded("memory", limit, f"The build exceeded its memory limit of {format_gib(limit)}.")

    def _of_processes(self) -> Exceeded:
        limit = self._limits.processes
        return Exceeded("processes", limit, f"The build exceeded its limit of {limit} processes and threads.")


def _size(environ: Mapping[str, str], name: str, *, least: int) -> int | None:
    text = environ.get(name)
    if not text:
        return None
    value = parse_size(text)
    if value is None or value < least:
        raise BadConfiguration(
            f"invalid size {text[:80]!r}: must be at least {least >> 20} MiB",
            where=name,
            hint=SIZE_HINT,
        )
    return value


def _count(text: str) -> int:
    if not re.fullmatch(r"\d{1,7}", text) or not _MIN_PROCESSES <= int(text) <= _MAX_PROCESSES:
        raise BadConfiguration(
            f"must be a whole number from {_MIN_PROCESSES} to {_MAX_PROCESSES}, got {text[:80]!r}",
            where=PROCESSES,
            hint=f"It is the number of processes and threads of one build; the default is {DEFAULT_PROCESSES}.",
        )
    return int(text)
