"""Every weight in contiguous storage of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Iterator


def own_storage(module: torch.nn.Module) -> torch.nn.Module:
    """Gives every parameter and buffer its own contiguous storage, ties kept.

    The compiler writes whole storages: constants that are views of one flat buffer would each be written
    with all of it (facts/aoti.md, section 16).
    """
    clones: dict[tuple[Any, ...], torch.Tensor] = {}
    originals: list[torch.Tensor] = []  # kept alive: a clone at a freed address would look like a tied tensor
    done: set[int] = set()
    for tensor in _parameters_and_buffers(module):
        if id(tensor) in done:  # one tensor under two names, such as a submodule used twice
            continue
        done.add(id(tensor))
        originals.append(tensor.detach())
        same_memory = (tensor.data_ptr(), tensor.shape, tensor.stride(), tensor.dtype)
        key = same_memory if tensor.numel() else (id(tensor),)
        if key not in clones:
            clones[key] = tensor.detach().clone(memory_format=torch.contiguous_format)
        tensor.data = clones[key]
    return module


def _parameters_and_buffers(module: torch.nn.Module) -> Iterator[torch.Tensor]:
    for _, parameter in module.named_parameters(remove_duplicate=False):
        yield parameter
    for _, buffer in module.named_buffers(remove_duplicate=False):
        yield buffer
