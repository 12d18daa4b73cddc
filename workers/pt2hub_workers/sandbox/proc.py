"""Facts about processes from psutil and /proc: their tree, memory, and open deleted files.

What limits rest on is read here and not by psutil: it finds the number of threads and the user by a search in
/proc/PID/status, where a process's own name stands first and can look like either, and its walk over the tree ends at
the first process that may not be read.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

BLOCK = 512
"""Bytes of one block in stat(2), independent of the file system's block size."""
_ALL = Path("/proc")
_PARENT, _THREADS, _STARTED = 1, 17, 19
"""Positions in /proc/PID/stat after the name: fields 4, 20 and 22 of proc(5)."""
_USER_LINE = re.compile(r"^Uid:\t(\d+)", re.MULTILINE)
"""A name cannot begin a line: the kernel escapes line ends in it."""
_KIB_LINE = re.compile(r"^(\w+):\s+(\d+) kB$", re.MULTILINE)


def find_process(pid: int) -> psutil.Process | None:
    """Return the process with an id; None if it does not exist or is a zombie."""
    with contextlib.suppress(psutil.Error):
        found = psutil.Process(pid)
        return found if is_running(found) else None
    return None


def is_running(process: psutil.Process) -> bool:
    """Return whether a process is running, so neither ended nor a zombie."""
    with contextlib.suppress(psutil.Error):
        return process.is_running() and process.status() not in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD)
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
    return _stat_field(process.pid, _THREADS) or 0


def descend(pid: int) -> list[psutil.Process]:
    """Return a process and its descendants.

    A process whose parent ended belongs to init and is missed, except in a separate PID namespace, whose first process
    adopts it. Processes that may not be read (hidepid in proc(5)) are skipped.
    """
    below: dict[int, list[int]] = {}
    for each in psutil.pids():
        if (parent := _stat_field(each, _PARENT)) is not None:
            below.setdefault(parent, []).append(each)
    found = [pid]
    for each in found:  # grows during the loop
        found += [child for child in below.get(each, ()) if child not in found]
    return [process for each in found if (process := find_process(each)) is not None]


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


def footprint(pid: int) -> int:
    """Return the bytes that only the end of the process frees: anonymous, shared and swapped memory.

    A page shared by n processes counts 1/n for each. If the kernel does not show that (smaps_rollup requires the
    permission to trace), shared pages count in full. Pages of files do not count: they can be read again.
    """
    exact = _kib(pid, "smaps_rollup")
    if "Pss_Anon" in exact:  # since Linux 5.3
        return sum(exact.get(name, 0) for name in ("Pss_Anon", "Pss_Shmem", "SwapPss"))
    rough = _kib(pid, "status")
    return sum(rough.get(name, 0) for name in ("RssAnon", "RssShmem", "VmSwap"))


def own_tmpfs(pid: int) -> int:
    """Return the bytes in tmpfs mounts that only the process has; `footprint` includes mapped ones as well."""
    ours = {device for device, _ in _tmpfs(os.getpid())}
    found = {device: path for device, path in _tmpfs(pid) if device not in ours}
    return sum(_size_of(_ALL / str(pid) / "root" / path.lstrip("/")) for path in found.values())


def open_files(pids: Iterable[int]) -> Iterator[os.stat_result]:
    """Yield the visible open files of the processes."""
    for pid in pids:
        try:
            found = list((_ALL / str(pid) / "fd").iterdir())
        except OSError:
            continue
        for path in found:
            try:
                yield path.stat()
            except OSError:  # closed by now
                continue


def deleted_mappings(pids: Iterable[int]) -> Iterator[os.stat_result]:
    """Yield the deleted files that the processes have only mapped; the kernel shows them to root only."""
    for pid in pids:
        folder = _ALL / str(pid)
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


def _stat_field(pid: int, index: int) -> int | None:
    """Return a number from /proc/PID/stat, counted from the state, which follows the name in brackets."""
    with contextlib.suppress(OSError):  # ESRCH is raised while a process ends
        return int((_ALL / str(pid) / "stat").read_text(errors="replace").rpartition(")")[2].split()[index])
    return None


def _tmpfs(pid: int) -> list[tuple[str, str]]:
    """Return the device and mount point of every tmpfs of a process (mountinfo in proc(5))."""
    try:
        lines = (_ALL / str(pid) / "mountinfo").read_text(errors="replace").splitlines()
    except OSError:
        return []
    words = [line.split(" ") for line in lines if " - tmpfs " in line]
    return [(device, path) for _, _, device, _, path, *_ in words]


def _size_of(path: Path) -> int:
    try:
        found = os.statvfs(path)
    except OSError:  # it ended, or we may not look into it
        return 0
    return (found.f_blocks - found.f_bfree) * found.f_frsize


def _kib(pid: int, name: str) -> dict[str, int]:
    try:
        text = (_ALL / str(pid) / name).read_text(errors="replace")
    except OSError:
        return {}
    return {word: int(number) << 10 for word, number in _KIB_LINE.findall(text)}
