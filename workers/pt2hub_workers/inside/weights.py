"""Weights as one safetensors file: written once by the first build, loaded by every other."""

from __future__ import annotations

from typing import TYPE_CHECKING

import safetensors
import safetensors.torch
import torch

from pt2hub.archive.fitting import check_fit, mismatch
from pt2hub.archive.tensors import Form, read_safetensors_header
from pt2hub.errors import CorruptArchive, Detail, WeightsMismatch

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from torch.export import ExportedProgram


def named_tensors(module: torch.nn.Module) -> dict[str, torch.Tensor]:
    """Parameters and buffers (also those that a state_dict leaves out) by name; tied ones under each name."""
    found: dict[str, torch.Tensor] = dict(module.named_parameters(remove_duplicate=False))
    found.update(module.named_buffers(remove_duplicate=False))
    return {name: tensor.detach() for name, tensor in found.items()}


def write_weights(module: torch.nn.Module, path: Path) -> None:
    """Writes every tensor once, contiguous; a tied one under the last of its names."""
    tensors = named_tensors(module)
    last = [group[-1] for group in _groups(tensors)]
    safetensors.torch.save_file({name: tensors[name].contiguous() for name in last}, path)


def load_weights(module: torch.nn.Module, path: Path) -> None:
    """Copies a file's tensors into the module.

    A name may be missing where a tied name is there, or where a state_dict would not hold it
    (non-persistent buffers keep the factory's value and travel as literals).

    Raises:
        WeightsMismatch: The file is no safetensors file, tensors are missing, extra or misshapen, tied ones differ,
            or some hold NaN or infinity.
    """
    given = _forms(path)
    own = named_tensors(module)
    ties = [group for group in _groups(own) if len(group) > 1]
    optional = set(own) - set(module.state_dict(keep_vars=True))
    check_fit({name: _form(tensor) for name, tensor in own.items()}, given, ties=ties, optional=optional)
    parameters = {name for name, _ in module.named_parameters(remove_duplicate=False)}
    with safetensors.safe_open(path, framework="pt") as file:
        _check_ties(file, [[name for name in group if name in given] for group in ties])
        unfit = []
        for name in given:  # one at a time: the file may be as large as memory
            tensor = file.get_tensor(name)
            if not _usable(tensor, infinite=name not in parameters):
                unfit.append(Detail(name, "holds NaN or infinity", str(given[name])))
            own[name].copy_(tensor)
    if unfit:
        raise mismatch(
            "hold NaN or infinity", unfit, "Nothing can be proven with such weights: look at the training."
        )


def names_in(path: Path) -> set[str]:
    """Names of a file's tensors."""
    with safetensors.safe_open(path, framework="pt") as file:
        return set(file.keys())


def names_for(module: torch.nn.Module, path: Path) -> dict[str, str]:
    """Each name by which a program may call a tensor of a file, and its name there: of a tied one all its names."""
    names = names_in(path)
    found = {name: name for name in names}
    for group in _groups(named_tensors(module)):
        there = [name for name in group if name in names]
        found |= {name: there[-1] for name in group if there and name not in names}
    return found


def name_by_last(program: ExportedProgram, module: torch.nn.Module) -> dict[str, str]:
    """Has a program call each tied tensor by the last of its names, whatever a weights file calls it.

    So the same model gives the same program key with every file. torch.export itself takes the last name too, but
    the first where it is strict.

    Args:
        program: The exported module, changed in place.
        module: What was exported.

    Returns:
        The names that were exchanged, each with the other.
    """
    signature = program.graph_signature
    read = {node.name for node in program.graph.nodes if node.op == "placeholder" and node.users}
    used = {str(item.target) for item in signature.input_specs if item.arg.name in read}
    swapped: dict[str, str] = {}
    for group in _groups(named_tensors(module)):
        called = used.intersection(group)
        if called and group[-1] not in called:
            name = min(called)
            swapped |= {name: group[-1], group[-1]: name}
    for item in (*signature.input_specs, *signature.output_specs):
        item.target = swapped.get(str(item.target), item.target)
    return swapped


def _groups(tensors: dict[str, torch.Tensor]) -> list[list[str]]:
    """Names of tied tensors together, each in its order."""
    groups: dict[object, list[str]] = {}
    for name, tensor in tensors.items():
        groups.setdefault(tensor.data_ptr() if tensor.numel() else name, []).append(name)
    return list(groups.values())


def _forms(path: Path) -> dict[str, Form]:
    try:
        found = read_safetensors_header(path)
    except (CorruptArchive, OSError) as error:
        what = error.message if isinstance(error, CorruptArchive) else str(error)
        raise WeightsMismatch(
            f"the weights are no readable safetensors file: {what}",
            where="weights",
            hint="Write them with safetensors.torch.save_file(model.state_dict(), path).",
        ) from error
    return {name: Form(entry.dtype, entry.shape) for name, entry in found.items()}


def _form(tensor: torch.Tensor) -> Form:
    return Form(str(tensor.dtype).removeprefix("torch."), tuple(tensor.shape))


def _check_ties(file: safetensors.safe_open, groups: Iterable[list[str]]) -> None:
    """Refuses a file that gives one tensor of the model two values."""
    for first, *others in filter(None, groups):
        for other in others:
            if not torch.equal(file.get_tensor(first), file.get_tensor(other)):
                raise WeightsMismatch(
                    f"{first} and {other} are one tensor in the model, and differ in the file",
                    where="weights",
                    hint="Write the state_dict of a model whose weights are tied, or leave one of the two names out.",
                )


def _usable(tensor: torch.Tensor, *, infinite: bool) -> bool:
    """Whether a tensor holds no NaN and, unless that is allowed (masks in buffers are so), no infinity."""
    if not tensor.is_floating_point() or not tensor.numel():
        return True
    wide = tensor.float() if tensor.dtype.itemsize == 1 else tensor  # torch compares no 8-bit numbers
    low, high = torch.aminmax(wide)  # both are NaN where one element is, and nothing is copied
    return not bool(low.isnan()) if infinite else bool(low.isfinite() and high.isfinite())
