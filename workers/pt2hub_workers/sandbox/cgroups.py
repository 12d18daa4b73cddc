"""Control groups: the kernel counts a child's memory and processes, whatever the child does to its ancestry.

A child's group is `build-<PID namespace>-<worker's pid>-<worker's start time>-<number>-<name>`: a later worker removes
the groups of workers that are no more. Where they can be made is for `places` to find.
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
from typing import TYPE_CHECKING, Literal

import structlog

from pt2hub_workers.sandbox.proc import read_process

if TYPE_CHECKING:
    from collections.abc import Sequence

Counted = Literal["memory", "processes"]
REMOVE_SECONDS = 5.0
"""How long the processes of a group may take to end before the group is left to a later worker: one that hangs in a
driver ends when the driver lets it."""
_POLL_SECONDS = 0.01
_SLACK = 2 << 20
"""Pages are charged many at a time, at most one huge page: a group is full before its last byte."""
_FORGOTTEN = re.compile(r"build-(\d+)-(\d+)-(\d+)-.*")
_numbers = itertools.count()
_log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Cgroup:
    """One folder of one tree.

    Attributes:
        folder: Where it is.
        version: 1 or 2.
        counts: What its controllers count.
    """

    folder: Path
    version: Literal[1, 2]
    counts: frozenset[Counted]

    def child(self, name: str, *, memory_bytes: int, processes: int) -> Cgroup:
        """Makes a group below this one.

        Args:
            name: Of its folder.
            memory_bytes: What its processes may use together, tmpfs and what cannot be written back included.
            processes: How many threads it may have; the kernel counts threads here.

        Raises:
            OSError: The kernel does not let us.
        """
        made = Cgroup(self.folder / name, self.version, self.counts)
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
        """An open file; who writes `0` to it is a member from then on."""
        return os.open(self.folder / "cgroup.procs", os.O_WRONLY | os.O_CLOEXEC)

    def members(self) -> list[int]:
        """Its processes. Those of a PID namespace that we do not see into are left out: the kernel calls them 0."""
        try:
            words = (self.folder / "cgroup.procs").read_text().split()
        except OSError:
            return []
        return [pid for pid in map(int, words) if pid > 0]

    def passed(self) -> set[Counted]:
        """Which of its bounds were passed: what the kernel killed a process for, or refused a fork.

        A process that the kernel killed because the machine, or a group above, was short of memory is none of this.
        """
        found: set[Counted] = set()
        if "memory" in self.counts and self._short_of_memory():
            found.add("memory")
        if "processes" in self.counts and self._keyed("pids.events").get("max", 0):
            found.add("processes")
        return found

    def remove(self) -> bool:
        """Ends whatever runs in it and removes it; returns whether it is gone."""
        deadline = time.monotonic() + REMOVE_SECONDS
        with contextlib.suppress(OSError):
            self._write("pids.max", "0")  # from here on nothing forks away from us
        while self.folder.is_dir():
            self._kill()
            if _removed(self.folder):
                break
            if time.monotonic() > deadline:
                _log.error(
                    "a control group cannot be removed: its processes do not end", folder=str(self.folder)
                )
                return False
            time.sleep(_POLL_SECONDS)
        return True

    def tidy(self) -> None:
        """Removes the groups below it of workers that are no more. Those of other PID namespaces are not ours to judge."""
        namespace = _namespace()
        for folder in _folders(self.folder):
            match = _FORGOTTEN.fullmatch(folder.name)
            if match and int(match[1]) == namespace:
                worker = read_process(int(match[2]))
                if worker is None or worker.ended or worker.started != int(match[3]):
                    Cgroup(folder, self.version, self.counts).remove()

    def _kill(self) -> None:
        with contextlib.suppress(OSError):  # version 2 since Linux 5.14
            self._write("cgroup.kill", "1")
        for pid in self.members():
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)

    def _bound_memory(self, count: int) -> None:
        bound, *others = (
            [("memory.max", count), ("memory.swap.max", 0), ("memory.oom.group", 1)]
            if self.version == 2  # noqa: PLR2004  # the version's number
            else [
                ("memory.limit_in_bytes", count),
                ("memory.memsw.limit_in_bytes", count),  # memory and swap together
                ("memory.oom_control", 0),  # kills, rather than lets them wait
            ]
        )
        self._write(bound[0], str(bound[1]))
        for name, value in others:
            with contextlib.suppress(OSError):  # kernels without swap accounting have no such file
                self._write(name, str(value))

    def _short_of_memory(self) -> bool:
        if self.version == 1:  # failcnt stays 0 under Linux 6.18: seen
            reached = self._number("memory.max_usage_in_bytes") + _SLACK >= self._number(
                "memory.limit_in_bytes"
            )
            return bool(reached and self._keyed("memory.oom_control").get("oom_kill", 0))
        events = self._keyed("memory.events")
        return bool(events.get("oom", 0) and events.get("oom_kill", 0))

    def _write(self, name: str, text: str) -> None:
        write(self.folder / name, text)

    def _number(self, name: str) -> int:
        try:
            return int((self.folder / name).read_text())
        except (OSError, ValueError):
            return 0

    def _keyed(self, name: str) -> dict[str, int]:
        return keyed(self.folder / name)


class Group:
    """A child's control groups, one in each tree that is ours to use."""

    def __init__(self, parents: Sequence[Cgroup], name: str, *, memory_bytes: int, processes: int) -> None:
        """Makes them; a tree in which it cannot be done is left out, and the log says so.

        Args:
            parents: Groups to make it in.
            name: Of the child, for people.
            memory_bytes: As of `Cgroup.child`.
            processes: As of `Cgroup.child`.
        """
        self._cgroups: list[Cgroup] = []
        self._doors: list[int] = []
        folder = f"{_prefix()}-{next(_numbers)}-{re.sub(r'[^A-Za-z0-9_-]', '_', name)[:80]}"
        for parent in parents:
            try:
                made = parent.child(folder, memory_bytes=memory_bytes, processes=processes)
            except OSError as error:
                _log.warning("no control group for a child", folder=str(parent.folder), error=str(error))
            else:
                self._cgroups.append(made)
                self._doors.append(made.door())

    @property
    def counts(self) -> set[Counted]:
        """What the kernel bounds."""
        return {what for cgroup in self._cgroups for what in cgroup.counts}

    def enter(self) -> None:
        """Makes the calling process a member; between fork and exec: system calls only."""
        for door in self._doors:
            os.write(door, b"0")

    def shut(self) -> None:
        """Closes the doors: nobody else is to enter."""
        while self._doors:
            os.close(self._doors.pop())

    def members(self) -> set[int]:
        """Its processes."""
        return {pid for cgroup in self._cgroups for pid in cgroup.members()}

    def passed(self) -> set[Counted]:
        """As of `Cgroup.passed`."""
        return {what for cgroup in self._cgroups for what in cgroup.passed()}

    def remove(self) -> None:
        """Ends whatever runs in it and removes it."""
        self.shut()
        for cgroup in self._cgroups:
            cgroup.remove()


def keyed(path: Path) -> dict[str, int]:
    """A file of lines `name number`; empty where it cannot be read."""
    try:
        lines = [line.split() for line in path.read_text().splitlines()]
    except OSError:
        return {}
    return {line[0]: int(line[1]) for line in lines if len(line) == 2 and line[1].isdecimal()}  # noqa: PLR2004  # a name and a number


def write(path: Path, text: str) -> None:
    """Writes one value: the kernel says at once what it thinks of it."""
    with path.open("w") as file:
        file.write(text)


def _removed(folder: Path) -> bool:
    """Removes a group and those that a child may have made in it; False while processes are still ending there."""
    try:
        for below in _folders(folder):
            _removed(below)
        folder.rmdir()
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True


def _prefix() -> str:
    own = read_process(os.getpid())
    return f"build-{_namespace()}-{os.getpid()}-{own.started if own else 0}"


def _namespace() -> int:
    return Path("/proc/self/ns/pid").stat().st_ino


def _folders(folder: Path) -> list[Path]:
    try:
        return [path for path in folder.iterdir() if path.is_dir()]
    except OSError:
        return []
