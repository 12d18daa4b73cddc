"""A whole server in a home of its own, for the demo and the benchmarks."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pt2hub.client.client import Client
from pt2hub.client.config import CPU_LEVEL, ClientConfig
from pt2hub.errors import InternalError, ServerUnreachable
from pt2hub.server.processes import tied
from pt2hub.wire.problems import from_dict

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

CHILD_SECONDS = 600.0
STOP_SECONDS = 60.0
_KEPT = ("PT2HUB_SCRATCH", "PT2HUB_HEADERS", CPU_LEVEL)
"""Settings of the caller that a trial keeps; all others belong to the caller's own server."""
_LOCK = "in-use"
"""Name of the file that a trial and its server hold locked, so that their folder is known to be in use."""


@contextmanager
def temporary_home(prefix: str) -> Iterator[Path]:
    """A temporary folder for a trial; those that killed trials left behind are removed first.

    Args:
        prefix: How the names of such folders begin.
    """
    for lock in Path(tempfile.gettempdir()).glob(f"{prefix}*/{_LOCK}"):
        _remove_unused(lock)
    with tempfile.TemporaryDirectory(prefix=prefix, ignore_cleanup_errors=True) as name:
        yield Path(name)


class Trial:
    """A home that `pt2hub up` runs on, and fresh client processes beside it.

    All of them end when the thread that started them does, by whatever cause.

    Attributes:
        environ: The environment of everything it starts.
        home: The server's home.
    """

    def __init__(self, folder: Path, **environ: str) -> None:
        """Prepares the environment.

        Args:
            folder: An empty folder that the caller removes.
            **environ: Further variables.
        """
        self.home = folder / "home"
        self._log = folder / "up.log"
        folder.mkdir(parents=True, exist_ok=True)
        self._lock = _locked(folder)
        own = {k: v for k, v in os.environ.items() if not k.startswith("PT2HUB_") or k in _KEPT}
        self.environ = own | {"PT2HUB_HOME": str(self.home), "PT2HUB_PORT": "0"} | environ
        self._guard = threading.Lock()
        self._running: dict[subprocess.Popen[Any], signal.Signals] = {}
        self._over = False

    def end(self) -> None:
        """Ends everything that runs, from any thread; nothing more is started."""
        with self._guard:
            self._over = True
            running = list(self._running.items())
        for process, number in running:
            process.send_signal(number)
        for process, _ in running:
            _await_end(process)

    @contextmanager
    def server(self, environ: Mapping[str, str] | None = None) -> Iterator[Client]:
        """Runs `pt2hub up` while the block runs; what is published stays for the next server.

        Args:
            environ: Further variables of this server alone.

        Raises:
            ServerUnreachable: It did not start.
        """
        with (
            self._log.open("ab") as output,
            self._started(
                [sys.executable, "-m", "pt2hub", "up", "--json"],
                signal.SIGTERM,
                env=self.environ | dict(environ or {}),
                stderr=output,
                pass_fds=(self._lock,),  # the folder is in use until the server has ended, too
                start_new_session=True,  # Ctrl-C reaches this process, which then stops the server in order
            ) as process,
        ):
            self._await(process)
            with Client(ClientConfig.from_environ(self.environ)) as client:
                yield client

    def child(self, what: str, *arguments: str, environ: Mapping[str, str] | None = None) -> dict[str, Any]:
        """Runs `pt2hub_workers.demonstration` in a fresh process and returns its JSON.

        Args:
            what: Which demonstration.
            *arguments: Its arguments.
            environ: Further variables.

        Raises:
            InternalError: It failed.
        """
        with self._started(
            [sys.executable, "-m", "pt2hub_workers.demonstration", what, *arguments],
            signal.SIGKILL,
            env=self.environ | dict(environ or {}),
            stderr=subprocess.PIPE,
            text=True,
        ) as process:
            out, err = process.communicate(timeout=CHILD_SECONDS)
        if process.returncode:
            text = err.strip()[-800:]
            raise InternalError(
                f"it ended with code {process.returncode}: {text}", where=f"demonstration {what}"
            )
        answer: dict[str, Any] = json.loads(out)
        return answer

    @contextmanager
    def _started(
        self,
        argv: list[str],
        number: signal.Signals,
        **options: Any,  # noqa: ANN401  # those of Popen
    ) -> Iterator[subprocess.Popen[Any]]:
        """Runs a process while the block runs; it gets a signal at the end of the block or of this thread.

        Raises:
            InternalError: The trial is over.
        """
        with self._guard:
            if self._over:
                raise InternalError("The trial was ended.")
            process = subprocess.Popen(argv, stdout=subprocess.PIPE, preexec_fn=tied(number), **options)  # noqa: PLW1509  # one system call through an already loaded library
            self._running[process] = number
        try:
            yield process
        finally:
            with process:  # closes the pipes and waits
                process.send_signal(number)
                _await_end(process)
            with self._guard:
                del self._running[process]

    def _await(self, process: subprocess.Popen[bytes]) -> None:
        """Waits for the one JSON line that `pt2hub up --json` prints when everything runs."""
        line = process.stdout.readline() if process.stdout else b""
        if not line:
            text = self._log.read_text(errors="replace").strip()[-800:]
            raise ServerUnreachable(
                f"pt2hub up ended with code {process.wait()}: {text}",
                where="pt2hub up",
                hint="Run `pt2hub up` by itself to see the whole message.",
            )
        if error := json.loads(line).get("error"):
            raise from_dict(error)


def _await_end(process: subprocess.Popen[Any]) -> None:
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(STOP_SECONDS)
        return
    process.kill()


def _locked(folder: Path) -> int:
    """Marks a folder as in use, as long as this process or one that inherits the lock lives."""
    unlocked = folder / f"{_LOCK}.{os.getpid()}"  # under its name it is never seen without its lock
    lock = os.open(unlocked, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    fcntl.flock(lock, fcntl.LOCK_SH)
    unlocked.replace(folder / _LOCK)
    return lock


def _remove_unused(lock: Path) -> None:
    with contextlib.suppress(OSError):  # another user's, or in use
        file = os.open(lock, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(lock.parent, ignore_errors=True)
        finally:
            os.close(file)
