"""Watcher thread of a child: kills it when it exceeds a limit or stops itself."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import stat
import threading
import time
from typing import TYPE_CHECKING, NamedTuple

import psutil
import structlog

from pt2hub_workers.sandbox.memory import BLOCK
from pt2hub_workers.sandbox.proc import (
    OpenFile,
    deleted_mappings,
    find_process,
    is_deleted,
    is_running,
    is_stopped,
    main_of,
    open_files,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path


SHORTEST_SECONDS = 0.25
LONGEST_SECONDS = 1.0
"""Interval of checks: ten times the duration of the last one, within these bounds."""
STOPPED_SECONDS = 2.0
"""How long a child's main process may stay stopped."""
MAX_ENTRIES = 200_000
"""Files, directories, open files and file locks that one check counts, in about a second; a compile leaves a few
hundred."""
MESSAGE_SECONDS = 5.0
"""How long there may be files in unread messages between processes: what they hold is not seen."""
WORKERS_OWN = ("in", "held")
"""Directories of a workspace that the worker fills: with weights, which may exceed all that a build writes, and with
copies of results."""
_BARRED = (errno.EACCES, errno.EPERM, errno.ENAMETOOLONG)
_IN_MESSAGES = re.compile(rb"^scm_fds:\s+([1-9]\d*)$", re.MULTILINE)
"""Line of a socket's entry in fdinfo, since Linux 5.6."""
_LOCK = b"\nlock:"
_IDLE_SHARE = 10
_JOIN_SECONDS = 5.0
_log = structlog.get_logger()


class Usage(NamedTuple):
    """Disk usage of a workspace.

    Attributes:
        size: Counted bytes.
        many: Whether there are more than `MAX_ENTRIES` files and directories; the rest was not counted.
        hidden: Whether there are unreadable directories, by their mode or a path that is too long.
        in_messages: Whether there are files in unread messages between processes.
    """

    size: int
    many: bool
    hidden: bool
    in_messages: bool = False


def measure_workspace(workspace: Path, pids: Iterable[int] = ()) -> Usage:
    """Return the disk usage of a child's workspace.

    Blocks count, not lengths: a hole in a sparse file is free. A file with several links counts once. Deleted files that
    the processes have open count as well, and mapped ones if the worker is root. `in/` and `held/` do not count.
    """
    tally = _Tally()
    folders = [str(workspace)]
    while folders and not tally.full:
        folder = folders.pop()
        found = tally.entries_of(folder)
        if folder == str(workspace):
            found = (entry for entry in found if entry.name not in WORKERS_OWN)
        folders += [entry.path for entry in found if tally.add(entry)]
    held = tuple(pids)
    tally.add_deleted(tally.look_into(open_files(held)))
    tally.add_deleted(deleted_mappings(held))
    return Usage(tally.size, tally.full, tally.hidden, tally.in_messages)


class _Tally:
    """Running total of the disk usage."""

    def __init__(self) -> None:
        self.size = 0
        self.entries = 0
        self.hidden = False
        self.in_messages = False
        self._devices: set[int] = set()
        self._seen: set[tuple[int, int]] = set()

    @property
    def full(self) -> bool:
        return self.entries > MAX_ENTRIES

    def entries_of(self, folder: str) -> Iterator[os.DirEntry[str]]:
        try:
            with os.scandir(folder) as found:
                for entry in found:
                    if self.full:
                        return
                    yield entry
        except OSError as error:
            self._miss(error)

    def add(self, entry: os.DirEntry[str]) -> bool:
        """Count an entry; return whether it is a directory."""
        self.entries += 1
        try:
            status = entry.stat(follow_symlinks=False)
            folder = entry.is_dir(follow_symlinks=False)
        except OSError as error:
            self._miss(error)
            return False
        self._devices.add(status.st_dev)
        self._take(status, several=status.st_nlink > 1 and not folder)
        return folder

    def add_deleted(self, files: Iterable[os.stat_result]) -> None:
        for status in files:
            self.entries += 1
            if self.full:
                return
            if (
                is_deleted(status) and status.st_dev in self._devices
            ):  # others lie in memory or outside this workspace
                self._take(status, several=True)

    def look_into(self, files: Iterable[OpenFile]) -> Iterator[os.stat_result]:
        """Yield open files, and count what belongs to them: locks, and files in messages."""
        for status, info in files:
            if stat.S_ISREG(status.st_mode):
                self.entries += _read(info).count(_LOCK)
            elif stat.S_ISSOCK(status.st_mode) and _IN_MESSAGES.search(_read(info)):
                self.in_messages = True
            yield status

    def _take(self, status: os.stat_result, *, several: bool) -> None:
        if several:
            key = (status.st_dev, status.st_ino)
            if key in self._seen:
                return
            self._seen.add(key)
        self.size += status.st_blocks * BLOCK

    def _miss(self, error: OSError) -> None:
        if error.errno in _BARRED:  # after any other error it was removed meanwhile
            self.hidden = True


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:  # closed by now
        return b""


class Watcher:
    """Thread that watches a process and ends with it."""

    def __init__(
        self,
        pid: int,
        *,
        name: str,
        processes: Callable[[], Sequence[psutil.Process]],
        passed: Callable[[Sequence[psutil.Process]], bool],
        strike: Callable[[], None],
    ) -> None:
        self.stopped_itself = False
        self._pid = pid
        self._first = find_process(pid)
        self._processes = processes
        self._passed = passed
        self._strike = strike
        self._stopped_since: float | None = None
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True, name=f"bounds-{name}")
        self._thread.start()

    def stop(self) -> None:
        """Stop watching."""
        self._over.set()
        if threading.current_thread() is not self._thread:
            self._thread.join(_JOIN_SECONDS)

    def _run(self) -> None:
        try:
            self._watch()
        except Exception:  # noqa: BLE001  # an unwatched child would have no limits
            _log.exception("killing a child process that cannot be watched", pid=self._pid)
            self._strike()

    def _watch(self) -> None:
        pause = SHORTEST_SECONDS
        while not self._over.wait(pause):
            began = time.monotonic()
            if self._first is None or not is_running(self._first):
                return
            processes = self._processes()
            if self._passed(processes) or self._is_stopped(processes):
                self._end(processes)
                return
            took = time.monotonic() - began
            pause = min(LONGEST_SECONDS, max(SHORTEST_SECONDS, _IDLE_SHARE * took))

    def _is_stopped(self, processes: Iterable[psutil.Process]) -> bool:
        main = main_of(processes, self._pid)
        if main is None or not is_stopped(main):
            self._stopped_since = None
            return False
        now = time.monotonic()
        self._stopped_since = self._stopped_since or now
        self.stopped_itself = now - self._stopped_since >= STOPPED_SECONDS
        return self.stopped_itself

    def _end(self, processes: Iterable[psutil.Process]) -> None:
        """Kill the child's group, and known processes that left it."""
        self._strike()
        for process in processes:
            with contextlib.suppress(psutil.Error):  # psutil checks that the id still belongs to the process
                process.kill()
