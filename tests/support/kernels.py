"""A model around a Triton kernel of its own (SiLU, bfloat16), in the four forms in which kernels are called."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

KERNELS = """
import torch
import triton
import triton.language as tl

BLOCK = 1024


@triton.jit
def silu_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask).to(tl.float32)
    tl.store(out_ptr + offsets, x * tl.sigmoid(x), mask=mask)


def plain(x):
    out = torch.empty_like(x)
    n = x.numel()
    silu_kernel[(triton.cdiv(n, BLOCK),)](x, out, n, BLOCK=BLOCK)
    return out


@torch.library.triton_op("kernels::silu", mutates_args=())
def operator(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    n = x.numel()
    torch.library.wrap_triton(silu_kernel)[(triton.cdiv(n, BLOCK),)](x, out, n, BLOCK=BLOCK)
    return out
"""
"""The module with the kernel, and with a plain call of it and an operator around it."""
NET = """
import torch

import kernels


class Net(torch.nn.Module):
    def __init__(self, call):
        super().__init__()
        self.act = getattr(kernels, call)
        self.scale = torch.nn.Parameter(torch.rand(64))

    def forward(self, x):
        return self.act(x * self.scale)


def build(call, dtype="bfloat16"):
    return Net(call).to(getattr(torch, dtype)).eval()
"""
TUNED = """
import torch
import triton
import triton.language as tl


@triton.autotune(
    configs=[triton.Config({"BLOCK": block}, num_warps=warps) for block, warps in ((256, 2), (1024, 4), (4096, 8))],
    key=["n"],
)
@triton.jit
def tuned_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask).to(tl.float32)
    tl.store(out_ptr + offsets, x * tl.sigmoid(x), mask=mask)


@torch.library.triton_op("tuned::silu", mutates_args=())
def operator(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    n = x.numel()
    torch.library.wrap_triton(tuned_kernel)[lambda meta: (triton.cdiv(n, meta["BLOCK"]),)](x, out, n)
    return out
"""
MISSPELLED = KERNELS.replace("tl.sigmoid(x)", "tl.sigmoyd(x)")
"""Its kernel does not compile."""
LARGE = """
import torch
import triton
import triton.language as tl


@triton.jit
def product_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    short, long = tl.arange(0, 64), tl.arange(0, BLOCK)
    left, right = short[:, None] * BLOCK + long[None, :], long[:, None] * 64 + short[None, :]
    x = tl.load(x_ptr + left, mask=left < n, other=0.0)
    y = tl.load(x_ptr + right, mask=right < n, other=0.0)
    at = short[:, None] * 64 + short[None, :]
    tl.store(out_ptr + at, tl.dot(x, y), mask=at < n)


def plain(x):
    out = torch.zeros_like(x)
    product_kernel[(1,)](x, out, x.numel(), BLOCK=1024)
    return out
"""
"""Its kernel holds two tiles of 128 KiB, more than the shared memory of a block on any GPU."""


def folder(at: Path, kernels: str = KERNELS) -> Path:
    """Write the code: the module `kernels` and `net`, whose `build` makes the model."""
    at.mkdir(parents=True)
    (at / "kernels.py").write_text(kernels)
    (at / "net.py").write_text(NET)
    return at


def document(model: str, call: str | None = None, *, strict: bool = False, **fields: Any) -> dict[str, Any]:
    """Return the spec of such a model, from its code if `call` says how it calls the kernel."""
    source = {"source": {"entry": "net:build", "kwargs": {"call": call}}} if call else {}
    return {
        "model": model,
        **source,
        "inputs": [{"name": "x", "shape": ["batch", 64], "dtype": "bfloat16", "generate": {"normal": {}}}],
        "dims": {"batch": {"min": 1, "max": 1024, "example": 128}},
        "measure": {"processes": 0},
        **({"export": {"strict": True}} if strict else {}),
        **fields,
    }
