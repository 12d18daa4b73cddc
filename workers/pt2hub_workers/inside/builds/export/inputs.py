"""Inputs for verification, generated or read as the spec says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import safetensors.torch
import torch

from pt2hub.domain.digests import digest_json, hex_of
from pt2hub.errors import InvalidInput

if TYPE_CHECKING:
    from pathlib import Path

    from pt2hub.domain.publishing.spec import Input, Spec

Tensors = dict[str, torch.Tensor]
_MAX_ROLLS = 16
"""Maximum number of shifts tried to make an input differ from the others."""


@dataclass(frozen=True, slots=True)
class Point:
    """Sizes at which verification runs, with the number of the draw of values.

    Attributes:
        name: `smallest`, `example`, `largest` or `between`.
    """

    name: str
    sizes: Mapping[str, int]
    draw: int = 0

    @property
    def label(self) -> str:
        """Label for files and reports, such as `smallest.1`."""
        return f"{self.name}.{self.draw}"


def make_points(spec: Spec, largest: Mapping[str, int]) -> list[Point]:
    """Return the points of verification: the example twice with different values, the smallest and the largest."""
    smallest = {name: dim.min for name, dim in spec.dims.items()}
    example = {name: dim.example for name, dim in spec.dims.items()}
    drawn = [Point("example", example), Point("example", example, 1)]
    return [*drawn, Point("smallest", smallest), Point("largest", largest)] if spec.dims else drawn


def make_inputs(spec: Spec, point: Point, examples: Mapping[str, Path]) -> Tensors:
    """Make the inputs of a point, contiguous and on the CPU."""
    made: Tensors = {}
    for item in spec.inputs:
        made[item.name] = _make_distinct(made, _make_one(item, point, examples.get(item.name)))
    return made


def batch_size(spec: Spec, tensors: Mapping[str, torch.Tensor]) -> int | None:
    """Return the batch size: the first input's first size; None if it is a scalar."""
    first = tensors[spec.inputs[0].name]
    return int(first.shape[0]) if first.dim() else None


def _make_distinct(others: Tensors, tensor: torch.Tensor) -> torch.Tensor:
    """Roll a tensor's elements until it differs from the other inputs.

    With equal inputs, an artifact that confuses two of them would pass. Constants and single elements stay equal.
    """
    for shift in range(min(tensor.numel(), _MAX_ROLLS)):
        rolled = tensor.flatten().roll(shift).reshape(tensor.shape) if shift else tensor
        if not any(_is_equal(rolled, other) for other in others.values()):
            return rolled
    return tensor


def _is_equal(left: torch.Tensor, right: torch.Tensor) -> bool:
    return left.dtype == right.dtype and left.shape == right.shape and torch.equal(left, right)


def _make_one(item: Input, point: Point, example: Path | None) -> torch.Tensor:
    shape = [point.sizes[size] if isinstance(size, str) else size for size in item.shape]
    if example is not None:
        return _from_example(item, shape, point.draw, example)
    seed = int(hex_of(digest_json([item.name, point.label]))[:15], 16)
    return _draw_values(item, shape, torch.Generator("cpu").manual_seed(seed))


def _draw_values(item: Input, shape: list[int], generator: torch.Generator) -> torch.Tensor:
    """Draw values by the spec's recipe, with explicit device and dtype: a source may have changed the defaults."""
    dtype: torch.dtype = getattr(torch, item.dtype)
    recipe = item.generate
    if recipe is None:
        raise InvalidInput("the input requires generate or example", where=f"inputs.{item.name}")
    if recipe.normal:
        drawn = torch.randn(shape, generator=generator, dtype=torch.float32, device="cpu")
        return (drawn * recipe.normal.std + recipe.normal.mean).to(dtype)
    if recipe.uniform:
        width = recipe.uniform.high - recipe.uniform.low
        drawn = torch.rand(shape, generator=generator, dtype=torch.float32, device="cpu")
        return (drawn * width + recipe.uniform.low).to(dtype)
    if recipe.randint:
        low, high = recipe.randint.low, recipe.randint.high
        return torch.randint(low, high, shape, generator=generator, dtype=torch.int64, device="cpu").to(dtype)
    return torch.full(shape, recipe.constant or 0, dtype=dtype, device="cpu")


def _from_example(item: Input, shape: list[int], draw: int, path: Path) -> torch.Tensor:
    """Return the uploaded tensor with dynamic dimensions repeated or cut to size; later draws roll its elements."""
    tensors = safetensors.torch.load_file(path)
    tensor = tensors.get(item.name, next(iter(tensors.values())))
    pairs = zip(tensor.shape, item.shape, strict=False)
    fits = all(isinstance(size, str) or own == size for own, size in pairs)
    if tensor.dim() != len(shape) or tensor.numel() == 0 or not fits:
        raise InvalidInput(
            f"the example has shape {list(tensor.shape)}, the spec declares {item.shape}",
            where=f"inputs.{item.name}.example",
            hint="Upload a safetensors file with a tensor of the declared shape; dynamic dimensions may have any size.",
        )
    for axis, size in enumerate(shape):
        repeats = -(-size // tensor.shape[axis])
        tensor = tensor.repeat_interleave(repeats, dim=axis).narrow(axis, 0, size)
    rolled = tensor.flatten().roll(draw).reshape(shape)
    return rolled.to(getattr(torch, item.dtype)).contiguous()
