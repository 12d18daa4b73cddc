"""Memory that a child's processes hold, with what the kernel holds for them, where no control group counts it.

A process's resident memory leaves out its page tables, swapped pages, memory files that it has open, and what the kernel
allocates for mappings, threads, descriptors, pipes, sockets and names in a tmpfs. Unlike control groups, /proc shows no
sizes of these but numbers: each counts with the most that it can hold
(docs/architecture/isolation.md#memory-that-no-process-shows).
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
from functools import cache
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from pt2hub_workers.sandbox.proc import deleted_mappings, folder_of, open_files, thread_count

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

BLOCK = 512
"""Bytes of one block in stat(2), independent of the file system's block size."""
MAPPING_BYTES = 1 << 10
"""A mapping with its places in trees, and its memory policy."""
THREAD_BYTES = 32 << 10
"""A thread's stack in the kernel and its descriptions."""
DESCRIPTOR_BYTES = 4 << 10
"""An open file with the page that some of them read into."""
NAME_BYTES = 1 << 10
"""A file, directory or link in a tmpfs, whose size limits contents only."""
PROC_FILE_BYTES = 64 << 10
"""An open file of /proc, whose text the kernel keeps while it is read."""
TERMINAL_BYTES = 160 << 10
"""An end of a pseudo-terminal: 64 KiB in each direction, and the line editor."""
_PIPE_PAGES = 2
"""Pages of each pipe beyond the first 64 MiB of a user (/proc/sys/fs/pipe-user-pages-soft)."""
_TERMINALS = (5, *range(128, 144))
"""Major numbers of /dev/ptmx and of both ends, from the kernel's list of devices."""
_MAX_DESCRIPTORS = 200_000
"""Most descriptors looked at; the limit of files and descriptors ends a child that has more."""
_KIB_LINE = re.compile(r"^(\w+):\s+(\d+) kB$", re.MULTILINE)
_SOCKETS_LINE = re.compile(r"^(sockets|TCP): (?:used|inuse) (\d+)", re.MULTILINE)
_NET = Path("/proc/sys/net")
_PAGE = os.sysconf("SC_PAGE_SIZE")


class Footprint(NamedTuple):
    """Bytes that only the end of a process frees.

    Attributes:
        private: Anonymous and swapped memory, and page tables.
        shared: Shared memory, its part of what several processes have mapped.
    """

    private: int
    shared: int


def exceeds(pids: Sequence[int], limit: int) -> bool:
    """Return whether processes hold more memory than a limit.

    Args:
        pids: Processes of one child, the last one of which is surely inside of its sandbox.
    """
    if not pids:
        return False
    files, held = _descriptors(pids)
    held += own_tmpfs(pids[-1]) + _own_sockets(pids[-1])
    held += sum(thread_count(pid) * THREAD_BYTES + _mappings(pid) * MAPPING_BYTES for pid in pids)
    if sum(map(_resident, pids)) + files + held <= limit:
        return False  # resident memory counts shared pages several times: a cheap upper bound
    found = [footprint(pid) for pid in pids]
    shared = max(sum(each.shared for each in found), files)  # mapped memory files are in both
    return sum(each.private for each in found) + shared + held > limit


def footprint(pid: int) -> Footprint:
    """Return the memory of a process, without pages of files, which can be read again.

    A page shared by n processes counts 1/n for each. If the kernel does not show that (smaps_rollup requires the
    permission to trace), shared pages count in full.
    """
    rough = _kib(pid, "status")
    tables = rough.get("VmPTE", 0) + rough.get("HugetlbPages", 0)
    exact = _kib(pid, "smaps_rollup")
    if "Pss_Anon" in exact:  # since Linux 5.3
        return Footprint(exact["Pss_Anon"] + exact.get("SwapPss", 0) + tables, exact.get("Pss_Shmem", 0))
    return Footprint(rough.get("RssAnon", 0) + rough.get("VmSwap", 0) + tables, rough.get("RssShmem", 0))


def own_tmpfs(pid: int) -> int:
    """Return the bytes in tmpfs mounts that only the process has; `footprint` includes mapped ones as well."""
    ours = {device for device, _ in _tmpfs(os.getpid())}
    found = {device: path for device, path in _tmpfs(pid) if device not in ours}
    return sum(_size_of(folder_of(pid) / "root" / path.lstrip("/")) for path in found.values())


def _resident(pid: int) -> int:
    """Return a process's memory with files and all of what it shares."""
    found = _kib(pid, "status")
    return sum(found.get(name, 0) for name in ("VmRSS", "VmSwap", "VmPTE", "HugetlbPages"))


def _mappings(pid: int) -> int:
    with contextlib.suppress(OSError):
        return (folder_of(pid) / "maps").read_bytes().count(b"\n")
    return 0


def _descriptors(pids: Sequence[int]) -> tuple[int, int]:
    """Return the bytes in memory files that processes have open or, as root sees, mapped; and for descriptors."""
    files: dict[int, int] = {}
    pipes: set[int] = set()
    total, proc = 0, _device_of_proc(pids[-1])
    for file in islice(open_files(pids), _MAX_DESCRIPTORS):
        status = file.status
        total += DESCRIPTOR_BYTES
        if stat.S_ISFIFO(status.st_mode):
            pipes.add(status.st_ino)
        elif stat.S_ISCHR(status.st_mode) and os.major(status.st_rdev) in _TERMINALS:
            total += TERMINAL_BYTES
        elif status.st_dev == proc and stat.S_ISREG(status.st_mode):
            total += PROC_FILE_BYTES
        _add_memory_files(files, (status,))
    _add_memory_files(files, islice(deleted_mappings(pids), _MAX_DESCRIPTORS))
    return sum(files.values()), total + len(pipes) * _PIPE_PAGES * _PAGE


def _add_memory_files(files: dict[int, int], found: Iterable[os.stat_result]) -> None:
    for status in found:
        if status.st_dev == _memory_device():
            files[status.st_ino] = status.st_blocks * BLOCK


@cache
def _memory_device() -> int:
    """Return the device of memory files and shared anonymous memory, which have no mount point."""
    descriptor = os.memfd_create("device")
    try:
        return os.fstat(descriptor).st_dev
    finally:
        os.close(descriptor)


def _device_of_proc(pid: int) -> int | None:
    with contextlib.suppress(OSError):
        return (folder_of(pid) / "root" / "proc").stat().st_dev
    return None


def _own_sockets(pid: int) -> int:
    """Return the most bytes that the sockets of a process's own network can hold, those in no descriptor included."""
    try:
        if (folder_of(pid) / "ns/net").stat().st_ino == Path("/proc/self/ns/net").stat().st_ino:
            return 0  # the machine's
        text = (folder_of(pid) / "net/sockstat").read_text()
    except OSError:
        return 0
    found = {name: int(number) for name, number in _SOCKETS_LINE.findall(text)}
    return found.get("sockets", 0) * _socket_bytes() + found.get("TCP", 0) * _tcp_bytes()


@cache
def _socket_bytes() -> int:
    """Return a socket's buffers, which a sandboxed child cannot enlarge."""
    return _last_number("core/rmem_default") + _last_number("core/wmem_default")


@cache
def _tcp_bytes() -> int:
    """Return the buffers up to which the kernel enlarges those of a TCP connection."""
    return _last_number("ipv4/tcp_rmem") + _last_number("ipv4/tcp_wmem")


def _last_number(name: str) -> int:
    with contextlib.suppress(OSError):
        return int((_NET / name).read_text().split()[-1])
    return 0


def _tmpfs(pid: int) -> list[tuple[str, str]]:
    """Return the device and mount point of every tmpfs of a process (mountinfo in proc(5))."""
    try:
        lines = (folder_of(pid) / "mountinfo").read_text(errors="replace").splitlines()
    except OSError:
        return []
    words = [line.split(" ") for line in lines if " - tmpfs " in line]
    return [(device, path) for _, _, device, _, path, *_ in words]


def _size_of(path: Path) -> int:
    try:
        found = os.statvfs(path)
    except OSError:  # it ended, or we may not look into it
        return 0
    return (found.f_blocks - found.f_bfree) * found.f_frsize + (found.f_files - found.f_ffree) * NAME_BYTES


def _kib(pid: int, name: str) -> dict[str, int]:
    try:
        text = (folder_of(pid) / name).read_text(errors="replace")
    except OSError:
        return {}
    return {word: int(number) << 10 for word, number in _KIB_LINE.findall(text)}
