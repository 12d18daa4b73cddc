"""What docker/ starts, started without containers: the commands, variables and health checks of its own files.

Instead of the containers' names and file systems stand addresses and folders of this machine: a real PostgreSQL,
reached through its socket; the S3 server by its own command line; and the workers build with the no-op toolchain.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Self

import pytest

from pt2hub.client.client import Client
from pt2hub.client.config import ClientConfig
from pt2hub.system.processes import Child, spawn, tail
from support.containers import DOCKER, Started, images, services
from support.ports import free_ports
from support.running import clean_environ, processes_of, wait_for_none

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

TARGET = "torch0.0-cpu-x86_64"
SPEC = {
    "model": "containers/noop",
    "source": {"factory": "torchvision.models:resnet18"},
    "inputs": [{"name": "x", "shape": [2, 3, 224, 224], "generate": {"normal": {}}}],
    "targets": [TARGET],
}
OTHER_PORTS = ("master", "filer", "volume", "admin")


class Host:
    """A machine that runs the services of the compose file as plain processes."""

    def __init__(self, folder: Path, database_url: str) -> None:
        ports = free_ports(2 + 2 * len(OTHER_PORTS) + 1)
        self.folder, self.port, self._s3_port, self._ports = folder, ports[0], ports[1], ports[2:]
        given = {
            name: secrets.token_hex(12) for name in ("POSTGRES_PASSWORD", "S3_ACCESS_KEY", "S3_SECRET_KEY")
        }
        built = images((DOCKER / "Dockerfile").read_text())
        self._services = services((DOCKER / "compose.yaml").read_text(), given, built)
        self._inside = {
            f"postgresql://pt2hub:{given['POSTGRES_PASSWORD']}@postgres/pt2hub": database_url,
            "http://s3:8333": f"http://127.0.0.1:{self._s3_port}",
            "http://127.0.0.1:8333": f"http://127.0.0.1:{self._s3_port}",
            "-s3.port=8333": f"-s3.port={self._s3_port}",
            "-ip.bind=0.0.0.0": "-ip.bind=127.0.0.1",
            "-dir=/data": f"-dir={folder / 'objects'}",
            "0.0.0.0": "127.0.0.1",
            "8400": str(self.port),
            "/var/lib/pt2hub": str(folder / "scratch"),
        }
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *details: object) -> None:
        self._stack.close()

    def start(self, name: str, *, number: int = 1, more: Mapping[str, str] | None = None) -> Child:
        """Starts a service."""
        started, log = self._services[name], self.folder / f"{name}{number}.log"
        argv = [*self._command(started.argv), *(self._free() if name == "s3" else ())]
        child = spawn(argv, log=log, environ={**self._environ(started), **(more or {})})
        self._stack.callback(child.stop, (signal.SIGTERM, 40))
        return child

    def run(self, name: str, *args: str) -> str:
        """What a service prints that ends: `docker compose run --rm NAME ARGS`."""
        started = self._services[name]
        argv = [started.argv[0], *args] if args else started.argv
        finished = subprocess.run(
            self._command(argv), env=self._environ(started), capture_output=True, text=True, check=False
        )
        assert finished.returncode == 0, finished.stderr
        return finished.stdout.strip()

    def healthy(self, name: str, *, more: Mapping[str, str] | None = None) -> bool:
        """Whether a service's health check succeeds."""
        started = self._services[name]
        environ = {**self._environ(started), **(more or {})}
        return (
            subprocess.run(
                self._command(started.check), env=environ, capture_output=True, check=False
            ).returncode
            == 0
        )

    def checks(self, name: str) -> str:
        """The program of a service's health check."""
        return self._services[name].check[0]

    def _command(self, argv: tuple[str, ...] | list[str]) -> list[str]:
        program = Path(sys.executable).with_name(argv[0])
        words = [self._inside_of(word) for word in argv[1:]]
        return [str(program) if program.exists() else argv[0], *words]

    def _environ(self, started: Started) -> dict[str, str]:
        given = {name: self._inside_of(value) for name, value in started.environ.items()}
        kept = clean_environ(self.folder / "home")
        none = {"AWS_CONFIG_FILE": os.devnull, "AWS_SHARED_CREDENTIALS_FILE": os.devnull}
        return {**kept, **none, **given, "HOME": str(self.folder)}

    def _inside_of(self, text: str) -> str:
        return self._inside.get(
            text, text.replace("http://127.0.0.1:8333", self._inside["http://127.0.0.1:8333"])
        )

    def _free(self) -> list[str]:
        """Ports that a container has for itself."""
        names = [f"{part}.port{kind}" for part in OTHER_PORTS for kind in ("", ".grpc")] + ["s3.port.grpc"]
        return [f"-{name}={port}" for name, port in zip(names, self._ports, strict=True)]


@pytest.fixture
def host(tmp_path: Path, database_url: str) -> Iterator[Host]:
    """The machine; nothing is left running on it."""
    for name in ("objects", "scratch"):
        (tmp_path / name).mkdir()
    with Host(tmp_path, database_url) as made:
        yield made
    assert wait_for_none(tmp_path) == {}


def wait_until(condition: Callable[[], bool], child: Child, *, seconds: float = 90.0) -> None:
    until = time.monotonic() + seconds
    while not condition():
        assert child.exit_code() is None, tail(child.log or Path(), lines=40)
        assert time.monotonic() < until, tail(child.log or Path(), lines=40)
        time.sleep(0.2)


def test_the_commands_of_the_compose_file_make_a_plane_that_builds(host: Host, tmp_path: Path) -> None:
    s3 = host.start("s3")
    if shutil.which(host.checks("s3")):
        wait_until(lambda: host.healthy("s3"), s3)
    host.run("migrate")

    assert not host.healthy("api")
    api = host.start("api")
    wait_until(lambda: host.healthy("api"), api)

    noop = {"PT2HUB_TOOLCHAIN": "noop"}
    assert not host.healthy("worker", more=noop)
    workers = [host.start("worker", number=number, more=noop) for number in (1, 2)]
    wait_until(lambda: host.healthy("worker", more=noop), workers[0])

    settings = ClientConfig(
        home=tmp_path / "client", url=f"http://127.0.0.1:{host.port}", token=host.run("api", "admin", "token")
    )
    with Client(settings) as client:
        wait_until(lambda: len(client.workers.list()) == 2, workers[1])
        version = client.publish(SPEC, wait=True)
        assert [(build.target, build.state) for build in version.builds] == [(TARGET, "succeeded")]
        assert (tmp_path / "home").exists() is False

        assert workers[0].stop((signal.SIGTERM, 40)) == 0
        assert workers[1].stop((signal.SIGTERM, 40)) == 0
        assert client.workers.list() == []
    assert not host.healthy("worker", more=noop)
    assert api.stop((signal.SIGTERM, 20)) == 0
    for line in (tmp_path / "api1.log").read_text().splitlines():
        json.loads(line)
    assert [pid for pid, words in processes_of(tmp_path).items() if "weed" not in words] == []
