"""Gives every weight its own contiguous storage."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Iterator


@torch.inference_mode(mode=False)
def own_storage(module: torch.nn.Module) -> torch.nn.Module:
    """Give every parameter and buffer its own contiguous storage, ties kept.

    The compiler writes whole storages: each constant that is a view of a flat buffer would be written with all of it
    (docs/facts/aoti.md#layout-of-the-weights-blob).
    """
    _replace_inference_tensors(module)
    _detach_tensors(module)
    # One tensor may have two names, such as a submodule used twice, and two tensors may be tied by their memory.
    tensors = {id(tensor): tensor for tensor in _parameters_and_buffers(module)}
    # Determined before any memory is freed and reused: the whole model is never in memory twice.
    memory = {number: _memory_identity(tensor) for number, tensor in tensors.items()}
    clones: dict[tuple[Any, ...], torch.Tensor] = {}
    for number, tensor in tensors.items():
        if memory[number] not in clones:
            clones[memory[number]] = tensor.detach().clone(memory_format=torch.contiguous_format)
        tensor.data = clones[memory[number]]
    return module


def _memory_identity(tensor: torch.Tensor) -> tuple[Any, ...]:
    """Return a key that tied tensors share; empty tensors are never tied."""
    if not tensor.numel():
        return (id(tensor),)
    return tensor.data_ptr(), tensor.shape, tensor.stride(), tensor.dtype


def _replace_inference_tensors(module: torch.nn.Module) -> None:
    """Replace tensors created in inference mode, which cannot be written to, by ordinary ones."""
    replaced: dict[int, torch.Tensor] = {}
    for owner in module.modules():
        for named in (owner._parameters, owner._buffers):  # noqa: SLF001  # setattr would take a parameter's place in the order
            for name, tensor in named.items():
                if tensor is not None and tensor.is_inference():
                    if id(tensor) not in replaced:
                        copy = tensor.clone()
                        own = isinstance(tensor, torch.nn.Parameter)
                        replaced[id(tensor)] = torch.nn.Parameter(copy, requires_grad=False) if own else copy
                    named[name] = replaced[id(tensor)]  # type: ignore[assignment]  # a parameter for a parameter


def _detach_tensors(module: torch.nn.Module) -> None:
    """Detach tensors that are neither parameters nor buffers, such as the weight that `weight_norm` computes.

    A tensor with a gradient graph prevents its module from being copied.
    """
    for owner in module.modules():
        for name, value in vars(owner).items():
            if isinstance(value, torch.Tensor) and not value.is_leaf:
                vars(owner)[name] = value.detach()


def _parameters_and_buffers(module: torch.nn.Module) -> Iterator[torch.Tensor]:
    for _, parameter in module.named_parameters(remove_duplicate=False):
        yield parameter
    for _, buffer in module.named_buffers(remove_duplicate=False):
        yield buffer
