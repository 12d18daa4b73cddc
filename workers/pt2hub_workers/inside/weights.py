"""Weights as one safetensors file: written once by the first build, loaded by every other."""

from __future__ import annotations

from typing import TYPE_CHECKING

import safetensors
import safetensors.torch

from pt2hub.errors import Detail, WeightsMismatch

if TYPE_CHECKING:
    from pathlib import Path

    import torch

MAX_DETAILS = 20
"""Wrong tensors named in one error; a wrong file often has hundreds."""


def named_tensors(module: torch.nn.Module) -> dict[str, torch.Tensor]:
    """Parameters and buffers (also those that a state_dict leaves out) by name; tied ones under each name."""
    found: dict[str, torch.Tensor] = dict(module.named_parameters(remove_duplicate=False))
    found.update(module.named_buffers(remove_duplicate=False))
    return {name: tensor.detach() for name, tensor in found.items()}


def write_weights(module: torch.nn.Module, path: Path) -> None:
    """Writes every tensor once, contiguous; a tied one under the last of its names, as torch.export names it.

    Under another name the compiled code would not find it, and it would be taken for a literal of the code.
    """
    safetensors.torch.save_file(_untied(named_tensors(module)), path)


def load_weights(module: torch.nn.Module, path: Path) -> None:
    """Copies a file's tensors into the module.

    A name may be missing where a tied name is there, or where a state_dict would not hold it
    (non-persistent buffers keep the factory's value and travel as literals).

    Raises:
        WeightsMismatch: The file is no safetensors file, or tensors are missing, extra or misshapen.
    """
    try:
        given = safetensors.torch.load_file(path)
    except (safetensors.SafetensorError, OSError) as error:
        raise WeightsMismatch(
            f"the weights are no readable safetensors file: {error}",
            where="weights",
            hint="Write them with safetensors.torch.save_file(model.state_dict(), path).",
        ) from error
    own = named_tensors(module)
    problems = _compare(module, own, given)
    if problems:
        raise WeightsMismatch(
            f"{len(problems)} tensors do not fit the model",
            where="weights",
            details=tuple(problems[:MAX_DETAILS]),
            hint="The file must hold the state_dict of the very model that the source builds.",
        )
    for name, tensor in given.items():
        own[name].copy_(tensor)


def names_in(path: Path) -> set[str]:
    """Names of a file's tensors."""
    with safetensors.safe_open(path, framework="pt") as file:
        return set(file.keys())


def _untied(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    last = {tensor.data_ptr() if tensor.numel() else name: name for name, tensor in tensors.items()}
    return {name: tensors[name].contiguous() for name in last.values()}


def _compare(
    module: torch.nn.Module, own: dict[str, torch.Tensor], given: dict[str, torch.Tensor]
) -> list[Detail]:
    covered = {own[name].data_ptr() for name in given if name in own}
    optional = set(own) - set(module.state_dict(keep_vars=True))
    problems = [
        Detail(name, "missing from the file", None, _shape(tensor))
        for name, tensor in own.items()
        if name not in given and name not in optional and tensor.data_ptr() not in covered
    ]
    problems += [
        Detail(name, "the model has no such tensor", _shape(given[name])) for name in given if name not in own
    ]
    problems += [
        Detail(name, "another shape or dtype", _shape(tensor), _shape(own[name]))
        for name, tensor in given.items()
        if name in own and (tensor.shape != own[name].shape or tensor.dtype != own[name].dtype)
    ]
    return problems


def _shape(tensor: torch.Tensor) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')}{list(tensor.shape)}"
