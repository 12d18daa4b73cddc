"""Holders of a kernel file lock according to /proc, which does not show those in other containers."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

import psutil

_LOCKS = Path("/proc/locks")


def holders(descriptor: int) -> tuple[int, ...]:
    """Return the ids of the processes that hold a flock on a file."""
    number = str(os.fstat(descriptor).st_ino)
    found = set()
    with contextlib.suppress(OSError):
        for line in _LOCKS.read_text().splitlines():
            _, kind, _, _, process, file, *_ = line.replace("-> ", "").split()
            if kind == "FLOCK" and file.rpartition(":")[2] == number and int(process) > 0:
                found.add(int(process))
    return tuple(sorted(found))


def is_stopped(process: int) -> bool:
    """Return whether a process is stopped, such as by Ctrl-Z or a debugger."""
    with contextlib.suppress(psutil.Error):  # it has ended
        return psutil.Process(process).status() in (psutil.STATUS_STOPPED, psutil.STATUS_TRACING_STOP)
    return False


def describe(processes: tuple[int, ...]) -> str:
    """Return a sentence about the holders of a device, without a full stop."""
    if not processes:
        return "another build uses it"
    if processes == (os.getpid(),):
        return "another build of this worker uses it"
    named = [f"{process} (stopped)" if is_stopped(process) else str(process) for process in processes]
    return f"process {named[0]} uses it" if len(named) == 1 else f"processes {', '.join(named)} use it"
