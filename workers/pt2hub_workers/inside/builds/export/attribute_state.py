"""State that calls keep in plain attributes: tensors that an artifact would freeze, Python values that it cannot see."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from pt2hub.errors import ExportFailed

_MISSING = object()
_OURS = "pt2hub_"
"""Prefix of pt2hub's own attributes of an adapted model."""
_CONTAINERS = (dict, list)


class AttributeState:
    """Snapshot of the plain attributes of a model's modules."""

    def __init__(self, module: torch.nn.Module) -> None:
        self._before = [(name, owner, dict(vars(owner))) for name, owner in module.named_modules()]
        self._contents = {
            id(value): (value, _identities(value))
            for _, _, attributes in self._before
            for name, value in attributes.items()
            if type(value) in _CONTAINERS and not name.startswith("_")
        }

    def find_changed(self) -> dict[str, Any]:
        """Return the attributes that were set or whose content changed since the snapshot, by path."""
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


def find_tensors(changed: Mapping[str, Any]) -> dict[str, torch.Tensor]:
    """Return the tensors among changed attributes, including those directly inside a dict or list."""
    found: dict[str, torch.Tensor] = {}
    for name, value in changed.items():
        if isinstance(value, torch.Tensor):
            found[name] = value
        elif isinstance(value, Mapping | list):
            items = value.items() if isinstance(value, Mapping) else enumerate(value)
            found |= {f"{name}[{key}]": item for key, item in items if isinstance(item, torch.Tensor)}
    return found


def find_kept_from_inputs(
    one: Mapping[str, torch.Tensor], other: Mapping[str, torch.Tensor]
) -> frozenset[str]:
    """Return the names of the tensors that differ between two first calls, so depend on their inputs."""
    return frozenset(
        name for name, tensor in one.items() if name not in other or not _is_same(tensor, other[name])
    )


def check_unread(program: torch.export.ExportedProgram, kept: frozenset[str]) -> None:
    """Refuse a program that reads a tensor that the model kept from the example."""
    if read := sorted(kept.intersection(program.constants)):
        raise ExportFailed(
            f"the model keeps {read[0]}, computed from the inputs of its first call: the artifact would contain the value for "
            "the example",
            where="source",
            hint=f"Compute {read[0]} in every call, or pass it as an argument.",
        )


def _identities(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return [(key, id(item)) for key, item in value.items()]
    return [id(item) for item in value]


def _is_same(left: torch.Tensor, right: torch.Tensor) -> bool:
    if left.shape != right.shape or left.dtype != right.dtype:
        return False
    return bool(((left == right) | (left.isnan() & right.isnan())).all())
