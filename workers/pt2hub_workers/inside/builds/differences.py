"""Differences between outputs, and how much of them rounding explains."""

from __future__ import annotations

import torch


def max_difference(left: torch.Tensor, right: torch.Tensor) -> float:
    """Return the largest absolute difference; for integers and booleans the share of elements that differ."""
    if left.numel() == 0:
        return 0.0
    if not left.is_floating_point():
        return float((left != right).double().mean())
    gap = (left.double() - right.double()).abs()
    return float(gap.max()) if bool(torch.isfinite(gap).all()) else float("inf")


_ULPS = 2.0
"""Roundings that another order of additions may add: up to 3 units in the last place were seen."""


def rounding_limit(output: torch.Tensor) -> float:
    """Return the largest difference that rounding alone explains in an output; 0 for integers and booleans."""
    if not output.is_floating_point() or output.numel() == 0:
        return 0.0
    return _ULPS * torch.finfo(output.dtype).eps * float(output.double().abs().max())


def rms_difference(left: torch.Tensor, right: torch.Tensor) -> float:
    """Return the root mean square of the difference; for integers and booleans the share of elements that differ."""
    if left.numel() == 0 or left.shape != right.shape:
        return 0.0
    if not left.is_floating_point():
        return float((left != right).double().mean())
    return float((left.double() - right.double()).square().mean().sqrt())


def rms_ratio(left: torch.Tensor, right: torch.Tensor) -> float:
    """Return the ratio of two outputs' root mean squares; 1 if it is undefined."""
    if not left.is_floating_point() or not left.numel() or not right.numel():
        return 1.0
    sizes = [float(tensor.double().square().mean().sqrt()) for tensor in (left, right)]
    return sizes[0] / sizes[1] if all(sizes) else 1.0
