"""Comparison of an exported program with its live model.

A worker gets only the program, so it cannot detect what the export lost or fixed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.utils import _pytree as pytree

from pt2hub.client.publishing.live_models.module_copies import copy_module
from pt2hub.client.publishing.live_models.unread_inputs import unread_inputs
from pt2hub.errors import HiddenState, ProgramDiffers, UnusedInput

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from torch.export import ExportedProgram

    from pt2hub.client.publishing.live_models.arguments import Call

    Outputs = list[torch.Tensor]

TOLERANCE = 1.0e-3
"""Tolerance relative to how far the outputs move when the inputs change, the same as verification's default."""
_ROUNDING = 64.0
"""Accepted error in units in the last place of the largest output."""
UNUSED = "unused:"
"""Prefix of entries in `checks.accept` that name an input."""


def distinct(args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return copies of the arguments: torch.export merges two arguments that are the same tensor.

    One that is a weight of the model, or a constant that it reads, would be merged with that as well.
    """
    copied = pytree.tree_map_only(
        torch.Tensor, lambda item: item.detach().clone(), (tuple(args), dict(kwargs))
    )
    return copied[0], copied[1]


def check_program(
    model: torch.nn.Module, program: ExportedProgram, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> None:
    """Check that program and model agree, and that the model's calls agree with each other.

    The model itself is not called: copies are, which share its parameters.

    Raises:
        ProgramDiffers: The program's outputs are not the model's.
        HiddenState: Two calls of the model on the same arguments differ.
    """
    try:
        one, other = (copy_module(model, share_parameters=True) for _ in range(2))
        first = _outputs(one, args, kwargs)
        _outputs(other, *_roll_tensors(args, kwargs))
    except Exception:  # noqa: BLE001  # it cannot be copied, or does not take these values: nothing is found
        return
    for found in (_outputs(one, args, kwargs), _outputs(other, args, kwargs)):
        if said := _difference(first, found):
            raise HiddenState(
                f"The model's outputs depend on earlier calls or are random: {said}",
                where="model",
                hint="Keep such a value in a registered buffer and write to it in place, compute it in every call, or pass "
                "random numbers as an argument.",
            )
    runs = program.module(check_guards=False)
    kept = {name: buffer.clone() for name, buffer in runs.named_buffers()}
    found = _outputs(runs, args, kwargs)
    for name, buffer in runs.named_buffers():
        if name in kept:
            buffer.copy_(kept[name])
    if said := _difference(first, found):
        raise ProgramDiffers(
            f"The exported program's outputs differ from the model's: {said}",
            where="model",
            hint="The model behaves differently during export. Look for torch.compiler.is_exporting(), "
            "is_compiling(), torch.jit.is_tracing(), and Python values that calls change.",
        )


def ignored_inputs(
    model: torch.nn.Module,
    program: ExportedProgram,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    call: Call,
) -> list[str]:
    """Return the paths of inputs that neither the program nor the model reads.

    Raises:
        UnusedInput: The model does not ignore one.
        ModelNotCopyable: An attribute of the model cannot be copied, so that this cannot be checked.
    """
    unread = unread_inputs(program, list(call.tensors))
    for path in unread:
        one, other = (copy_module(model, share_parameters=True) for _ in range(2))
        try:
            before = _outputs(one, args, kwargs)
            after = _outputs(other, *_replace_tensor(args, kwargs, call.tensors[path]))
        except Exception as exc:
            raise _unused_input(path, f"the model does not accept other values for it: {exc}") from exc
        if len(before) != len(after) or not all(map(torch.equal, before, after)):
            raise _unused_input(path, "the model does: its output moves when this input alone changes")
    return unread


def check_read(program: ExportedProgram, call: Call, accept: Sequence[str]) -> None:
    """Refuse a program that never reads an input, unless the spec accepts it.

    Args:
        call: How it is called.
        accept: What `checks.accept` lists.

    Raises:
        UnusedInput: It does not.
    """
    for path in unread_inputs(program, list(call.tensors)):
        if f"{UNUSED}{path}" not in accept:
            raise _unused_input(path, "without a model, this cannot be checked")


def _unused_input(path: str, why: str) -> UnusedInput:
    return UnusedInput(
        f"The exported program never reads this input; {why}",
        where=path,
        hint="torch.export merges two arguments that are the same tensor: export with separate tensors "
        f"(x.clone()). If the model ignores {path}, accept it: checks={{'accept': ['{UNUSED}{path}']}}.",
    )


def _outputs(model: torch.nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Outputs:
    """Return the tensors of a call's result and restore the buffers that it wrote to."""
    buffers = [(buffer, buffer.clone()) for buffer in model.buffers()]
    taken = pytree.tree_map_only(torch.Tensor, torch.clone, (tuple(args), dict(kwargs)))
    with torch.no_grad():
        result = model(*taken[0], **taken[1])
        found = [leaf.clone() for leaf in pytree.tree_leaves(result) if isinstance(leaf, torch.Tensor)]
        for buffer, before in buffers:
            buffer.copy_(before)
    return found


def _roll_tensors(args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return arguments with other values: every tensor's elements rolled by one."""
    rolled = pytree.tree_map_only(
        torch.Tensor, lambda item: item.flatten().roll(1).reshape(item.shape), (tuple(args), dict(kwargs))
    )
    return rolled[0], rolled[1]


def _replace_tensor(
    args: Sequence[Any], kwargs: Mapping[str, Any], tensor: torch.Tensor
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the arguments with one tensor replaced by other values."""
    other = tensor + 1 if tensor.is_floating_point() else torch.where(tensor == 0, 1, 0).to(tensor.dtype)
    replaced = pytree.tree_map(lambda item: other if item is tensor else item, (tuple(args), dict(kwargs)))
    return replaced[0], replaced[1]


def _difference(left: Outputs, right: Outputs) -> str:
    """Return how outputs differ; empty if rounding or the tolerance explains it."""
    if len(left) != len(right):
        return f"{len(right)} outputs instead of {len(left)}"
    for place, (one, other) in enumerate(zip(left, right, strict=True)):
        if one.shape != other.shape or one.dtype != other.dtype:
            return f"output {place} is {other.dtype} {list(other.shape)} instead of {one.dtype} {list(one.shape)}"
        same = (one == other) | ((one != one) & (other != other))  # noqa: PLR0124  # NaN equals NaN: the worker says more
        if bool(same.all()):
            continue
        gap = float((one[~same].double() - other[~same].double()).abs().max())
        if not gap <= _tolerance(one):  # also if it is NaN
            return f"output {place} is off by {gap:.3g}"
    return ""


def _tolerance(output: torch.Tensor) -> float:
    """Return the accepted difference: rounding, or the tolerance times the elements' spread; 0 for integers."""
    if not output.is_floating_point():
        return 0.0
    wide = output.double()
    wide = wide[wide.isfinite()]
    if not wide.numel():
        return 0.0
    spread = float((wide - wide.mean()).square().mean().sqrt())
    return max(TOLERANCE * spread, _ROUNDING * torch.finfo(output.dtype).eps * float(wide.abs().max()))
