"""`pt2hub up` and `pt2hub api` as real processes, and what they leave behind."""

from __future__ import annotations

import http.client
import json
import os
import signal
import subprocess
import sys
import time
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pt2hub.client.config import CPU_LEVEL
from support.headers import PLACE

if TYPE_CHECKING:
    from collections.abc import Mapping

START_SECONDS = 60.0
_PROGRAM = (sys.executable, "-m", "pt2hub")


class Up:
    """A running `pt2hub up` on a port of its own, without a worker unless one is wanted."""

    def __init__(
        self, home: Path, *args: str, worker: bool = False, environ: Mapping[str, str] | None = None
    ) -> None:
        self.home = home
        self.output = ""
        self.progress: list[str] = []
        self.process = subprocess.Popen(
            [*_PROGRAM, "up", *(() if worker else ("--no-worker",)), *(args or ("--port", "0"))],
            env={**clean_environ(home), **(environ or {})},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def wait_ready(self) -> Up:
        """Waits for the line that says how to stop."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.output += line
            if "Ctrl-C" in line:
                return self
        assert self.process.stderr is not None
        raise AssertionError(f"up ended with {self.process.wait()}: {self.process.stderr.read()}")

    @property
    def settings(self) -> dict[str, Any]:
        """What it wrote for the client."""
        return tomllib.loads((self.home / "config.toml").read_text())

    def request(
        self, method: str, path: str, body: bytes | None = None, *, token: str | None = None
    ) -> tuple[int, Any]:
        """Status and JSON of an answer."""
        connection = http.client.HTTPConnection(self.settings["url"].removeprefix("http://"), timeout=20)
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        try:
            connection.request(method, path, body=body, headers=headers)
            response = connection.getresponse()
            return response.status, json.loads(response.read() or b"null")
        finally:
            connection.close()

    def end(self, number: signal.Signals = signal.SIGINT) -> tuple[int, str]:
        """Sends a signal and waits."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        return self.wait()

    def wait(self) -> tuple[int, str]:
        """Waits for the end; the exit code and what was written to standard error beside the usual progress."""
        _, stderr = self.process.communicate(timeout=60)
        self.progress += [line for line in stderr.splitlines() if line.startswith("up: ")]
        complaints = [line for line in stderr.splitlines(keepends=True) if not line.startswith("up: ")]
        return self.process.returncode, "".join(complaints)


class Api:
    """A running `pt2hub api`, or one that ended before it answered."""

    def __init__(
        self, folder: Path, database_url: str, *args: str, environ: Mapping[str, str] | None = None
    ) -> None:
        self.folder = folder
        self.log = folder / "api.log"
        (folder / "blobs").mkdir(exist_ok=True)
        given = {"PT2HUB_DATABASE_URL": database_url, "PT2HUB_STORAGE": str(folder / "blobs")}
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [*_PROGRAM, "api", "--port", "0", *args],
                env={**clean_environ(folder / "home"), **given, **(environ or {})},
                stdout=subprocess.DEVNULL,
                stderr=log,
            )

    def wait_ready(self) -> Api:
        """Waits until it says where it answers."""
        until = time.monotonic() + START_SECONDS
        while not any(line["event"] == "the API answers" for line in self.lines()):
            assert self.process.poll() is None, self.log.read_text()
            assert time.monotonic() < until, self.log.read_text()
            time.sleep(0.05)
        return self

    def lines(self) -> list[dict[str, Any]]:
        """What it logged."""
        return [
            json.loads(line) for line in self.log.read_text().splitlines(keepends=True) if line[-1] == "\n"
        ]

    @property
    def url(self) -> str:
        """Its address."""
        return next(str(line["url"]) for line in self.lines() if line["event"] == "the API answers")

    @property
    def address(self) -> tuple[str, int]:
        """Host and port."""
        host, _, port = self.url.removeprefix("http://").rpartition(":")
        return host, int(port)

    def get(self, path: str) -> tuple[int, Any]:
        """Status and JSON of an answer."""
        connection = http.client.HTTPConnection(*self.address, timeout=20)
        try:
            connection.request("GET", path)
            response = connection.getresponse()
            return response.status, json.loads(response.read() or b"null")
        finally:
            connection.close()

    def end(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Sends a signal and waits; the exit code."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        return self.process.wait(60)


def clean_environ(home: Path) -> dict[str, str]:
    """The environment without settings of ours, on a home; real workers find the headers that all share."""
    kept = {
        key: value for key, value in os.environ.items() if not key.startswith("PT2HUB_") or key == CPU_LEVEL
    }
    own = {"PT2HUB_HOME": str(home), "PT2HUB_HEADERS": str(PLACE), "PYTHONPATH": os.pathsep.join(sys.path)}
    return {**kept, **own}


def processes_of(home: Path) -> dict[int, str]:
    """Living processes that have to do with a home: by arguments, environment or working directory."""
    found = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                arguments = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                environ = (entry / "environ").read_bytes().decode(errors="replace")
                ours = str(home) in arguments + environ + str((entry / "cwd").readlink())
            except OSError:  # it has just ended, or is a zombie
                continue
            if ours:
                found[int(entry.name)] = arguments
    return found


def oldest(home: Path, words: str) -> int:
    """The process of a home that was started first of those whose arguments hold these words.

    Numbers do not tell: after a while the kernel begins at low ones again.
    """
    found = [pid for pid, arguments in processes_of(home).items() if words in arguments]
    return min(found, key=_started)


def _started(pid: int) -> int:
    """When a process was started, in ticks since the machine was."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])


def wait_for_none(home: Path, *, seconds: float = 15.0) -> dict[int, str]:
    """What is left of a home's processes after a while; empty as soon as there is nothing."""
    deadline = time.monotonic() + seconds
    while (left := processes_of(home)) and time.monotonic() < deadline:
        time.sleep(0.05)
    return left
