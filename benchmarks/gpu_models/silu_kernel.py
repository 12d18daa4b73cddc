"""SiLU as a Triton kernel, called as an operator and plainly."""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

BLOCK = 1024


@triton.jit
def silu_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201, N803  # Triton's own
    """Write x * sigmoid(x)."""
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask).to(tl.float32)
    tl.store(out_ptr + offsets, x * tl.sigmoid(x), mask=mask)


def plain(x: torch.Tensor) -> torch.Tensor:
    """Launch the kernel without telling torch."""
    out = torch.empty_like(x)
    n = x.numel()
    silu_kernel[(triton.cdiv(n, BLOCK),)](x, out, n, BLOCK=BLOCK)
    return out


@torch.library.triton_op("pt2hub_results::silu", mutates_args=())
def operator(x: torch.Tensor) -> torch.Tensor:
    """Launch the kernel as an operator that torch can look into."""
    out = torch.empty_like(x)
    n = x.numel()
    kernel: Any = torch.library.wrap_triton(silu_kernel)
    kernel[(triton.cdiv(n, BLOCK),)](x, out, n, BLOCK=BLOCK)
    return out


class Net(torch.nn.Module):
    """The kernel on inputs that a parameter scales."""

    def __init__(self, call: str) -> None:
        super().__init__()
        self.act = {"plain": plain, "operator": operator}[call]
        self.scale = torch.nn.Parameter(torch.rand(64))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Compute on [batch, 64]."""
        y: torch.Tensor = self.act(x * self.scale)
        return y
