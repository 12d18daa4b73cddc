"""Long-lived child processes that never outlive this one.

Each child leads its own session, so that a Ctrl-C in the terminal reaches only the parent, which then stops
its children in the right order. Each asks the kernel for a signal at its parent's death, so that not even
`kill -9` of the parent leaves an orphan.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import signal
import subprocess
import time
from typing import TYPE_CHECKING, BinaryIO

from pt2hub.system.interrupts import hold

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

_PR_SET_PDEATHSIG = 1
MAX_LOG_BYTES = 16 << 20
"""Size above which a log is rotated."""
_POLL_SECONDS = 0.02
_libc = ctypes.CDLL(None, use_errno=True)  # loaded here: between fork and exec nothing may take a lock


class Child:
    """A running child process and everything in its process group.

    Attributes:
        log: The file it writes its output to; None where it writes to ours.
        log_start: How long that file was before it.
    """

    def __init__(self, process: subprocess.Popen[bytes], log: Path | None, log_start: int = 0) -> None:
        self._process = process
        self.pid = process.pid
        self.log = log
        self.log_start = log_start

    def exit_code(self) -> int | None:
        """Return the exit code, negative for a signal; None while it runs."""
        if self._process.returncode is not None:
            return self._process.returncode
        # WNOWAIT leaves the zombie in place: while it is there, its group's number is not given away.
        ended = os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        if ended is None:
            return None
        return ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status

    def stop(self, *steps: tuple[signal.Signals, float]) -> int:
        """Stop the child, politely first; whatever is left of its group is killed.

        Args:
            steps: Signals to send, each with the seconds to wait for the exit before the next one.

        Returns:
            The exit code, negative for a signal.
        """
        for number, patience in steps:
            self.send(number)
            self.wait(patience)
        if self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, signal.SIGKILL)
        return self._process.wait()

    def send(self, number: signal.Signals) -> None:
        """Send the child a signal, unless it has ended."""
        if self.exit_code() is None:
            os.kill(self.pid, number)

    def wait(self, seconds: float) -> int | None:
        """Wait for the child's end for some time; its exit code, or None where it still runs."""
        deadline = time.monotonic() + seconds
        while (code := self.exit_code()) is None and time.monotonic() < deadline:
            time.sleep(_POLL_SECONDS)
        return code


def follow(parent: int, number: signal.Signals) -> None:
    """In a child, between fork and exec: asks the kernel for a signal at the death of the starting thread."""
    _libc.prctl(_PR_SET_PDEATHSIG, int(number))
    if os.getppid() != parent:  # it died before the call above
        os._exit(1)


def die_with_parent(number: signal.Signals = signal.SIGKILL) -> Callable[[], None]:
    """Return a `preexec_fn` for processes that must not outlive the thread that starts them."""
    parent = os.getpid()
    return lambda: follow(parent, number)


def spawn(
    argv: Sequence[str],
    *,
    log: Path | None,
    environ: Mapping[str, str],
    at_parents_death: signal.Signals = signal.SIGTERM,
    keep_open: Sequence[int] = (),
    signals_held: bool = False,
) -> Child:
    """Start a child that the kernel signals when this process dies.

    Call it from the main thread: the kernel sends the signal when the *thread* that started the child ends.

    Args:
        log: File that its output is appended to; None for our own output.
        at_parents_death: What it gets when this process dies.
        signals_held: Whether signals wait until it lets them through (`interrupts.release`), so that one which comes
            while it starts is handled, too. It must do so.
    """
    parent = os.getpid()

    def begin() -> None:
        if signals_held:
            hold()
        follow(parent, at_parents_death)

    with _open_log(log) if log else contextlib.nullcontext() as output:
        start = output.tell() if output else 0
        process = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT if log else None,
            env=dict(environ),
            pass_fds=keep_open,
            start_new_session=True,
            preexec_fn=begin,  # noqa: PLW1509  # one system call through an already loaded library
        )
    return Child(process, log, start)


def tail(path: Path, *, lines: int = 15, start: int = 0) -> str:
    """Return the last lines of a log, or an empty string when there is none.

    Args:
        lines: How many at most.
        start: Where the part of it begins that matters; a log that was shortened meanwhile counts as a whole.
    """
    with contextlib.suppress(OSError), path.open("rb") as file:
        size = path.stat().st_size
        file.seek(max(start if start <= size else 0, size - 16384))
        return "\n".join(file.read().decode(errors="replace").splitlines()[-lines:])
    return ""


def shorten(path: Path, *, limit: int = MAX_LOG_BYTES) -> None:
    """Put a log that has grown too long aside as `.1` and empties it, while a child goes on writing to it.

    The child keeps its file open and appends, so its file cannot be renamed away from it: the bytes are copied. What it
    writes between the end of the copy and the emptying, microseconds later, is lost.
    """
    with contextlib.suppress(OSError):  # a full disk, say: no reason to stop what the log is about
        if path.stat().st_size > limit:
            copied = path.with_suffix(f"{path.suffix}.copy")
            with path.open("r+b") as file, copied.open("wb") as copy:
                shutil.copyfileobj(file, copy, 1 << 20)
                file.truncate(0)
            copied.replace(_aside(path))


def _open_log(path: Path) -> BinaryIO:
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.exists() and path.stat().st_size > MAX_LOG_BYTES:
        path.replace(_aside(path))
    return path.open("ab")


def _aside(path: Path) -> Path:
    return path.with_suffix(f"{path.suffix}.1")
