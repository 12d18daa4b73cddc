"""Starting a child at either level, and ending it with everything that it started."""

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
from pathlib import Path
from typing import IO, TYPE_CHECKING, NamedTuple, Protocol

import structlog

from pt2hub.server.processes import follow
from pt2hub_workers.inside.channel import CHANNEL_FD
from pt2hub_workers.sandbox.limits import Bounds

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from contextlib import AbstractContextManager

    from pt2hub_workers.sandbox.limits import Exceeded

EXIT_SECONDS = 10.0
"""How long a process may take to end after it closed its channel: a core dump or a destructor, no more."""
REAP_SECONDS = 10.0
"""How long a killed process may take to end: one that hangs in a driver ends when the driver lets it."""
SEND_SECONDS = 30
"""How long a process may read nothing of what it is sent."""
_SETTLE_SECONDS = 2.0
"""How long the rest of a killed group may take to end."""
_POLL_SECONDS = 0.002
_SIGNALLED = 128
"""bubblewrap ends with this and the signal's number where the program was ended by a signal."""
_log = structlog.get_logger()
_starter = ThreadPoolExecutor(max_workers=1, thread_name_prefix="sandbox")
"""Children are started by one thread that lives as long as the worker: the kernel takes the end of the
*thread* that started a child for the parent's death."""


class Room(Protocol):
    """A child's room, as `rooms.Room`."""

    @property
    def host(self) -> Path:
        """Where it is, as the worker sees it."""


class Command(NamedTuple):
    """What is started.

    Attributes:
        argv: Program and arguments.
        environ: Its whole environment.
        keep: Descriptors that it inherits.
    """

    argv: list[str]
    environ: dict[str, str]
    keep: tuple[int, ...] = ()


@dataclass(slots=True)
class Started:
    """A started process.

    Attributes:
        process: The process, leader of its own session and group. In the sandbox it is bubblewrap, outside of it: its
            end is the end of everything inside.
        channel: Our end of its channel.
        output: What it prints, both streams.
        bounds: What it may use.
        sandboxed: Whether bubblewrap reports how it ended.
        over: Whether it was killed and reaped: its number may be another process's by now.
    """

    process: subprocess.Popen[bytes]
    channel: socket.socket
    output: IO[bytes]
    bounds: Bounds
    sandboxed: bool = field(kw_only=True)
    over: bool = False

    def strike(self) -> None:
        """Kills the whole process group, compilers included, and waits for nothing.

        In the sandbox the first process inside is one of the group, and nothing inside outlives it.
        """
        if not self.over:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)

    def exit_code(self) -> int | None:
        """The exit code of a process that is ending, -n for signal n.

        None for one that left its channel and lived on: it is killed.
        """
        with contextlib.suppress(subprocess.TimeoutExpired):
            return as_popen(self.process.wait(EXIT_SECONDS), sandboxed=self.sandboxed)
        self.kill()
        return None

    def exceeded(self) -> Exceeded | None:
        """The bound that it passed, if it did."""
        return self.bounds.exceeded()

    def kill(self) -> None:
        """Kills the whole process group, ends the dialogue, and reaps the process."""
        self.strike()
        with contextlib.suppress(OSError):  # it is closed already
            self.channel.shutdown(socket.SHUT_RDWR)  # a process that left the group may hold the other end
        self.channel.close()
        try:
            self.process.wait(REAP_SECONDS)
        except subprocess.TimeoutExpired:
            _log.error("a killed process does not end: it hangs in the kernel", pid=self.process.pid)
        else:
            if not self.over:
                _settle(
                    self.process.pid
                )  # who comes next in this room is not to meet a compiler of the last job
            self.over = True
        self.bounds.close()


def as_popen(code: int, *, sandboxed: bool) -> int:
    """An exit code as subprocess reports it: -n for signal n.

    In the sandbox a program that exits with 128 + n by itself cannot be told from one that signal n ended.

    Args:
        code: As subprocess reports it.
        sandboxed: Whether bubblewrap stands between.
    """
    ended = sandboxed and _SIGNALLED < code <= _SIGNALLED + signal.SIGRTMAX
    return _SIGNALLED - code if ended else code


def begin(
    command: Callable[[Mapping[str, str]], AbstractContextManager[Command]],
    bounds: Bounds,
    *,
    sandboxed: bool,
) -> Started:
    """Starts a process with a channel.

    Args:
        command: Makes the command from the variables that name the channel.
        bounds: What it may use.
        sandboxed: Whether the command is bubblewrap's.
    """
    return _starter.submit(_begin, command, bounds, sandboxed=sandboxed).result()


def finish(command: Command, seconds: float) -> subprocess.CompletedProcess[bytes]:
    """Runs a program of ours to its end.

    Args:
        command: The program; what users' code it runs is none.
        seconds: Time limit.

    Raises:
        subprocess.TimeoutExpired: It took longer, and was killed.
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
        start_new_session=True,  # a Ctrl-C in the terminal is the worker's to answer
        preexec_fn=lambda: follow(parent, signal.SIGKILL),
    )


def _settle(group: int) -> None:
    """Waits until nothing of a killed group runs any more."""
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
    return any(_runs_in(entry, group) for entry in Path("/proc").iterdir() if entry.name.isdecimal())


def _runs_in(process: Path, group: int) -> bool:
    """Whether a process of a group does more than wait to be reaped."""
    try:
        fields = (process / "stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:  # it has just ended
        return False
    return int(fields[2]) == group and fields[0] not in "ZX"
