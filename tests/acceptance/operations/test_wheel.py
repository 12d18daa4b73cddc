"""The wheel, installed as users install it: fresh virtual environments, nothing of the checkout in reach.

pip really installs the light wheel. For the full one, what the wheel's metadata asks for is linked from the packages that
these tests run with, and pip then finds nothing missing: it would unpack more than a gigabyte for a minute.
"""

from __future__ import annotations

import email
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import sysconfig
import urllib.request
import zipfile
from dataclasses import dataclass
from importlib.metadata import files as files_of
from importlib.metadata import requires, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from packaging.requirements import Requirement

import pt2hub
from support.headers import PLACE
from support.running import processes_of, wait_for_none

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parents[3]
LIGHT_PACKAGES = 12
HEAVY = ("torch", "flask", "sqlalchemy", "pydantic", "psycopg", "boto3", "urllib3", "rich")
OURS = ("pt2hub.server", "pt2hub.client", "pt2hub.cli", "pt2hub_workers")
PAGES = "pt2hub/server/pages"
SPEC = """
model: tiny/mlp
source: {factory: "torchvision.ops:MLP", kwargs: {in_channels: 8, hidden_channels: [16, 4]}}
inputs: [{name: input, shape: [batch, 8], generate: {normal: {}}}]
dims: {batch: {min: 1, max: 16, example: 2}}
targets: [torch0.0-cpu-x86_64]
"""
IMPORT_ALL = """
import importlib, pkgutil, sys
import pt2hub, pt2hub_workers
for package in (pt2hub, pt2hub_workers):
    for module in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
        if ".migrations." not in module.name and not module.name.endswith("__main__"):
            importlib.import_module(module.name)
print(*{module.__file__ for name, module in sys.modules.items() if name.startswith("pt2hub")}, sep=chr(10))
"""


@dataclass(frozen=True)
class Installed:
    """A virtual environment with the wheel, and a working directory and a home."""

    folder: Path
    venv: Path

    @property
    def home(self) -> Path:
        return self.folder / "home"

    @property
    def work(self) -> Path:
        return self.folder / "work"

    @property
    def environ(self) -> dict[str, str]:
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("PT2HUB_", "PYTHON", "VIRTUAL_ENV"))}
        own = {"PT2HUB_HOME": str(self.home), "PT2HUB_SCRATCH": str(self.work), "TMPDIR": str(self.work)}
        return kept | own | {"PT2HUB_FACTORIES": "torchvision.ops", "PT2HUB_HEADERS": str(PLACE)}

    def start(self, program: str, *arguments: str, **environ: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [str(self.venv / "bin" / program), *arguments],
            cwd=self.work,
            env={**self.environ, **environ},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, program: str, *arguments: str, code: int = 0) -> str:
        """What a program prints; it must end with this code."""
        process = self.start(program, *arguments)
        stdout, stderr = process.communicate(timeout=300)
        assert process.returncode == code, stdout + stderr
        return stdout

    def json(self, *arguments: str, code: int = 0) -> Any:
        """The JSON of one of our commands."""
        return json.loads(self.run("pt2hub", *arguments, "--json", code=code))


def pip(*arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "pip", *arguments], cwd="/", capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def build(folder: Path) -> Path:
    pip("wheel", "--no-deps", "--wheel-dir", str(folder), str(ROOT))
    (wheel,) = folder.iterdir()
    return wheel


def install(wheel: Path, made: Installed, extra: str = "") -> None:
    made.work.mkdir()
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(made.venv)], check=True)
    if extra:
        link_packages(wheel, extra.strip("[]"), made.venv)
    options = ["--no-index"] if extra else []  # all is there, or pip says what is not
    python = str(made.venv / "bin" / "python")
    pip("--python", python, "install", "--no-compile", *options, f"pt2hub{extra} @ {wheel.as_uri()}")
    pip("--python", python, "check")


def link_packages(wheel: Path, extra: str, venv: Path) -> None:
    """Link everything that an extra of the wheel requires, from these tests' packages into a virtual environment."""
    with zipfile.ZipFile(wheel) as archive:
        (metadata,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        own = email.message_from_bytes(archive.read(metadata)).get_all("Requires-Dist", [])
    target = venv / Path(sysconfig.get_path("purelib")).relative_to(sys.prefix)
    waiting, seen = [("pt2hub", extra)], set()
    while waiting:
        package, chosen = waiting.pop()
        for line in own if package == "pt2hub" else requires(package) or []:
            needed = Requirement(line)
            if needed.marker is None or needed.marker.evaluate({"extra": chosen}):
                waiting += {(needed.name, item) for item in ("", *needed.extras)} - seen
                seen |= {(needed.name, item) for item in ("", *needed.extras)}
    for package in {name for name, _ in seen} - {"pt2hub"}:
        for path in files_of(package) or []:
            link = target / path
            link.parent.mkdir(parents=True, exist_ok=True)
            if not link.exists():
                os.link(str(path.locate()), link)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from the checkout."""
    return build(tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def light(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installed]:
    """The wheel without extras."""
    folder = tmp_path_factory.mktemp("light")
    made = Installed(folder, folder / "venv")
    install(wheel, made)
    yield made
    shutil.rmtree(made.venv)


@pytest.fixture
def full(wheel: Path, tmp_path: Path) -> Iterator[Installed]:
    """The wheel with everything; whatever a test leaves running on its home is ended."""
    made = Installed(tmp_path, tmp_path / "venv")
    install(wheel, made, "[worker]")
    yield made
    for pid in processes_of(made.home):
        os.kill(pid, signal.SIGKILL)
    shutil.rmtree(made.venv)


def members(wheel: Path) -> list[str]:
    with zipfile.ZipFile(wheel) as archive:
        return archive.namelist()


def files(folder: Path, package: str) -> set[str]:
    found = {path.relative_to(folder) for path in (folder / package).rglob("*") if path.is_file()}
    return {path.as_posix() for path in found if "__pycache__" not in path.parts}


def test_two_builds_are_the_same_file(wheel: Path, tmp_path: Path) -> None:
    again = build(tmp_path / "again")
    assert (again.name, members(again)) == (wheel.name, members(wheel))
    assert again.read_bytes() == wheel.read_bytes()


def test_the_wheel_holds_both_packages_the_migrations_the_pages_and_nothing_else(wheel: Path) -> None:
    expected = files(ROOT / "registry", "pt2hub") | files(ROOT / "workers", "pt2hub_workers")
    expected |= {f"pt2hub/server/db/{name}" for name in files(ROOT, "migrations")}
    expected |= {f"{PAGES}/{name}" for name in files(ROOT / "web", "templates")}
    with zipfile.ZipFile(wheel) as archive:
        assets = json.loads(archive.read(f"{PAGES}/static/assets.json"))
    assert {"pages.css", "pages.js", "licenses.txt"} <= assets.keys()
    expected |= {f"{PAGES}/static/{name}" for name in ("assets.json", *assets.values())}
    assert {name for name in members(wheel) if ".dist-info/" not in name} == expected


def test_without_extras_it_brings_at_most_twelve_packages(light: Installed) -> None:
    listed = json.loads(pip("--python", str(light.venv / "bin" / "python"), "list", "--format", "json"))
    brought = {item["name"] for item in listed} - {"pt2hub", "pip", "setuptools"}
    assert len(brought) <= LIGHT_PACKAGES, brought


def test_importing_it_loads_neither_torch_nor_anything_of_the_server(light: Installed) -> None:
    code = "import pt2hub, sys; print(pt2hub.__file__, *sys.path, sep=chr(10)); print(*sys.modules)"
    place, *paths, modules = light.run("python", "-c", code).splitlines()
    assert Path(place).is_relative_to(light.venv)
    assert [path for path in paths if path.startswith(str(ROOT))] == []
    assert set(HEAVY + OURS) & set(modules.split()) == set()


def test_the_light_command_line_works_as_far_as_a_server(light: Installed) -> None:
    assert light.run("pt2hub", "--version").strip() == pt2hub.__version__
    assert "publish" in light.run("pt2hub", "--help")
    (light.work / "spec.yaml").write_text(SPEC)
    with socket.socket() as deaf:  # nobody listens on its port, whatever runs on this machine
        deaf.bind(("127.0.0.1", 0))
        light.home.mkdir(exist_ok=True)
        (light.home / "config.toml").write_text(f'url = "http://127.0.0.1:{deaf.getsockname()[1]}"\n')
        for command in ("publish spec.yaml", "show tiny/mlp@1", "pull tiny/mlp@1", "logs 1234"):
            assert light.json(*command.split(), code=1)["error"]["code"] == "server_unreachable", command


@pytest.mark.parametrize("command", ["up", "admin token", "admin reindex"])
def test_a_command_of_the_server_says_what_to_install(light: Installed, command: str) -> None:
    error = light.json(*command.split(), code=1)["error"]
    assert error["code"] == "bad_configuration"
    assert "pip install 'pt2hub[server]'" in error["hint"]


def read(address: str, content_type: str) -> str:
    with urllib.request.urlopen(address, timeout=20) as answer:
        assert answer.headers.get_content_type() == content_type
        return str(answer.read().decode())


def assert_pages_come_with_their_files(url: str) -> None:
    read(f"{url}/api/v1/docs", "text/html")
    front = read(url, "text/html")
    ((style,), (script,)) = (re.findall(rf'"(/static/pages-\w+\.{kind})"', front) for kind in ("css", "js"))
    assert "--ground" in read(url + style, "text/css")
    read(url + script, "text/javascript")


def test_the_whole_way_runs_from_the_wheel(full: Installed) -> None:
    """Builds compile nothing here: what compiling imports, a sandbox that reaches the wheel, and torch in it suffice."""
    (full.work / "spec.yaml").write_text(SPEC)
    up = full.start("pt2hub", "up", "--port", "0", "--json", PT2HUB_TOOLCHAIN="noop")
    assert up.stdout is not None
    started = json.loads(up.stdout.readline())
    assert "url" in started, (started, up.communicate())
    assert_pages_come_with_their_files(started["url"])
    assert [line for line in processes_of(full.home).values() if str(ROOT) in line] == []

    published = full.json("publish", "spec.yaml", "--wait")
    assert published["readiness"] == "ready", published
    pulled = full.json("pull", "tiny/mlp@1", "--target", "torch0.0-cpu-x86_64", "-o", "model.pt2")
    assert pulled["artifact"] == published["builds"][0]["artifact"]
    assert (full.work / "model.pt2").is_file()

    refused = full.json("worker", "--target", "torch2.13-cpu-nonsense", code=1)["error"]
    assert refused["code"] == "unknown_target", refused
    assert f"auto, torch{version('torch').rpartition('.')[0]}-cpu-" in refused["hint"]
    imported = full.run("python", "-c", IMPORT_ALL).splitlines()
    assert len(imported) > 300
    assert [path for path in imported if not Path(path).is_relative_to(full.venv)] == []

    up.send_signal(signal.SIGINT)
    _, told = up.communicate(timeout=60)
    assert (up.returncode, "Traceback" in told) == (0, False), told
    assert wait_for_none(full.home) == {}
    left = {
        path.name for path in full.work.rglob("*") if path.is_file() and path.suffix not in (".lock", ".turn")
    }
    assert left == {"model.pt2", "spec.yaml"}
