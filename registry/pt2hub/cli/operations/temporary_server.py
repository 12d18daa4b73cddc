"""A complete server in a temporary home, for the demo and the benchmarks."""

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
from pt2hub.system.processes import die_with_parent
from pt2hub.wire.problems import from_dict

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

CHILD_TIMEOUT_S = 600.0
STOP_TIMEOUT_S = 60.0
_KEPT = ("PT2HUB_SCRATCH", "PT2HUB_HEADERS", CPU_LEVEL)
"""Settings inherited from the caller; all others belong to the caller's own server."""
_LOCK = "in-use"
"""Name of the file that this process and its server keep locked while their folder is in use."""


@contextmanager
def temporary_home(prefix: str) -> Iterator[Path]:
    """Yield a temporary folder, after removing folders with the same prefix that killed processes left behind."""
    for lock in Path(tempfile.gettempdir()).glob(f"{prefix}*/{_LOCK}"):
        _remove_unused(lock)
    with tempfile.TemporaryDirectory(prefix=prefix, ignore_cleanup_errors=True) as name:
        yield Path(name)


class TemporaryServer:
    """A home with a server (`pt2hub up`), and fresh client processes that use it.

    All processes end when the thread that started them ends, for whatever reason.

    Args:
        folder: An empty folder, which the caller removes.
    """

    def __init__(self, folder: Path, **environ: str) -> None:
        self.home = folder / "home"
        self._log = folder / "up.log"
        folder.mkdir(parents=True, exist_ok=True)
        self._lock = _lock_folder(folder)
        own = {k: v for k, v in os.environ.items() if not k.startswith("PT2HUB_") or k in _KEPT}
        self.environ = own | {"PT2HUB_HOME": str(self.home), "PT2HUB_PORT": "0"} | environ
        self._guard = threading.Lock()
        self._running: dict[subprocess.Popen[Any], signal.Signals] = {}
        self._over = False

    def end(self) -> None:
        """End all processes, from any thread; no more are started."""
        with self._guard:
            self._over = True
            running = list(self._running.items())
        for process, number in running:
            process.send_signal(number)
        for process, _ in running:
            _await_end(process)

    @contextmanager
    def server(self, environ: Mapping[str, str] | None = None) -> Iterator[Client]:
        """Run `pt2hub up` while the block runs; its data stays for the next server.

        Raises:
            ServerUnreachable: The server did not start.
        """
        with (
            self._log.open("ab") as output,
            self._run_process(
                [sys.executable, "-m", "pt2hub", "up", "--json"],
                signal.SIGTERM,
                env=self.environ | dict(environ or {}),
                stderr=output,
                pass_fds=(self._lock,),  # the folder stays in use until the server has ended too
                start_new_session=True,  # Ctrl-C reaches this process only, which then stops the server cleanly
            ) as process,
        ):
            self._await(process)
            with Client(ClientConfig.from_environ(self.environ)) as client:
                yield client

    def child(
        self,
        what: str,
        *arguments: str,
        environ: Mapping[str, str] | None = None,
        program: tuple[str, ...] = ("-m", "pt2hub_workers.performance.demonstration"),
    ) -> dict[str, Any]:
        """Run a Python program in a fresh process and return its JSON output.

        Raises:
            InternalError: The program failed, or took too long.
        """
        with self._run_process(
            [sys.executable, *program, what, *arguments],
            signal.SIGKILL,
            env=self.environ | dict(environ or {}),
            stderr=subprocess.PIPE,
            text=True,
        ) as process:
            try:
                out, err = process.communicate(timeout=CHILD_TIMEOUT_S)
            except subprocess.TimeoutExpired as expired:
                raise InternalError(
                    f"The process gave no answer within {CHILD_TIMEOUT_S:g} s.", where=f"demonstration {what}"
                ) from expired
        if process.returncode:
            text = err.strip()[-800:]
            raise InternalError(
                f"The process exited with code {process.returncode}: {text}", where=f"demonstration {what}"
            )
        answer: dict[str, Any] = json.loads(out)
        return answer

    @contextmanager
    def _run_process(
        self,
        argv: list[str],
        number: signal.Signals,
        **options: Any,
    ) -> Iterator[subprocess.Popen[Any]]:
        """Run a process while the block runs; send it a signal at the end of the block or of this thread.

        Raises:
            InternalError: `end` was called.
        """
        with self._guard:
            if self._over:
                raise InternalError("The temporary server was stopped.")
            process = subprocess.Popen(
                argv,
                stdout=subprocess.PIPE,
                preexec_fn=die_with_parent(number),  # noqa: PLW1509  # one system call through a loaded library
                **options,
            )
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
        """Wait for the JSON line that `pt2hub up --json` prints once everything runs."""
        line = process.stdout.readline() if process.stdout else b""
        if not line:
            text = self._log.read_text(errors="replace").strip()[-800:]
            raise ServerUnreachable(
                f"pt2hub up exited with code {process.wait()}: {text}",
                where="pt2hub up",
                hint="To see the whole message, run `pt2hub up`.",
            )
        if error := json.loads(line).get("error"):
            raise from_dict(error)


def _await_end(process: subprocess.Popen[Any]) -> None:
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(STOP_TIMEOUT_S)
        return
    process.kill()


def _lock_folder(folder: Path) -> int:
    """Mark a folder as in use while this process, or one that inherits the lock, lives."""
    unlocked = folder / f"{_LOCK}.{os.getpid()}"  # renamed once locked, so that others never see it unlocked
    lock = os.open(unlocked, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    fcntl.flock(lock, fcntl.LOCK_SH)
    unlocked.replace(folder / _LOCK)
    return lock


def _remove_unused(lock: Path) -> None:
    with contextlib.suppress(OSError):  # owned by another user, or in use
        file = os.open(lock, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(lock.parent, ignore_errors=True)
        finally:
            os.close(file)
