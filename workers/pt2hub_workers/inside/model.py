"""The model that a version's source builds, and its inputs as a target takes them."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING

import torch

from pt2hub_workers.inside import adapting, settings, sources
from pt2hub_workers.inside.shortage import over_memory

if TYPE_CHECKING:
    from pt2hub.domain.specs import Spec, TargetSpec
    from pt2hub_workers.inside.channel import Channel
    from pt2hub_workers.inside.inputs import Tensors
    from pt2hub_workers.inside.sources.building import Given


def build_module(spec: Spec, given: Given, channel: Channel) -> torch.nn.Module:
    """Build the model in its own dtype, called as the spec says; the version's weights are not loaded yet.

    Args:
        spec: The spec.
        given: Files and limits of the build.
        channel: For what the source said and changed.

    Raises:
        LimitExceeded: The weights file is larger than the memory that is left.
        UsageError: The source builds no such model.
    """
    # Before a larger model is built, which would be killed for it without a word on the file.
    path = given.weights
    if path and (over := over_memory(path.stat().st_size, "The weights file", "weights")):
        raise over
    with settings.watched() as said:
        built = sources.build_model(spec.source, given)
    for line in said:
        channel.log(line, "warning")
    return adapting.adapt(built, spec)


def in_dtype(module: torch.nn.Module, request: TargetSpec) -> torch.nn.Module:
    """Return a copy of the model in the target's dtype, with storage of its own."""
    dtype: torch.dtype = getattr(torch, request.dtype or "float32")
    return sources.own_storage(copy.deepcopy(module).to(dtype))


def moved(tensors: Tensors, request: TargetSpec, device: str, *, converted: bool) -> Tensors:
    """Return inputs as the target takes them: device, dtype override, memory format.

    Args:
        tensors: Inputs by name, as the spec says.
        request: The target with its overrides.
        device: `cpu` or `cuda`.
        converted: Whether the model runs in the target's dtype instead of its own.
    """
    layout: torch.memory_format = getattr(torch, request.memory_format)
    found = {}
    for name, tensor in tensors.items():
        dtype = tensor.dtype
        if converted and tensor.is_floating_point():
            dtype = getattr(torch, request.dtype or "float32")
        image = tensor.dim() == 4  # noqa: PLR2004  # channels_last is defined for NCHW only
        memory_format = layout if image else torch.contiguous_format
        found[name] = tensor.to(device=device, dtype=dtype).contiguous(memory_format=memory_format)
    return found
