"""Start of child processes at either isolation level, and their end with everything they started."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import struct
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import IO, TYPE_CHECKING, NamedTuple, Protocol

import psutil
import structlog

from pt2hub.system.processes import follow
from pt2hub_workers.inside.operations.channel import CHANNEL_FD
from pt2hub_workers.sandbox.limits import Bounds
from pt2hub_workers.sandbox.proc import find_process

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from contextlib import AbstractContextManager
    from pathlib import Path

    from pt2hub_workers.sandbox.limits import Exceeded

EXIT_SECONDS = 10.0
"""Time to exit after closing the channel, for destructors or a core dump."""
REAP_SECONDS = 10.0
"""Time to wait for a killed process, which may hang in a driver."""
SEND_SECONDS = 30
"""How long a process may leave its messages unread."""
_SETTLE_SECONDS = 2.0
"""Time to wait for the rest of a killed group."""
_POLL_SECONDS = 0.002
_SIGNALLED = 128
"""bubblewrap exits with this plus the signal's number if a signal terminated the program."""
_log = structlog.get_logger()
_starter = ThreadPoolExecutor(max_workers=1, thread_name_prefix="sandbox")
"""One thread starts all children and lives as long as the worker: for the kernel, the end of the *thread* that started
a child is the parent's death."""


class Mounts(Protocol):
    """Workspace of a child; see `workspaces.Workspace`."""

    @property
    def host(self) -> Path:
        """Path as the worker sees it."""


class Command(NamedTuple):
    """Command to start."""

    argv: list[str]
    environ: dict[str, str]
    keep: tuple[int, ...] = ()


@dataclass(slots=True)
class Started:
    """Started child process."""

    process: subprocess.Popen[bytes]
    channel: socket.socket
    output: IO[bytes]
    bounds: Bounds
    sandboxed: bool = field(kw_only=True)
    over: bool = False

    def strike(self) -> None:
        """Kill the whole process group, compilers included, without waiting.

        In the sandbox the group includes the first process inside, and nothing inside outlives it.
        """
        if not self.over:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)

    def exit_code(self) -> int | None:
        """Return the exit code of an ending process, -n for signal n.

        None if it closed its channel but did not exit; it is killed.
        """
        with contextlib.suppress(subprocess.TimeoutExpired):
            return as_popen(self.process.wait(EXIT_SECONDS), sandboxed=self.sandboxed)
        self.kill()
        return None

    def find_exceeded(self) -> Exceeded | None:
        """Return the limit that the child exceeded, if any."""
        return self.bounds.find_exceeded()

    def kill(self) -> None:
        """Kill the whole process group, close the channel, and reap the process."""
        self.strike()
        with contextlib.suppress(OSError):  # already closed
            self.channel.shutdown(socket.SHUT_RDWR)  # a process that left the group may hold the other end
        self.channel.close()
        try:
            self.process.wait(REAP_SECONDS)
        except subprocess.TimeoutExpired:
            _log.error("a killed process does not exit: it hangs in the kernel", pid=self.process.pid)
        else:
            if not self.over:
                _settle(
                    self.process.pid
                )  # the next job in this workspace must not meet a compiler of this one
            self.over = True
        self.bounds.close()


def as_popen(code: int, *, sandboxed: bool) -> int:
    """Return an exit code as subprocess reports it: -n for signal n.

    In the sandbox an exit with 128 + n cannot be distinguished from termination by signal n.
    """
    ended = sandboxed and _SIGNALLED < code <= _SIGNALLED + signal.SIGRTMAX
    return _SIGNALLED - code if ended else code


def begin(
    command: Callable[[Mapping[str, str]], AbstractContextManager[Command]],
    bounds: Bounds,
    *,
    sandboxed: bool,
) -> Started:
    """Start a process with a channel."""
    return _starter.submit(_begin, command, bounds, sandboxed=sandboxed).result()


def finish(command: Command, seconds: float) -> subprocess.CompletedProcess[bytes]:
    """Run one of our programs to its end.

    Raises:
        subprocess.TimeoutExpired: It took longer and was killed.
    """
    return _starter.submit(_finish, command, seconds).result()


def _begin(
    command: Callable[[Mapping[str, str]], AbstractContextManager[Command]],
    bounds: Bounds,
    *,
    sandboxed: bool,
) -> Started:
    ours, theirs = socket.socketpair()
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("@ll", SEND_SECONDS, 0))
    parent = os.getpid()

    def prepare() -> None:
        follow(parent, signal.SIGKILL)
        bounds.in_child()

    try:
        bounds.prepare()
        with theirs, command({CHANNEL_FD: str(theirs.fileno())}) as made:
            process = subprocess.Popen(
                made.argv,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                env=made.environ,
                pass_fds=(theirs.fileno(), *made.keep),
                start_new_session=True,
                preexec_fn=prepare,  # noqa: PLW1509  # system calls through an already loaded library
            )
    except BaseException:
        ours.close()
        bounds.close()
        raise
    if process.stdout is None:
        raise RuntimeError("subprocess.PIPE gives a stream")
    started = Started(process, ours, process.stdout, bounds, sandboxed=sandboxed)
    bounds.watch(process.pid, started.strike)
    return started


def _finish(command: Command, seconds: float) -> subprocess.CompletedProcess[bytes]:
    parent = os.getpid()
    return subprocess.run(
        command.argv,
        env=command.environ,
        pass_fds=command.keep,
        check=False,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=seconds,
        start_new_session=True,  # the worker handles a Ctrl-C in the terminal
        preexec_fn=lambda: follow(parent, signal.SIGKILL),
    )


def _settle(group: int) -> None:
    """Wait until no process of a killed group is running."""
    deadline = time.monotonic() + _SETTLE_SECONDS
    while _lives(group) and time.monotonic() < deadline:
        time.sleep(_POLL_SECONDS)


def _lives(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return any(_is_in(pid, group) and find_process(pid) is not None for pid in psutil.pids())


def _is_in(pid: int, group: int) -> bool:
    with contextlib.suppress(ProcessLookupError):
        return os.getpgid(pid) == group
    return False
