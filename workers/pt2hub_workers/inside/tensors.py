"""Tensors on their way into files that the judge reads, without torch."""

from __future__ import annotations

import torch

from pt2hub_workers.inside.trial import stored_as


def dtype_name(tensor: torch.Tensor) -> str:
    """A tensor's dtype as torch names it."""
    return str(tensor.dtype).removeprefix("torch.")


def storable(tensor: torch.Tensor) -> torch.Tensor:
    """A copy of its own with contiguous storage, in a dtype that numpy has; its values are the same."""
    dtype: torch.dtype = getattr(torch, stored_as(dtype_name(tensor)))
    return tensor.to(dtype).contiguous().clone()
