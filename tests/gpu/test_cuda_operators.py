"""Versions whose Triton kernels compute equal numbers with other blocks: none runs the code of another."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch

from support.gpu import UNMEASURED, check_confined

if TYPE_CHECKING:
    from pathlib import Path

    from pt2hub.client.client import Client

pytestmark = pytest.mark.gpu
KERNEL = """
import torch
import triton
import triton.language as tl

BLOCK = 256

@triton.jit
def kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask)
    tl.store(out_ptr + offsets, tl.where(x > 50, 0.0, x * 2 + 1), mask=mask)

@torch.library.triton_op("bounded::act", mutates_args=())
def act(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    n = x.numel()
    torch.library.wrap_triton(kernel)[(triton.cdiv(n, BLOCK),)](x, out, n, BLOCK=BLOCK)
    return out

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = torch.nn.Parameter(torch.ones(8))

    def forward(self, x):
        return act(x * self.scale)

def build():
    return Net()
"""
PLAIN = KERNEL.replace('@torch.library.triton_op("bounded::act", mutates_args=())\n', "").replace(
    "torch.library.wrap_triton(kernel)", "kernel"
)
SPEC: dict[str, Any] = {
    "source": {"entry": "net:build"},
    "inputs": [{"name": "x", "shape": ["batch", 8], "generate": {"normal": {}}}],
    "dims": {"batch": {"min": 1, "max": 1024, "example": 128}},
    "measure": UNMEASURED,
}


def _published(
    client: Client, folder: Path, model: str, source: str, *, strict: bool
) -> tuple[Any, torch.Tensor]:
    """Publishes a source; the artifact's view, and what it computes beyond the branch."""
    folder.mkdir()
    (folder / "net.py").write_text(source)
    version = client.publish({**SPEC, "model": model, "export": {"strict": strict}}, code=folder, wait=True)
    build = version.builds[0]
    check_confined(client, build)
    assert build.artifact is not None
    outputs = client.load(f"{model}@{build.number}")(torch.full((3, 8), 76.28, device="cuda"))
    return client.artifact(build.artifact), outputs


@pytest.mark.parametrize(("source", "strict"), [(KERNEL, False), (PLAIN, True)], ids=["triton_op", "plain"])
def test_another_block_or_body_is_not_answered_with_code_of_the_first(
    client: Client, tmp_path: Path, source: str, *, strict: bool
) -> None:
    model = f"tiny/bounded-{'plain' if strict else 'operator'}"
    sources = {
        "first": source,
        "block": source.replace("BLOCK = 256", "BLOCK = 1024"),
        "mended": source.replace("x > 50, 0.0,", "x > 50, x * 3,"),
        "commented": source.replace("    mask =", "    # what lies within\n    mask ="),
    }
    made = {
        name: _published(client, tmp_path / name, model, text, strict=strict)
        for name, text in sources.items()
    }

    for name in ("first", "block", "mended"):
        assert made[name][0].provenance["code_reused_from"] is None, name
    assert made["commented"][0].provenance["code_reused_from"] is not None
    assert len({view.program_key for view, _ in made.values()}) == 3
    for name, (_, outputs) in made.items():
        torch.testing.assert_close(outputs.cpu(), torch.full((3, 8), 76.28 * 3 if name == "mended" else 0.0))
