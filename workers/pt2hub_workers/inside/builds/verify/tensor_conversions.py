"""Conversions of tensors for artifacts, and for files that the verifier reads without torch."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from pt2hub_workers.inside.builds.verify.run_order import stored_dtype

if TYPE_CHECKING:
    from pt2hub.domain.artifacts import TensorInput


def dtype_name(tensor: torch.Tensor) -> str:
    """Return a tensor's dtype as torch names it."""
    return str(tensor.dtype).removeprefix("torch.")


def to_storable(tensor: torch.Tensor) -> torch.Tensor:
    """Copy a tensor into contiguous storage, in a dtype that numpy has; the values stay the same."""
    dtype: torch.dtype = getattr(torch, stored_dtype(dtype_name(tensor)))
    return tensor.to(dtype).contiguous().clone()


def convert_to_declared(tensor: torch.Tensor, declared: TensorInput, device: torch.device) -> torch.Tensor:
    """Convert a tensor to the dtype, device and memory format of a declared input."""
    layout: torch.memory_format = getattr(torch, declared.memory_format)
    return tensor.to(device=device, dtype=getattr(torch, declared.dtype)).contiguous(memory_format=layout)
