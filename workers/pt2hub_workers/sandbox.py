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
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING

from pt2hub.server.processes import follow
from pt2hub_workers.inside.channel import CHANNEL_FD

if TYPE_CHECKING:
    from collections.abc import Mapping

ISOLATION = "process"
EXIT_SECONDS = 10.0
"""How long a process may take to end after it closed its channel: a core dump or a destructor, no more."""
_OPEN_FILES = 4096
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

    def exit_code(self) -> int:
        """The exit code of a process that is ending; one that closed its channel but lives on is killed."""
        try:
            return self.process.wait(EXIT_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()
            return self.process.wait()

    def kill(self) -> None:
        """Kills the whole process group, and reaps the process."""
        self.strike()
        self.process.wait()
        self.over = True
        self.channel.close()


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
