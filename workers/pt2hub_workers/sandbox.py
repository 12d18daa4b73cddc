"""The one module that starts the processes in which users' code runs.

Today's isolation level is `process`: a process group of its own, no credentials in its environment, limits
on files and core dumps, and death with the worker. Its name goes into every artifact's provenance.
"""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import socket
import struct
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING

import structlog

from pt2hub.server.processes import follow
from pt2hub_workers.inside.channel import CHANNEL_FD

if TYPE_CHECKING:
    from collections.abc import Mapping

ISOLATION = "process"
EXIT_SECONDS = 10.0
"""How long a process may take to end after it closed its channel: a core dump or a destructor, no more."""
REAP_SECONDS = 10.0
"""How long a killed process may take to end: one that hangs in a driver ends when the driver lets it."""
SEND_SECONDS = 30
"""How long a process may read nothing of what it is sent."""
_OPEN_FILES = 4096
_log = structlog.get_logger()
_starter = ThreadPoolExecutor(max_workers=1, thread_name_prefix="sandbox")
"""Children are started by one thread that lives as long as the worker: the kernel takes the end of the
*thread* that started a child for the parent's death."""


@dataclass(slots=True)
class Started:
    """A started process.

    Attributes:
        process: The process, leader of its own group.
        channel: Our end of its channel.
        output: What it prints, both streams.
        over: Whether it was killed and reaped: its number may be another process's by now.
    """

    process: subprocess.Popen[bytes]
    channel: socket.socket
    output: IO[bytes]
    over: bool = False

    def strike(self) -> None:
        """Kills the whole process group, compilers included, and waits for nothing."""
        if not self.over:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)

    def exit_code(self) -> int | None:
        """The exit code of a process that is ending; None for one that left its channel and lived on: it is killed."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            return self.process.wait(EXIT_SECONDS)
        self.kill()
        return None

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
            self.over = True


def start(role: str, *, environ: Mapping[str, str]) -> Started:
    """Starts a child of `pt2hub_workers.inside.child`.

    Args:
        role: `build` or `gate`.
        environ: Its whole environment, without the channel.
    """
    return _starter.submit(_start, role, dict(environ)).result()


def run_probe(environ: Mapping[str, str], target: str) -> bytes:
    """Runs the toolchain's probe and returns what it printed.

    Args:
        environ: Its whole environment.
        target: The target that is wanted, or `auto`.

    Raises:
        subprocess.CalledProcessError: It failed; its standard error is inherited.
    """
    parent = os.getpid()
    return subprocess.run(
        [sys.executable, "-m", "pt2hub_workers.inside.probe", target],
        env=dict(environ),
        check=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        start_new_session=True,  # a Ctrl-C in the terminal is the worker's to answer
        preexec_fn=lambda: follow(parent, signal.SIGKILL),
    ).stdout


def _start(role: str, environ: dict[str, str]) -> Started:
    ours, theirs = socket.socketpair()
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("@ll", SEND_SECONDS, 0))
    parent = os.getpid()

    def prepare() -> None:
        follow(parent, signal.SIGKILL)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(_OPEN_FILES, hard), hard))

    with theirs:
        process = subprocess.Popen(
            [sys.executable, "-m", "pt2hub_workers.inside.child", role],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={**environ, CHANNEL_FD: str(theirs.fileno()), "PYTHONUNBUFFERED": "1"},
            pass_fds=(theirs.fileno(),),
            start_new_session=True,
            preexec_fn=prepare,  # noqa: PLW1509  # system calls through an already loaded library
        )
    if process.stdout is None:
        raise RuntimeError("subprocess.PIPE gives a stream")
    return Started(process, ours, process.stdout)
