"""Looks at a running child several times a second, and strikes it when it has passed a bound or stopped itself."""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import threading
import time
from typing import TYPE_CHECKING, NamedTuple

import structlog

from pt2hub_workers.sandbox.proc import BLOCK, deleted, deleted_mappings, main_of, open_files, read_process

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

    from pt2hub_workers.sandbox.proc import Process

SHORTEST_SECONDS = 0.25
LONGEST_SECONDS = 1.0
"""Between two looks; a watcher waits ten times as long as its last look took, within these."""
STOPPED_SECONDS = 2.0
"""How long a child's main process may be stopped."""
MAX_ENTRIES = 200_000
"""Files, folders and open files that one look counts, about a second's work; a compile leaves some hundred."""
WORKERS_OWN = ("in", "held")
"""The folders of a room that the worker fills: with weights that may be larger than all that a build writes, and with
copies of what it took, at most one of each result."""
_BARRED = (errno.EACCES, errno.EPERM, errno.ENAMETOOLONG)
_IDLE_SHARE = 10
_JOIN_SECONDS = 5.0
_log = structlog.get_logger()


class Usage(NamedTuple):
    """What a room takes of the disk.

    Attributes:
        size: Bytes, as far as they were counted.
        many: Whether there are more than `MAX_ENTRIES` files and folders; the others were not counted.
        hidden: Whether there are folders that cannot be looked into: their mode forbids it, or their path is too long.
    """

    size: int
    many: bool
    hidden: bool


def measure_room(room: Path, pids: Iterable[int] = ()) -> Usage:
    """Counts what a child has put into its room.

    Blocks count, not lengths: a hole in a sparse file is free. A file with several names counts once. Deleted files
    that the given processes hold open count, too, and those that they have mapped where the worker is root; one that
    only a message between two processes holds is not seen. What lies in `in/` and `held/` is the worker's.

    Args:
        room: Its folder.
        pids: The child's processes.
    """
    tally = _Tally()
    folders = [str(room)]
    while folders and not tally.full:
        folder = folders.pop()
        found = tally.entries_of(folder)
        if folder == str(room):
            found = (entry for entry in found if entry.name not in WORKERS_OWN)
        folders += [entry.path for entry in found if tally.add(entry)]
    held = tuple(pids)
    tally.add_deleted(open_files(held))
    tally.add_deleted(deleted_mappings(held))
    return Usage(tally.size, tally.full, tally.hidden)


class _Tally:
    """The sum so far."""

    def __init__(self) -> None:
        self.size = 0
        self.entries = 0
        self.hidden = False
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
            self._missed(error)

    def add(self, entry: os.DirEntry[str]) -> bool:
        """Counts an entry; returns whether it is a folder."""
        self.entries += 1
        try:
            status = entry.stat(follow_symlinks=False)
            folder = entry.is_dir(follow_symlinks=False)
        except OSError as error:
            self._missed(error)
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
                deleted(status) and status.st_dev in self._devices
            ):  # others lie in memory, or are not of this room
                self._take(status, several=True)

    def _take(self, status: os.stat_result, *, several: bool) -> None:
        if several:
            key = (status.st_dev, status.st_ino)
            if key in self._seen:
                return
            self._seen.add(key)
        self.size += status.st_blocks * BLOCK

    def _missed(self, error: OSError) -> None:
        if error.errno in _BARRED:  # any other was removed while we looked
            self.hidden = True


class Watcher:
    """A thread that ends with the process that it watches."""

    def __init__(
        self,
        pid: int,
        *,
        name: str,
        processes: Callable[[], Sequence[Process]],
        passed: Callable[[Sequence[Process]], bool],
        strike: Callable[[], None],
    ) -> None:
        """Begins to watch.

        Args:
            pid: The process that was started.
            name: Of the child, for the thread.
            processes: Finds the child's processes.
            passed: Whether a bound is passed, given the child's processes.
            strike: Kills the child.
        """
        self.stopped_itself = False
        self._pid = pid
        self._first = read_process(pid)
        self._processes = processes
        self._passed = passed
        self._strike = strike
        self._stopped_since: float | None = None
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True, name=f"bounds-{name}")
        self._thread.start()

    def stop(self) -> None:
        """Ends the watch."""
        self._over.set()
        if threading.current_thread() is not self._thread:
            self._thread.join(_JOIN_SECONDS)

    def _run(self) -> None:
        try:
            self._watch()
        except Exception:  # noqa: BLE001  # whatever it is: a child that nobody watches has no bounds
            _log.exception("a child cannot be watched and is killed", pid=self._pid)
            self._strike()

    def _watch(self) -> None:
        pause = SHORTEST_SECONDS
        while not self._over.wait(pause):
            began = time.monotonic()
            if not self._lives():
                return
            processes = self._processes()
            if self._passed(processes) or self._stopped(processes):
                self._end(processes)
                return
            took = time.monotonic() - began
            pause = min(LONGEST_SECONDS, max(SHORTEST_SECONDS, _IDLE_SHARE * took))

    def _lives(self) -> bool:
        now = read_process(self._pid)
        if now is None or now.ended or self._first is None:
            return False
        return now.started == self._first.started

    def _stopped(self, processes: Iterable[Process]) -> bool:
        main = main_of(processes, self._pid)
        if main is None or main.state != "T":
            self._stopped_since = None
            return False
        now = time.monotonic()
        self._stopped_since = self._stopped_since or now
        self.stopped_itself = now - self._stopped_since >= STOPPED_SECONDS
        return self.stopped_itself

    def _end(self, processes: Iterable[Process]) -> None:
        """Strikes; what left the child's group dies as well, where we still know whose it was."""
        self._strike()
        for process in processes:
            now = read_process(process.pid)
            if now is not None and now.started == process.started:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(process.pid, signal.SIGKILL)
