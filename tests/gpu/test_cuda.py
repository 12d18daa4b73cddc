"""The main job on a CUDA device, in the sandbox.

By hand: `make test-gpu` (needs the machine's own torch, no virtual environment, and bubblewrap with libseccomp; on a
machine without them `PT2HUB_ISOLATION=process make test-gpu`).
"""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
import torch

from pt2hub.cli import demo
from pt2hub.client.exports import write_model
from support.gpu import check_confined

if TYPE_CHECKING:
    from pathlib import Path

    from pt2hub.client.client import Client

pytestmark = pytest.mark.gpu
STOCK = """
import json, sys, torch, torch._inductor
model = torch._inductor.aoti_load_package(sys.argv[1])
x = torch.load(sys.argv[2])
torch.save(model(x), sys.argv[3])
"""


def _published(client: Client, **fields: Any) -> str:
    spec = {**demo.SPEC, **fields}
    build, seconds = demo.publish(client, spec, print)
    print(json.dumps({"target": build.target, "seconds": seconds, "steps": demo.steps_of(build)}))
    check_confined(client, build)
    return f"{spec['model']}@{build.number}"


def _eager(dtype: torch.dtype = torch.float32) -> torch.nn.Module:
    import torchvision

    torch.manual_seed(0)
    return torchvision.models.resnet18().eval().to("cuda", dtype)


def test_split_and_single_file_agree_with_eager(client: Client, tmp_path: Path) -> None:
    reference = _published(client)
    x = torch.randn(4, 3, 224, 224, device="cuda")
    with torch.inference_mode():
        expected = _eager()(x)

    found = client.load(reference)(x)
    local = client.pull(reference)
    print(json.dumps(local.config.verification, indent=1)[-1200:])
    single = write_model(local, tmp_path / "model.pt2")
    torch.save(x, tmp_path / "x.pt")
    command = [sys.executable, "-c", STOCK, *(str(tmp_path / n) for n in ("model.pt2", "x.pt", "y.pt"))]
    subprocess.run(command, check=True)
    stock = torch.load(tmp_path / "y.pt")

    error = float((found - expected).abs().max())
    print(json.dumps({"split_error": error, "single_bytes": single.size, "digest": single.digest}))
    torch.testing.assert_close(found, expected, rtol=5e-3, atol=5e-3)  # tf32 convolutions
    torch.testing.assert_close(stock, found, rtol=5e-3, atol=5e-3)


def test_half_precision_override_has_weights_of_its_own(client: Client) -> None:
    reference = _published(
        client, model="vision/resnet18-half", targets=[{"target": "auto", "dtype": "float16"}]
    )
    x = torch.randn(4, 3, 224, 224, device="cuda", dtype=torch.float16)
    with torch.inference_mode():
        expected = _eager(torch.float16)(x)

    found = client.load(reference)(x)

    assert found.dtype is torch.float16
    torch.testing.assert_close(found, expected, rtol=5e-2, atol=5e-2)
