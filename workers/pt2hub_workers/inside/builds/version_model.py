"""A version's model and its inputs, in the form that a target needs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import torch

from pt2hub.client.publishing.live_models.module_copies import copy_module
from pt2hub_workers.inside import sources
from pt2hub_workers.inside.builds.export import adapter
from pt2hub_workers.inside.builds.key import settings
from pt2hub_workers.inside.builds.shortage import check_memory

if TYPE_CHECKING:
    from pt2hub.domain.publishing.spec import Spec, TargetSpec
    from pt2hub_workers.inside.builds.export.inputs import Tensors
    from pt2hub_workers.inside.sources.source_files import SourceFiles


class Log(Protocol):
    """Where lines about the model go: the channel of a build, or a process's output."""

    def log(self, text: str, level: str = "info") -> None:
        """Write a line."""


def build_module(spec: Spec, given: SourceFiles, log: Log) -> torch.nn.Module:
    """Build the model in its own dtype and adapt it to the spec, without the version's weights.

    Raises:
        LimitExceeded: The weights file is larger than the build's memory limit.
    """
    # Checked before the model is built: a larger one would be killed without a message about the file.
    path = given.weights
    if path and (over := check_memory(path.stat().st_size, "The weights file", "weights")):
        raise over
    with settings.watch_settings() as notices:
        built = sources.build_model(spec.source, given)
    for line in notices:
        log.log(line, "warning")
    return adapter.adapt_model(built, spec)


def convert_dtype(module: torch.nn.Module, request: TargetSpec) -> torch.nn.Module:
    """Copy the model into the target's dtype, with storage of its own.

    Raises:
        ModelNotCopyable: An attribute of the model cannot be copied.
    """
    dtype: torch.dtype = getattr(torch, request.dtype or "float32")
    return sources.own_storage(copy_module(module).to(dtype))


def move_inputs(tensors: Tensors, request: TargetSpec, device: str, *, converted: bool) -> Tensors:
    """Convert inputs for the target: device, dtype override, memory format."""
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
