"""Comparing outputs relative to their signal."""

from __future__ import annotations

import torch


def difference(left: torch.Tensor, right: torch.Tensor) -> float:
    """Largest absolute difference; for integers and booleans the share of elements that differ."""
    if left.numel() == 0:
        return 0.0
    if not left.is_floating_point():
        return float((left != right).double().mean())
    gap = (left.double() - right.double()).abs()
    return float(gap.max()) if bool(torch.isfinite(gap).all()) else float("inf")


_ULPS = 2.0
"""Roundings that another order of additions may add: 3 units in the last place were seen where eager had none."""


def rounding(output: torch.Tensor) -> float:
    """What rounding alone may change in an output of its dtype; 0 for integers and booleans."""
    if not output.is_floating_point() or output.numel() == 0:
        return 0.0
    return _ULPS * torch.finfo(output.dtype).eps * float(output.double().abs().max())


def spread(left: torch.Tensor, right: torch.Tensor) -> float:
    """Root mean square of the difference; for integers and booleans the share of elements that differ."""
    if left.numel() == 0 or left.shape != right.shape:
        return 0.0
    if not left.is_floating_point():
        return float((left != right).double().mean())
    return float((left.double() - right.double()).square().mean().sqrt())


def ratio(left: torch.Tensor, right: torch.Tensor) -> float:
    """How much larger one output is than another, root mean square; 1 where that says nothing."""
    if not left.is_floating_point() or not left.numel() or not right.numel():
        return 1.0
    sizes = [float(tensor.double().square().mean().sqrt()) for tensor in (left, right)]
    return sizes[0] / sizes[1] if all(sizes) else 1.0
