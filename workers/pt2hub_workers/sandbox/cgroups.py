"""Control groups (version 2), by which the kernel counts a child's memory and processes, even reparented ones.

A child's group is `build-<PID namespace>-<worker's pid>-<worker's start time>-<number>-<name>`, so that a later worker
can remove the groups of workers that have ended. `cgroup_locations` finds where groups can be created.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import signal
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import structlog

from pt2hub_workers.sandbox.proc import find_process, started_ticks

Counted = Literal["memory", "processes"]
REMOVE_SECONDS = 5.0
"""Time to wait for the processes of a group, which may hang in a driver, before the group is left to a later worker."""
_POLL_SECONDS = 0.01
_FORGOTTEN = re.compile(r"build-(\d+)-(\d+)-(\d+)-.*")
_numbers = itertools.count()
_log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Cgroup:
    """Control group with the resources that the kernel limits in it."""

    folder: Path
    counts: frozenset[Counted]

    def child(self, name: str, *, memory_bytes: int, processes: int) -> Cgroup:
        """Create a group below this one for a child process.

        Args:
            processes: Limit of threads, which the kernel counts here.
        """
        folder = f"{_prefix()}-{next(_numbers)}-{re.sub(r'[^A-Za-z0-9_-]', '_', name)[:80]}"
        made = Cgroup(self.folder / folder, self.counts)
        made.folder.mkdir()
        try:
            if "memory" in self.counts:
                made._bound_memory(memory_bytes)
            if "processes" in self.counts:
                made._write("pids.max", str(processes))
        except OSError:
            made.remove()
            raise
        return made

    def door(self) -> int:
        """Return a descriptor; a process that writes `0` to it becomes a member."""
        return os.open(self.folder / "cgroup.procs", os.O_WRONLY | os.O_CLOEXEC)

    def members(self) -> list[int]:
        """Return the ids of its processes, except those of an invisible PID namespace, which the kernel reports as 0."""
        try:
            words = (self.folder / "cgroup.procs").read_text().split()
        except OSError:
            return []
        return [pid for pid in map(int, words) if pid > 0]

    def exceeded_bounds(self) -> set[Counted]:
        """Return the exceeded limits, for which the kernel killed a process or refused a fork.

        Processes killed because the machine, or a group above, was short of memory do not count.
        """
        found: set[Counted] = set()
        if "memory" in self.counts and self._short_of_memory():
            found.add("memory")
        if "processes" in self.counts and self._read_keyed("pids.events").get("max", 0):
            found.add("processes")
        return found

    def remove(self) -> bool:
        """Kill its processes and remove it; return whether it is removed."""
        deadline = time.monotonic() + REMOVE_SECONDS
        with contextlib.suppress(OSError):
            self._write("pids.max", "0")  # stops forks from here on
        while self.folder.is_dir():
            self._kill()
            if _remove(self.folder):
                break
            if time.monotonic() > deadline:
                _log.error("cannot remove a control group: its processes do not end", folder=str(self.folder))
                return False
            time.sleep(_POLL_SECONDS)
        return True

    def tidy(self) -> None:
        """Remove the groups of ended workers of this PID namespace below this group."""
        namespace = _namespace()
        for folder in _folders(self.folder):
            match = _FORGOTTEN.fullmatch(folder.name)
            if match and int(match[1]) == namespace:
                worker = int(match[2])
                if find_process(worker) is None or started_ticks(worker) != int(match[3]):
                    Cgroup(folder, self.counts).remove()

    def _kill(self) -> None:
        with contextlib.suppress(OSError):  # since Linux 5.14
            self._write("cgroup.kill", "1")
        for pid in self.members():
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)

    def _bound_memory(self, count: int) -> None:
        self._write("memory.max", str(count))
        for name, value in (("memory.swap.max", "0"), ("memory.oom.group", "1")):
            with contextlib.suppress(OSError):  # kernels without swap accounting have no such file
                self._write(name, value)

    def _short_of_memory(self) -> bool:
        events = self._read_keyed("memory.events")
        return bool(events.get("oom", 0) and events.get("oom_kill", 0))

    def _write(self, name: str, text: str) -> None:
        write(self.folder / name, text)

    def _read_keyed(self, name: str) -> dict[str, int]:
        return read_keyed(self.folder / name)


def read_keyed(path: Path) -> dict[str, int]:
    """Return a file of lines `name number`; empty if it cannot be read."""
    try:
        lines = [line.split() for line in path.read_text().splitlines()]
    except OSError:
        return {}
    return {line[0]: int(line[1]) for line in lines if len(line) == 2 and line[1].isdecimal()}  # noqa: PLR2004  # a name and a number


def write(path: Path, text: str) -> None:
    """Write one value, which the kernel accepts or refuses at once."""
    with path.open("w") as file:
        file.write(text)


def _remove(folder: Path) -> bool:
    """Remove a group and those that a child created in it; return False while its processes are ending."""
    try:
        for below in _folders(folder):
            _remove(below)
        folder.rmdir()
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True


def _prefix() -> str:
    return f"build-{_namespace()}-{os.getpid()}-{started_ticks(os.getpid()) or 0}"


def _namespace() -> int:
    return Path("/proc/self/ns/pid").stat().st_ino


def _folders(folder: Path) -> list[Path]:
    try:
        return [path for path in folder.iterdir() if path.is_dir()]
    except OSError:
        return []
