"""The axes of a CUDA artifact, on a machine with a GPU: what is described, judged, and what then really happens.

    PYTHONPATH=registry:workers:tests python -m pytest -m gpu -s --confcutdir=tests/gpu tests/gpu/test_cuda_compatibility.py

It publishes resnet18 once, unmeasured; the rest takes seconds.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
import torch

from pt2hub.cli.operations import demo
from pt2hub.client.artifacts.single_file import write_model
from pt2hub.client.machine.host import whole_host
from pt2hub.domain.compatibility.hosts import parse_host
from support.gpu import UNMEASURED, publish

if TYPE_CHECKING:
    from pathlib import Path

    from pt2hub.client.client import Client
    from pt2hub.domain.compatibility.hosts import Host
    from pt2hub.wire.host_checks import ArtifactCheck

pytestmark = pytest.mark.gpu
LOAD = """
import sys, torch, pt2hub
try:
    pt2hub.load(sys.argv[1], offline=True)
except pt2hub.errors.Pt2hubError as error:
    print(error.code, error)
else:
    print("loaded")
"""
STOCK = """
import sys, torch, torch._inductor
model = torch._inductor.aoti_load_package(sys.argv[1])
print(model(torch.zeros(2, 3, 224, 224, device="cuda")).shape)
"""


@pytest.fixture(scope="module")
def reference(client: Client) -> str:
    return publish(client, {**demo.SPEC, "model": "vision/resnet18-axes", "measure": UNMEASURED})


def judged(client: Client, reference: str, host: Host) -> ArtifactCheck:
    (found,) = client.artifacts.check(reference, host).artifacts
    return found


def on(found: ArtifactCheck, axis: str) -> str:
    return next(item.state for item in found.findings if item.axis == axis)


def test_the_machine_describes_its_gpu(client: Client, reference: str) -> None:
    host = whole_host()
    shown = {name: value for name, value in host.as_document().items() if not isinstance(value, list)}
    print(json.dumps(shown))
    major, minor = torch.cuda.get_device_capability()
    limit = torch.cuda.get_device_properties(0).shared_memory_per_block_optin  # type: ignore[attr-defined]  # the stub lacks it
    assert (host.sm, host.shared_memory_bytes) == (f"sm{major}{minor}", limit)
    assert host.cuda == str(torch.version.cuda).replace(".", "")
    smi = subprocess.run(["nvidia-smi"], capture_output=True, text=True, check=True).stdout
    assert f"CUDA Version: {host.driver_cuda}" in smi
    assert f"Driver Version: {host.driver}" in smi
    assert parse_host(host.as_document()) == host
    found = judged(client, reference, host)
    print(json.dumps([[item.axis, item.state, item.needs, item.has] for item in found.findings]))
    assert found.state == "compatible"


def test_other_machines_are_told_apart_by_the_axis_that_fails(client: Client, reference: str) -> None:
    host = whole_host()
    others = {
        "device": replace(host, sm=None, shared_memory_bytes=None),
        "compute capability": replace(host, sm="sm80"),
        "cuda": replace(host, cuda="126"),
        "driver": replace(host, driver="470.57.02", driver_cuda="11.4"),
        "shared memory": replace(host, shared_memory_bytes=1024),
    }
    for axis, other in others.items():
        found = judged(client, reference, other)
        print(json.dumps([axis, found.state, found.reasons]))
        assert on(found, axis) == "incompatible"
        assert found.state == "incompatible"
        failed = [item.axis for item in found.findings if item.state == "incompatible"]
        assert failed == [axis], "the machine differs in nothing else"


def test_a_driver_of_another_minor_release_is_degraded(client: Client, reference: str) -> None:
    host = whole_host()
    major = int(str(host.cuda)[:2])
    for minor, state in ((0, None), (9, "compatible")):
        found = judged(client, reference, replace(host, driver_cuda=f"{major}.{minor}"))
        expected = state or ("compatible" if host.cuda == f"{major}0" else "degraded")
        assert on(found, "driver") == expected


def test_without_a_gpu_nothing_is_loaded_and_the_bare_loader_fails_too(
    client: Client, reference: str, tmp_path: Path
) -> None:
    local = client.pull(reference)
    write_model(local, tmp_path / "model.pt2")
    settings = {"PT2HUB_HOME": str(client.config.home), "PT2HUB_URL": client.config.url}
    hidden = os.environ | settings | {"CUDA_VISIBLE_DEVICES": ""}
    ours = subprocess.run(
        [sys.executable, "-c", LOAD, reference], env=hidden, capture_output=True, text=True, check=False
    )
    print(ours.stdout, ours.stderr[-2000:])
    assert ours.stdout.startswith("incompatible")
    assert "device: needs a CUDA GPU, has no GPU" in ours.stdout
    bare = subprocess.run(
        [sys.executable, "-c", STOCK, str(tmp_path / "model.pt2")],
        env=hidden,
        capture_output=True,
        text=True,
        check=False,
    )
    print(bare.stderr[-300:])
    assert bare.returncode != 0
    seen = subprocess.run(
        [sys.executable, "-c", LOAD, reference],
        env=os.environ | settings,
        capture_output=True,
        text=True,
        check=False,
    )
    assert seen.stdout == "loaded\n", seen.stderr[-2000:]
