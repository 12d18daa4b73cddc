"""Workers as real processes over a database and a storage of a test's own, without an API."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pt2hub.domain.codec import encode
from pt2hub.domain.tokens import SERVER
from pt2hub.server.config import ServerConfig
from pt2hub.server.container import open_container
from support.headers import PLACE
from support.registry import Registry
from support.roles import REFUSED, worker_url
from support.running import clean_environ
from support.workbench import FACTORIES, tiny_spec

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pt2hub.server.container import Container
    from pt2hub.wire.responses import BuildView
    from pt2hub.wire.workers import WorkerView

PATIENCE = 180.0
"""Seconds until something that must happen counts as not happening; a real build takes 30 on two cores, if nobody is
beside it."""
READY_SECONDS = 300.0
"""The first worker of a machine compiles PyTorch's headers before it is ready."""
_ROOT = Path(__file__).resolve().parents[2]
_PATHS = os.pathsep.join(str(_ROOT / name) for name in ("registry", "workers", "tests"))


class WorkerProcess:
    """`pt2hub worker`, its output in a file."""

    def __init__(self, environ: dict[str, str], folder: Path, *options: str) -> None:
        self._output = folder / f"worker-{time.monotonic_ns()}.log"
        with self._output.open("wb") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "pt2hub", "worker", *options],
                env=environ,
                stdout=output,
                stderr=subprocess.STDOUT,
            )

    @property
    def output(self) -> str:
        """What it wrote so far."""
        return self._output.read_text()

    @property
    def lines(self) -> list[dict[str, Any]]:
        """What it logged so far."""
        return [json.loads(line) for line in self.output.splitlines() if line.startswith("{")]

    def signal(self, number: signal.Signals = signal.SIGTERM) -> None:
        """Sends it a signal."""
        self.process.send_signal(number)

    def wait(self, seconds: float = PATIENCE) -> int:
        """Waits for its end; the exit code."""
        return self.process.wait(seconds)

    def await_output(self, text: str, seconds: float = PATIENCE) -> None:
        """Waits until it has written something."""
        until(lambda: text in self.output or self.process.poll() is not None, seconds)
        assert text in self.output, self.output


class Works(Registry):
    """The services, and workers that are started on them."""

    def __init__(self, services: Container, environ: dict[str, str], folder: Path) -> None:
        super().__init__(services, services.database_url)
        self.environ = environ
        self.folder = folder
        self.started: list[WorkerProcess] = []

    def start(self, *options: str, ready: bool = True, **environ: str) -> WorkerProcess:
        """Starts a worker, and waits until it takes builds."""
        self.started.append(WorkerProcess({**self.environ, **environ}, self.folder, *options))
        if ready:
            self.started[-1].await_output("worker ready", READY_SECONDS)
        return self.started[-1]

    def noop(self, *options: str, **environ: str) -> WorkerProcess:
        """Starts a worker that compiles nothing."""
        return self.start("--toolchain", "noop", *options, **environ)

    def end(self) -> None:
        """Kill every worker; none may have tried what its role has no rights for, also where it went on without it."""
        for worker in self.started:
            worker.process.kill()
            worker.process.wait()
        for worker in self.started:
            assert REFUSED not in worker.output, worker.output

    def publish(self, seed: int = 1, **fields: Any) -> str:
        """Submits a tiny model; the id of its build."""
        source = {"factory": f"{FACTORIES}:Mlp", "kwargs": {}, "seed": seed}
        version = self.services.publish.submit(tiny_spec(**{"source": source, **fields}), by=SERVER)
        return version.builds[0].id

    def view(self, build: str) -> BuildView:
        """A build."""
        return self.services.builds.view(build)

    def await_step(self, build: str, name: str) -> None:
        """Waits until a build is at a step."""
        until(lambda: any(step.name == name for step in self.view(build).steps))

    def at_step(self, build: str, name: str, *, attempt: int) -> bool:
        """Whether one attempt of a build has come to a step."""
        view = self.view(build)
        return view.attempt == attempt and any(step.name == name for step in view.steps)

    def await_state(self, build: str, *states: str) -> BuildView:
        """Waits until a build is in one of some states."""
        until(lambda: self.view(build).state in states)
        return self.view(build)

    def workers(self) -> list[WorkerView]:
        """Every worker, gone ones too."""
        return list(self.services.workers.workers(gone=True).workers)

    def outcomes(self, build: str) -> list[str | None]:
        """How each attempt of a build ended."""
        return [encode(attempt.outcome) for attempt in self.view(build).attempts]


def until(condition: Callable[[], object], seconds: float = PATIENCE) -> None:
    """Waits for a condition."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.02)


def members(group: int) -> list[int]:
    """Living processes of a process group."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                state, _, number = (entry / "stat").read_text().rpartition(")")[2].split()[:3]
            except OSError:  # it has just ended
                continue
            if int(number) == group and state != "Z":
                found.append(int(entry.name))
    return found


def environ_of(tmp_path: Path, database_url: str) -> dict[str, str]:
    """The environment of a worker over a test's database, as the workers' role, storage and scratch."""
    return {
        **clean_environ(tmp_path / "home"),
        "PYTHONPATH": _PATHS,
        "PT2HUB_DATABASE_URL": worker_url(database_url),
        "PT2HUB_STORAGE": str(tmp_path / "blobs"),
        "PT2HUB_SCRATCH": str(tmp_path),
        "PT2HUB_FACTORIES": f"{FACTORIES},support.header_models",
        "PT2HUB_HEADERS": str(PLACE),
        "TMPDIR": str(tmp_path),  # and so the device's lock: tests beside this one do not wait for each other
    }


@pytest.fixture
def works(tmp_path: Path, migrated_url: str) -> Iterator[Works]:
    """Services over a database of its own; workers that a test left are killed."""
    environ = environ_of(tmp_path, migrated_url)
    with open_container(ServerConfig.from_environ(environ), database_url=migrated_url) as container:
        made = Works(container, environ, tmp_path)
        try:
            yield made
        finally:
            made.end()
