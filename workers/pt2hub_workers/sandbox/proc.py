"""What /proc tells about processes: their tree, threads, memory, and the deleted files that they hold open."""

from __future__ import annotations

import os
import re
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

BLOCK = 512
"""Bytes of one block as stat counts them, whatever the file system's own blocks are: stat(2)."""
_ALL = Path("/proc")
_PAGE = os.sysconf("SC_PAGE_SIZE")
_KIB_LINE = re.compile(r"^(\w+):\s+(\d+) kB$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Process:
    """A process at one moment.

    Attributes:
        pid: Its number.
        parent: Its parent's number.
        name: Of its program; it can change it itself.
        state: R, S, D, T (stopped), t (traced), Z (ended, not yet reaped), X.
        threads: How many it has.
        started: Clock ticks since boot; together with the number it names a process for good.
        resident: Bytes in memory, those it shares with others included.
    """

    pid: int
    parent: int
    name: str
    state: str
    threads: int
    started: int
    resident: int

    @property
    def ended(self) -> bool:
        """Whether it runs no more, reaped or not."""
        return self.state in "ZX"


def read_process(pid: int) -> Process | None:
    """One process; None where there is none with this number."""
    try:
        text = (_ALL / str(pid) / "stat").read_text(errors="replace")
    except OSError:  # ESRCH comes while it ends
        return None
    head, _, tail = text.rpartition(")")  # the name may hold spaces and brackets
    fields = tail.split()  # the first is the third of proc(5)
    return Process(
        pid,
        parent=int(fields[1]),
        name=head.partition("(")[2],
        state=fields[0],
        threads=int(fields[17]),
        started=int(fields[19]),
        resident=int(fields[21]) * _PAGE,
    )


def read_processes(pids: Iterable[int]) -> list[Process]:
    """Those of the named processes that still run."""
    found = [read_process(pid) for pid in pids]
    return [process for process in found if process is not None and not process.ended]


def descend(pid: int) -> list[Process]:
    """A process and everything below it.

    One whose parent ended is init's child and no longer found here, save in a PID namespace of its own, whose first
    process takes it.
    """
    below: dict[int, list[Process]] = {}
    for process in read_processes(_numbers()):
        below.setdefault(process.parent, []).append(process)
    found = read_processes([pid])
    for process in found:  # grows while it is walked
        found += below.get(process.pid, [])
    return found


def main_of(processes: Iterable[Process], pid: int) -> Process | None:
    """The program that a started process became: itself, or the first one below bubblewrap's own processes."""
    known = {process.pid: process for process in processes}
    found = known.get(pid)
    while found is not None and found.name == "bwrap":
        below = [process for process in known.values() if process.parent == found.pid]
        found = min(below, key=lambda process: (process.started, process.pid), default=None)
    return found


def footprint(pid: int) -> int:
    """Bytes that nobody could have back but by ending the process: anonymous and shared memory, and what is swapped out.

    A page that n processes share counts 1/n for each. Where the kernel does not let us see that (smaps_rollup wants the
    right to trace), shared pages count whole. Pages of files do not count: they can be read again.
    """
    exact = _kib(pid, "smaps_rollup")
    if "Pss_Anon" in exact:  # since Linux 5.3
        return sum(exact.get(name, 0) for name in ("Pss_Anon", "Pss_Shmem", "SwapPss"))
    rough = _kib(pid, "status")
    return sum(rough.get(name, 0) for name in ("RssAnon", "RssShmem", "VmSwap"))


def own_tmpfs(pid: int) -> int:
    """Bytes in the tmpfs that a process has mounted and we have not; what is mapped of them is in `footprint` as well."""
    ours = {device for device, _ in _tmpfs(os.getpid())}
    found = {device: path for device, path in _tmpfs(pid) if device not in ours}
    return sum(_filled(_ALL / str(pid) / "root" / path.lstrip("/")) for path in found.values())


def open_files(pids: Iterable[int]) -> Iterator[os.stat_result]:
    """What the processes hold open, so far as we may see it."""
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
    """Files without a name that the processes hold by a mapping alone; the kernel shows them to root only."""
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
                except OSError:  # unmapped by now, or not ours to see
                    continue


def deleted(status: os.stat_result) -> bool:
    """Whether an open file has no name any more: it takes its place until it is closed, and no folder shows it."""
    return stat.S_ISREG(status.st_mode) and status.st_nlink == 0


def threads_of_user(user: int) -> int:
    """How many threads a user has, those of processes that nobody reaped yet included: what RLIMIT_NPROC counts."""
    found = [read_process(pid) for pid in _numbers() if _owner(pid) == user]
    return sum(max(1, process.threads) for process in found if process is not None)


def _numbers() -> list[int]:
    return [int(path.name) for path in _ALL.iterdir() if path.name.isdecimal()]


def _owner(pid: int) -> int | None:
    try:
        return (_ALL / str(pid)).stat().st_uid
    except OSError:
        return None


def _tmpfs(pid: int) -> list[tuple[str, str]]:
    """Device and place of every tmpfs that a process sees; proc(5), mountinfo."""
    try:
        lines = (_ALL / str(pid) / "mountinfo").read_text(errors="replace").splitlines()
    except OSError:
        return []
    words = [line.split(" ") for line in lines if " - tmpfs " in line]
    return [(device, path) for _, _, device, _, path, *_ in words]


def _filled(path: Path) -> int:
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
