"""A model that calls an operator of an installed package: its artifact says so, and loads where the package is installed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch

from pt2hub.client.machine import libraries
from support.code import DIGEST, archive
from support.workbench import Workbench, child_environ, tiny_spec, toolchain_in

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pt2hub_workers.builds.aoti_toolchain import AotiToolchain

pytestmark = pytest.mark.compiles
OPERATOR = """
#include <torch/library.h>
at::Tensor act(const at::Tensor& x) { return at::Tensor(x).mul(2.0).add(1.0); }
TORCH_LIBRARY(opkit, m) { m.def("act(Tensor x) -> Tensor"); }
TORCH_LIBRARY_IMPL(opkit, CompositeExplicitAutograd, m) { m.impl("act", act); }
"""
PACKAGE = """
from pathlib import Path

import torch

torch.ops.load_library(Path(__file__).with_name("operators.so"))
"""
METADATA = "Metadata-Version: 2.1\nName: opkit\nVersion: {}\nRequires-Dist: torch>=2\n"
NET = """
import opkit
import torch


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(8, 8)

    def forward(self, x):
        return torch.ops.opkit.act(self.linear(x)).relu()


def build():
    return Net()
"""
LOAD = """
import json, sys
from pathlib import Path

import torch

from pt2hub.client.artifacts.loader import load_artifact
from pt2hub.client.artifacts.local import LocalArtifact
from pt2hub.client.machine.host import check_host
from pt2hub.domain.artifacts import ArtifactConfig
from pt2hub.domain.codec import decode
from pt2hub.errors import Incompatible

config, code, weights = sys.argv[1:]
artifact = LocalArtifact.from_files(
    decode(ArtifactConfig, json.loads(Path(config).read_text())), Path(code), Path(weights)
)
try:
    print(check_host(artifact.config).state, load_artifact(artifact)(torch.ones(3, 8)).shape)
except Incompatible as error:
    print(error)
"""


def package(folder: Path, version: str, library: Path | None = None) -> Path:
    """A folder with the package, installed."""
    (folder / "opkit").mkdir(parents=True)
    (folder / "opkit" / "__init__.py").write_text(PACKAGE)
    (folder / f"opkit-{version}.dist-info").mkdir()
    (folder / f"opkit-{version}.dist-info" / "METADATA").write_text(METADATA.format(version))
    (folder / f"opkit-{version}.dist-info" / "top_level.txt").write_text("opkit\n")
    if library:
        (folder / "opkit" / "operators.so").symlink_to(library)
        return folder
    include, libraries_of_torch = (Path(torch.__file__).parent / name for name in ("include", "lib"))
    command = ["g++", "-std=c++20", "-O0", "-fPIC", "-shared", f"-I{include}", "-x", "c++", "-"]
    linked = ["-o", str(folder / "opkit" / "operators.so"), f"-L{libraries_of_torch}", "-ltorch_cpu", "-lc10"]
    subprocess.run([*command, *linked], input=OPERATOR, text=True, check=True, capture_output=True)
    return folder


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The package, for this process and its children."""
    folder = package(tmp_path_factory.mktemp("installed"), "1.2")
    sys.path.insert(0, str(folder))
    libraries.operator_libraries.cache_clear()
    yield folder
    sys.path.remove(str(folder))
    libraries.operator_libraries.cache_clear()


@pytest.fixture
def bench(aoti: AotiToolchain, installed: Path, tmp_path: Path) -> Iterator[Workbench]:
    """Builds whose children find the package; the other toolchain has prepared PyTorch's headers."""
    environ = child_environ()
    environ["PYTHONPATH"] += f"{os.pathsep}{installed}"
    toolchain = toolchain_in(tmp_path, environ, target=aoti.machine().target.name)
    yield Workbench(tmp_path, toolchain)
    toolchain.close()


def loaded(parts: dict[str, Any], folder: Path, *paths: Path) -> str:
    """What a fresh process with these packages says of the artifact."""
    config = folder / "config.json"
    config.write_text(json.dumps(parts["config"]))
    environ = child_environ()
    environ["PYTHONPATH"] = os.pathsep.join([*map(str, paths), environ["PYTHONPATH"]])
    command = [sys.executable, "-c", LOAD, str(config), parts["code_path"], parts["weights_path"]]
    return subprocess.run(command, env=environ, capture_output=True, text=True, check=True).stdout.strip()


def test_an_operator_of_a_package_is_recorded_verified_and_checked(
    bench: Workbench, installed: Path, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    source = archive(tmp_path / "source", {"net.py": NET})
    spec = tiny_spec(source={"entry": "net:build", "code": DIGEST, "seed": 3})
    parts = bench.build(
        spec, source=source
    )  # a process that imports only what the artifact names verifies it
    native = parts["config"]["native"]
    assert (native["operators"], native["operator_libraries"]) == (["opkit::act"], {"opkit": "1.2"})
    assert loaded(parts, tmp_path, installed) == "compatible torch.Size([3, 8])"
    library = installed / "opkit" / "operators.so"
    newer = package(tmp_path_factory.mktemp("newer"), "1.3", library)
    assert loaded(parts, tmp_path, newer) == "degraded torch.Size([3, 8])"
    refused = loaded(parts, tmp_path)
    assert "operator libraries: needs opkit 1.2, has no opkit" in refused
