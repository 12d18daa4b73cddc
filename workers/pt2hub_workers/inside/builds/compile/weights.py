"""Weights as one safetensors file, which the first build writes and every other build loads."""

from __future__ import annotations

from typing import TYPE_CHECKING

import safetensors
import safetensors.torch
import torch

from pt2hub.archive.safetensors_header import Form, read_safetensors_header
from pt2hub.archive.weights_check import check_fit, mismatch
from pt2hub.errors import CorruptArchive, Detail, WeightsMismatch

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from torch.export import ExportedProgram


def named_tensors(module: torch.nn.Module) -> dict[str, torch.Tensor]:
    """Return parameters and buffers (including non-persistent ones) by name; tied ones under each of their names."""
    found: dict[str, torch.Tensor] = dict(module.named_parameters(remove_duplicate=False))
    found.update(module.named_buffers(remove_duplicate=False))
    return {name: tensor.detach() for name, tensor in found.items()}


def write_weights(module: torch.nn.Module, path: Path) -> None:
    """Write every tensor once, contiguous; a tied tensor under the last of its names."""
    tensors = named_tensors(module)
    last = [group[-1] for group in _group_tied(tensors)]
    safetensors.torch.save_file({name: tensors[name].contiguous() for name in last}, path)


def load_weights(module: torch.nn.Module, path: Path) -> None:
    """Copy a file's tensors into the module.

    A name may be missing if a tied name is present, or if a state_dict would not contain it (non-persistent buffers keep
    the factory's value and are stored as literals).

    Raises:
        WeightsMismatch: The file is not a valid safetensors file; tensors are missing, unexpected or have wrong shapes;
            tied tensors differ; or tensors contain NaN or infinity.
    """
    given = _read_forms(path)
    own = named_tensors(module)
    ties = [group for group in _group_tied(own) if len(group) > 1]
    optional = set(own) - set(module.state_dict(keep_vars=True))
    check_fit({name: _form(tensor) for name, tensor in own.items()}, given, ties=ties, optional=optional)
    parameters = {name for name, _ in module.named_parameters(remove_duplicate=False)}
    with safetensors.safe_open(path, framework="pt") as file:
        _check_ties(file, [[name for name in group if name in given] for group in ties])
        unfit = []
        for name in given:  # one at a time: the file may be as large as the memory
            tensor = file.get_tensor(name)
            if not _is_usable(tensor, infinite=name not in parameters):
                unfit.append(Detail(name, "holds NaN or infinity", str(given[name])))
            own[name].copy_(tensor)
    if unfit:
        raise mismatch(
            "hold NaN or infinity",
            unfit,
            "An artifact cannot be verified with such weights: check the training.",
        )


def read_names(path: Path) -> set[str]:
    """Return the names of a file's tensors."""
    with safetensors.safe_open(path, framework="pt") as file:
        return set(file.keys())


def map_names(module: torch.nn.Module, path: Path) -> dict[str, str]:
    """Map each name that a program may use for a tensor, including all names of tied ones, to its name in the file."""
    names = read_names(path)
    found = {name: name for name in names}
    for group in _group_tied(named_tensors(module)):
        there = [name for name in group if name in names]
        found |= {name: there[-1] for name in group if there and name not in names}
    return found


def rename_tied(program: ExportedProgram, module: torch.nn.Module) -> dict[str, str]:
    """Rename each tied tensor of a program to the last of its names, regardless of the weights file.

    Thus the same model has the same program key with every file. torch.export itself uses the last name too, but the
    first one in strict mode.
    """
    signature = program.graph_signature
    read = {node.name for node in program.graph.nodes if node.op == "placeholder" and node.users}
    used = {str(item.target) for item in signature.input_specs if item.arg.name in read}
    swapped: dict[str, str] = {}
    for group in _group_tied(named_tensors(module)):
        called = used.intersection(group)
        if called and group[-1] not in called:
            name = min(called)
            swapped |= {name: group[-1], group[-1]: name}
    for item in (*signature.input_specs, *signature.output_specs):
        item.target = swapped.get(str(item.target), item.target)
    return swapped


def _group_tied(tensors: dict[str, torch.Tensor]) -> list[list[str]]:
    """Group the names of tied tensors, in their order."""
    groups: dict[object, list[str]] = {}
    for name, tensor in tensors.items():
        groups.setdefault(tensor.data_ptr() if tensor.numel() else name, []).append(name)
    return list(groups.values())


def _read_forms(path: Path) -> dict[str, Form]:
    try:
        found = read_safetensors_header(path)
    except (CorruptArchive, OSError) as error:
        what = error.message if isinstance(error, CorruptArchive) else str(error)
        raise WeightsMismatch(
            f"cannot read the weights: {what}",
            where="weights",
            hint="Write them with safetensors.torch.save_file(model.state_dict(), path).",
        ) from error
    return {name: Form(entry.dtype, entry.shape) for name, entry in found.items()}


def _form(tensor: torch.Tensor) -> Form:
    return Form(str(tensor.dtype).removeprefix("torch."), tuple(tensor.shape))


def _check_ties(file: safetensors.safe_open, groups: Iterable[list[str]]) -> None:
    """Refuse a file with different values for tied tensors."""
    for first, *others in filter(None, groups):
        for other in others:
            if not torch.equal(file.get_tensor(first), file.get_tensor(other)):
                raise WeightsMismatch(
                    f"{first} and {other} are tied in the model but differ in the file",
                    where="weights",
                    hint="Save the state_dict of a model with tied weights, or leave out one of the two names.",
                )


def _is_usable(tensor: torch.Tensor, *, infinite: bool) -> bool:
    """Return whether a tensor has no NaN and, unless allowed (as for masks in buffers), no infinity."""
    if not tensor.is_floating_point() or not tensor.numel():
        return True
    wide = tensor.float() if tensor.dtype.itemsize == 1 else tensor  # torch cannot compare 8-bit floats
    low, high = torch.aminmax(wide)  # both are NaN if one element is, and nothing is copied
    return not bool(low.isnan()) if infinite else bool(low.isfinite() and high.isfinite())
