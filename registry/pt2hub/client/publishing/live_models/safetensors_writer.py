"""Writer of safetensors files, without the safetensors package."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING

import torch

from pt2hub.archive.payloads import VIEW_AS_REAL
from pt2hub.archive.safetensors_header import Form, safetensors_header
from pt2hub.client.publishing.live_models.arguments import dtype_name, unsupported_reason
from pt2hub.errors import UnsupportedTensor

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


def write_tensors(tensors: Mapping[str, torch.Tensor], path: Path) -> None:
    """Write tensors from any device; equal tensors give equal bytes."""
    header, order = safetensors_header(
        {name: Form(dtype_name(tensor), tuple(tensor.shape)) for name, tensor in tensors.items()}
    )
    with path.open("wb") as file:
        file.write(header)
        for name in order:
            plain = tensors[name].detach().resolve_neg().cpu().contiguous()
            file.write((ctypes.c_char * plain.nbytes).from_address(plain.data_ptr()) if plain.nbytes else b"")


def state_of(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    """Return the model's `state_dict`, with tied tensors only once, under their last name.

    Raises:
        UnsupportedTensor: A value is not a tensor or cannot be published.
    """
    found = model.state_dict()
    last: dict[object, str] = {}
    for name, tensor in found.items():
        problem = (
            unsupported_reason(tensor) if isinstance(tensor, torch.Tensor) else f"a {type(tensor).__name__}"
        )
        if problem:
            raise UnsupportedTensor(
                f"The tensor in the model's state_dict is {problem}",
                where=name,
                hint=VIEW_AS_REAL
                if problem == "complex"
                else "Weights must be plain dense tensors of real numbers; convert it, or keep it out of the state_dict.",
            )
        memory = (tensor.device, tensor.data_ptr(), tensor.shape, tensor.stride(), tensor.dtype)
        last[memory if tensor.numel() else name] = name
    return {name: found[name] for name in last.values()}
