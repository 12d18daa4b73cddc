"""Tensors that a model computes in its first call and keeps: an artifact would hold those of the example."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from pt2hub.errors import ExportFailed
from pt2hub_workers.inside import eager

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pt2hub_workers.inside.inputs import Tensors

_MISSING = object()


def kept_from_inputs(module: torch.nn.Module, first: Tensors, second: Tensors) -> frozenset[str]:
    """Names of plain attributes in which a model keeps what it computed from its inputs.

    Args:
        module: Adapted, before its first call; it forgets what it kept.
        first: Inputs.
        second: Others of the same sizes.
    """
    one = _kept(module, first)
    other = _kept(module, second) if one else {}
    return frozenset(
        name for name, tensor in one.items() if name not in other or not _same(tensor, other[name])
    )


def check_unread(program: torch.export.ExportedProgram, kept: frozenset[str]) -> None:
    """Refuses a program that reads what the model kept from the example.

    Args:
        program: The program.
        kept: As `kept_from_inputs` found.

    Raises:
        ExportFailed: It does.
    """
    if read := sorted(kept.intersection(program.constants)):
        raise ExportFailed(
            f"the model keeps {read[0]}, which it computes from the inputs of its first call: the artifact would hold "
            "that of the example",
            where="source",
            hint=f"Compute {read[0]} in every call, or make it an argument.",
        )


def _kept(module: torch.nn.Module, inputs: Tensors) -> dict[str, torch.Tensor]:
    """The plain tensors that a call sets, by name; everything is as before afterwards."""
    before = [(name, owner, dict(vars(owner))) for name, owner in module.named_modules()]
    with eager.buffers_kept(module):
        eager.run(module, {name: tensor.clone() for name, tensor in inputs.items()})
    found = {}
    for name, owner, attributes in before:
        for attribute, value in _changed(vars(owner), attributes).items():
            found[f"{name}.{attribute}".lstrip(".")] = value
            if attribute in attributes:
                vars(owner)[attribute] = attributes[attribute]
            else:
                del vars(owner)[attribute]
    return found


def _changed(now: Mapping[str, object], before: Mapping[str, object]) -> dict[str, torch.Tensor]:
    return {
        name: value
        for name, value in now.items()
        if isinstance(value, torch.Tensor) and before.get(name, _MISSING) is not value
    }


def _same(left: torch.Tensor, right: torch.Tensor) -> bool:
    if left.shape != right.shape or left.dtype != right.dtype:
        return False
    return bool(((left == right) | (left.isnan() & right.isnan())).all())
