"""Who holds a lock of the kernel's, as /proc tells: those of other containers are not seen."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

_LOCKS = Path("/proc/locks")


def holders(descriptor: int) -> tuple[int, ...]:
    """The processes that hold a flock on a file.

    Args:
        descriptor: The file, open.
    """
    number = str(os.fstat(descriptor).st_ino)
    found = set()
    with contextlib.suppress(OSError):
        for line in _LOCKS.read_text().splitlines():
            _, kind, _, _, process, file, *_ = line.replace("-> ", "").split()
            if kind == "FLOCK" and file.rpartition(":")[2] == number and int(process) > 0:
                found.add(int(process))
    return tuple(sorted(found))


def is_stopped(process: int) -> bool:
    """Whether a process was stopped, as by Ctrl-Z or a debugger, and does nothing."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] in ("T", "t")
    except OSError:  # it has ended
        return False


def described(processes: tuple[int, ...]) -> str:
    """Who uses something, as a sentence without its end."""
    if not processes:
        return "another build uses it"
    if processes == (os.getpid(),):
        return "another build of this worker uses it"
    named = [f"{process} (stopped)" if is_stopped(process) else str(process) for process in processes]
    return f"process {named[0]} uses it" if len(named) == 1 else f"processes {', '.join(named)} use it"
