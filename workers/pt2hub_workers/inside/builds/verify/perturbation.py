"""Perturbed constants, which prove that an artifact follows its weights and that verification can fail.

The build's process and the artifact's process draw them separately; equal names and scales give equal tensors.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from pt2hub.domain.digests import digest_json, hex_of
from pt2hub_workers.inside.builds.verify.run_order import EVERYTHING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

BASE_NOISE = 0.1
"""Relative noise at scale 1: floats x (1 + 0.1 u), u uniform in -1..1."""
UNIFORM_NOISE = 0.05
"""Noise added to tensors with a single value, such as zero-initialised layers, which a factor would not move."""


@dataclass(frozen=True, slots=True)
class Group:
    """Constants that are perturbed together.

    Attributes:
        name: Class of the owning module and name of the parameter, such as `Conv2d.weight`.
    """

    name: str
    members: tuple[str, ...]
    scale: float = 1.0


def group_constants(module: torch.nn.Module, constants: Iterable[str]) -> list[Group]:
    """Group the floating-point constants that the code reads by module class and name.

    Single tensors would be too fine: some have no effect mathematically (a key's bias under softmax).
    """
    tensors = dict(module.named_parameters(remove_duplicate=False)) | dict(
        module.named_buffers(remove_duplicate=False)
    )
    found: dict[str, list[str]] = {}
    used = [name for name in constants if name in tensors and tensors[name].is_floating_point()]
    for name in sorted(used):
        owner, _, leaf = name.rpartition(".")
        found.setdefault(f"{type(module.get_submodule(owner)).__name__}.{leaf}", []).append(name)
    groups = [Group(name, tuple(members)) for name, members in sorted(found.items())]
    return [*groups, Group(EVERYTHING, tuple(sorted(used)))] if groups else []


def perturb(tensors: Mapping[str, torch.Tensor], group: Group) -> dict[str, torch.Tensor]:
    """Return perturbed tensors for a group's members; non-negative tensors stay non-negative."""
    return {name: _perturb(name, tensors[name], group.scale) for name in group.members}


def _perturb(name: str, tensor: torch.Tensor, scale: float) -> torch.Tensor:
    seed = int(hex_of(digest_json([name, scale]))[:15], 16)
    generator = torch.Generator("cpu").manual_seed(seed)
    noise = _noise(tensor, generator)
    moved = tensor.float() * (1 + scale * BASE_NOISE * noise)
    low, high = (float(tensor.min()), float(tensor.max())) if tensor.numel() else (0.0, 0.0)
    if low == high:
        moved = moved + scale * UNIFORM_NOISE * _noise(tensor, generator)
    return (moved.abs() if low >= 0 else moved).to(tensor.dtype)


def _noise(tensor: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Draw uniform noise in -1..1; float32 is explicit, because a source may have changed the default in one process."""
    return torch.rand(tensor.shape, generator=generator, dtype=torch.float32, device="cpu") * 2 - 1
