"""What a model's calls keep in plain attributes: tensors that an artifact would freeze, Python values it cannot see."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from pt2hub.errors import ExportFailed

_MISSING = object()
_OURS = "pt2hub_"
"""Attributes of an adapted model that are pt2hub's own begin so."""
_CONTAINERS = (dict, list)


class Attributes:
    """The plain attributes of a model's modules, as they were at one time."""

    def __init__(self, module: torch.nn.Module) -> None:
        """Remembers them.

        Args:
            module: A model.
        """
        self._before = [(name, owner, dict(vars(owner))) for name, owner in module.named_modules()]
        self._contents = {
            id(value): (value, _identities(value))
            for _, _, attributes in self._before
            for name, value in attributes.items()
            if type(value) in _CONTAINERS and not name.startswith("_")
        }

    def changed(self) -> dict[str, Any]:
        """The attributes that are set or have another content now, by the path of their name, and their values."""
        return {
            f"{name}.{attribute}".lstrip("."): value
            for name, owner, attributes in self._before
            for attribute, value in vars(owner).items()
            if not attribute.startswith(_OURS) and self._is_new(value, attributes.get(attribute, _MISSING))
        }

    def _is_new(self, value: object, before: object) -> bool:
        if value is not before:
            return True
        kept = self._contents.get(id(value))
        return kept is not None and _identities(value) != kept[1]


def tensors_of(changed: Mapping[str, Any]) -> dict[str, torch.Tensor]:
    """The tensors among changed attributes, also those that stand directly in a dict or list."""
    found: dict[str, torch.Tensor] = {}
    for name, value in changed.items():
        if isinstance(value, torch.Tensor):
            found[name] = value
        elif isinstance(value, Mapping | list):
            items = value.items() if isinstance(value, Mapping) else enumerate(value)
            found |= {f"{name}[{key}]": item for key, item in items if isinstance(item, torch.Tensor)}
    return found


def kept_from_inputs(one: Mapping[str, torch.Tensor], other: Mapping[str, torch.Tensor]) -> frozenset[str]:
    """Names of the tensors that a model computed from the inputs of its first call.

    Args:
        one: What its first call kept, on some inputs.
        other: What the first call of another fresh one kept, on other inputs of the same sizes.
    """
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


def _identities(value: Any) -> list[Any]:  # noqa: ANN401  # a dict or list
    if isinstance(value, dict):
        return [(key, id(item)) for key, item in value.items()]
    return [id(item) for item in value]


def _same(left: torch.Tensor, right: torch.Tensor) -> bool:
    if left.shape != right.shape or left.dtype != right.dtype:
        return False
    return bool(((left == right) | (left.isnan() & right.isnan())).all())
