"""Facts about processes from psutil and /proc: their tree, threads and open files.

What limits rest on is read here and not by psutil: it finds the number of threads and the user by a search in
/proc/PID/status, where a process's own name stands first and can look like either, and its walk over the tree ends at
the first process that may not be read.
"""

from __future__ import annotations

import contextlib
import re
import stat
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import psutil

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterable, Iterator

_ALL = Path("/proc")
_STATE, _PARENT, _THREADS, _STARTED = 0, 1, 17, 19
"""Positions in /proc/PID/stat after the name: fields 3, 4, 20 and 22 of proc(5)."""
_ENDED = "ZX"
"""States of threads that have ended."""
_USER_LINE = re.compile(r"^Uid:\t(\d+)", re.MULTILINE)
"""A name cannot begin a line: the kernel escapes line ends in it."""


class OpenFile(NamedTuple):
    """An open file of a process.

    Attributes:
        info: Path of its entry in /proc/PID/fdinfo.
    """

    status: os.stat_result
    info: Path


def find_process(pid: int) -> psutil.Process | None:
    """Return the process with an id; None if it does not exist or is a zombie."""
    with contextlib.suppress(psutil.Error):
        found = psutil.Process(pid)
        return found if is_running(found) else None
    return None


def is_running(process: psutil.Process) -> bool:
    """Return whether a process is running, so neither ended nor a zombie.

    A process whose first thread has ended looks like a zombie while others run.
    """
    with contextlib.suppress(psutil.Error):
        ended = process.status() in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD)
        return process.is_running() and (not ended or count_threads(process) > 1)
    return False


def is_stopped(process: psutil.Process) -> bool:
    """Return whether a process is stopped (SIGSTOP, SIGTSTP), not traced."""
    with contextlib.suppress(psutil.Error):
        return process.status() == psutil.STATUS_STOPPED
    return False


def started_ticks(pid: int) -> int | None:
    """Return the start time of a process in ticks since boot, which unlike psutil's is independent of clock changes."""
    return _stat_field(pid, _STARTED)


def count_threads(process: psutil.Process) -> int:
    """Return the number of a process's threads; 0 if it has ended."""
    return thread_count(process.pid)


def thread_count(pid: int) -> int:
    """Return the number of a process's threads; 0 if it has ended."""
    return _stat_field(pid, _THREADS) or 0


def folder_of(pid: int) -> Path:
    """Return the directory in /proc that shows a process.

    That of a process whose first thread has ended shows neither memory nor files: it is another thread's.
    """
    folder = _ALL / str(pid)
    if _state(pid) in _ENDED and thread_count(pid) > 1:
        with contextlib.suppress(OSError):
            threads = (int(entry.name) for entry in (folder / "task").iterdir())
            return next((_ALL / str(each) for each in threads if _state(each) not in _ENDED), folder)
    return folder


def count_below(pid: int) -> int:
    """Return the number of threads of a process and its descendants, zombies included: only their parents remove them."""
    return sum(thread_count(each) or 1 for each in _tree(pid))


def descend(pid: int) -> list[psutil.Process]:
    """Return a process and its descendants.

    A process whose parent ended belongs to init and is missed, except in a separate PID namespace, whose first process
    adopts it. Processes that may not be read (hidepid in proc(5)) are skipped.
    """
    return [process for each in _tree(pid) if (process := find_process(each)) is not None]


def total(processes: Iterable[psutil.Process], count: Callable[[psutil.Process], int]) -> int:
    """Return a sum over processes, without those that have ended."""
    found = 0
    for process in processes:
        with contextlib.suppress(psutil.Error):
            found += count(process)
    return found


def main_of(processes: Iterable[psutil.Process], pid: int) -> psutil.Process | None:
    """Return the main process of a child: itself, or the first one below bubblewrap's processes."""
    known = {process.pid: process for process in processes}
    found = known.get(pid)
    with contextlib.suppress(psutil.Error):
        while found is not None and found.name() == "bwrap":
            below = [process for process in known.values() if process.ppid() == found.pid]
            found = min(below, key=lambda process: (process.create_time(), process.pid), default=None)
        return found
    return None


def open_files(pids: Iterable[int]) -> Iterator[OpenFile]:
    """Yield the visible open files of the processes."""
    for pid in pids:
        folder = folder_of(pid)
        try:
            names = [path.name for path in (folder / "fd").iterdir()]
        except OSError:
            continue
        for name in names:
            try:
                yield OpenFile((folder / "fd" / name).stat(), folder / "fdinfo" / name)
            except OSError:  # closed by now
                continue


def deleted_mappings(pids: Iterable[int]) -> Iterator[os.stat_result]:
    """Yield the deleted files that the processes have only mapped; the kernel shows them to root only."""
    for pid in pids:
        folder = folder_of(pid)
        try:
            lines = (folder / "maps").read_text(errors="replace").splitlines()
        except OSError:
            continue
        for line in lines:
            if line.endswith(" (deleted)"):
                begin, _, end = line.partition(" ")[0].partition("-")
                try:
                    yield (folder / "map_files" / f"{int(begin, 16):x}-{int(end, 16):x}").stat()
                except OSError:  # unmapped by now, or not visible
                    continue


def is_deleted(status: os.stat_result) -> bool:
    """Return whether an open file is deleted: it takes space until it is closed, but no directory lists it."""
    return stat.S_ISREG(status.st_mode) and status.st_nlink == 0


def threads_of_user(user: int) -> int:
    """Return the number of a user's threads, zombies included, as RLIMIT_NPROC counts them."""
    return sum((_stat_field(pid, _THREADS) or 1) for pid in psutil.pids() if _real_user(pid) == user)


def _real_user(pid: int) -> int | None:
    with contextlib.suppress(OSError):
        found = _USER_LINE.search((_ALL / str(pid) / "status").read_text(errors="replace"))
        return int(found[1]) if found else None
    return None


def _tree(pid: int) -> list[int]:
    """Return the ids of a process and its descendants, zombies included."""
    below: dict[int, list[int]] = {}
    for each in psutil.pids():
        if (parent := _stat_field(each, _PARENT)) is not None:
            below.setdefault(parent, []).append(each)
    found = [pid]
    for each in found:  # grows during the loop
        found += below.pop(each, ())  # an id may come back while we look
    return found


def _state(pid: int) -> str:
    fields = _stat(pid)
    return fields[_STATE] if fields else "X"


def _stat_field(pid: int, index: int) -> int | None:
    fields = _stat(pid)
    return int(fields[index]) if fields else None


def _stat(pid: int) -> list[str]:
    """Return /proc/PID/stat from the state on, which follows the name in brackets; empty if it has ended."""
    with contextlib.suppress(OSError):  # ESRCH is raised while a process ends
        return (_ALL / str(pid) / "stat").read_text(errors="replace").rpartition(")")[2].split()
    return []
