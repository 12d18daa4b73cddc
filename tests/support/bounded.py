"""A small model around an operator of its own, whose body says what it computes beyond a bound."""

from __future__ import annotations

from typing import Any

_NET = """
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = torch.nn.Parameter(torch.ones(8))

    def forward(self, x):
        return act(x * self.scale)

def build():
    return Net()
"""
TORCH = f"""
import torch

@torch.library.triton_op("bounded::act", mutates_args=())
def act(x: torch.Tensor) -> torch.Tensor:
    return torch.where(x > 50, 0.0, x * 2 + 1)
{_NET}"""
TRITON = f"""
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
{_NET}"""


def mended(source: str) -> str:
    """Return a source that computes something else beyond the bound."""
    return source.replace("x > 50, 0.0,", "x > 50, x * 3,")


def spec(model: str, **fields: Any) -> dict[str, Any]:
    """Return the spec of such a model."""
    return {
        "model": model,
        "source": {"entry": "net:build"},
        "inputs": [{"name": "x", "shape": ["batch", 8], "generate": {"normal": {}}}],
        **fields,
    }
