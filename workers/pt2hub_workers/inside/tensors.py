"""Tensors on their way into artifacts, and into files that the judge reads, without torch."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from pt2hub_workers.inside.trial import stored_as

if TYPE_CHECKING:
    from pt2hub.domain.artifacts import TensorInput


def dtype_name(tensor: torch.Tensor) -> str:
    """A tensor's dtype as torch names it."""
    return str(tensor.dtype).removeprefix("torch.")


def storable(tensor: torch.Tensor) -> torch.Tensor:
    """A copy of its own with contiguous storage, in a dtype that numpy has; its values are the same."""
    dtype: torch.dtype = getattr(torch, stored_as(dtype_name(tensor)))
    return tensor.to(dtype).contiguous().clone()


def as_declared(tensor: torch.Tensor, declared: TensorInput, device: torch.device) -> torch.Tensor:
    """A tensor as an artifact takes it.

    Args:
        tensor: Anywhere, in the dtype of the spec.
        declared: The artifact's input.
        device: Where it runs.
    """
    layout: torch.memory_format = getattr(torch, declared.memory_format)
    return tensor.to(device=device, dtype=getattr(torch, declared.dtype)).contiguous(memory_format=layout)
