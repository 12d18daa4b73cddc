"""Finds foreign code in torch's modules: replaced functions, decompositions, lowerings, passes, kernels of ATen."""

from __future__ import annotations

import copyreg
import re
import sys
import types
from typing import TYPE_CHECKING, Any

import torch
import torch.utils._pytree

from pt2hub_workers.inside.builds.key import own_code

if TYPE_CHECKING:
    from collections.abc import Iterator

_REGISTRIES = frozenset(
    {"torch._library.custom_ops", "torch._library.triton", "torch._library.simple_registry"}
)
"""Modules with tables of foreign operators by design; those that a program uses are identified one by one."""
_LINE = re.compile(
    r"^(\w+)(?:\[alias\])?: (?:registered at|fallthrough registered at) (.+\.py):\d+", re.MULTILINE
)
_ATEN = ("aten", "prims")
_WRAPPERS = (staticmethod, classmethod)
_LISTS = (list, tuple)


def find_patches() -> list[str]:
    """Return the places in torch that contain foreign code, sorted."""
    return sorted({*_in_modules(), *_in_operators()})


def _in_modules() -> Iterator[str]:
    harmless = {id(copyreg.dispatch_table), *map(id, vars(torch.utils._pytree).values())}  # noqa: SLF001  # no public name
    for name, module in sys.modules.copy().items():
        if (
            name.partition(".")[0] == "torch"
            and name not in _REGISTRIES
            and isinstance(module, types.ModuleType)
        ):
            for key, value in vars(module).copy().items():
                # Pickling and flattening of classes shapes no code: its result is in the graph.
                if id(value) not in harmless or not issubclass(type(value), dict):
                    yield from _in_value(f"{name}.{key}", value, name)


def _in_value(place: str, value: Any, module: str) -> Iterator[str]:
    kind = type(value)  # not isinstance: deprecated objects would warn
    if issubclass(kind, types.FunctionType):
        if own_code.is_foreign_function(value):
            yield place
    elif issubclass(kind, type):
        yield from _in_class(place, value) if value.__module__ == module else ()
    elif issubclass(kind, dict):
        yield from (f"{place}[{key}]" for key, item in value.copy().items() if _is_foreign(item))
    elif issubclass(kind, list):
        for number, item in enumerate(value):
            if _is_pattern_pass(item) or _is_foreign(item):
                yield from _in_entry(f"{place}[{number}]", item)
    elif _is_pattern_pass(value):
        yield from _in_entry(place, value)


def _in_class(place: str, value: type) -> Iterator[str]:
    for key, item in vars(value).copy().items():
        inner = item.__func__ if isinstance(item, _WRAPPERS) else item
        if isinstance(inner, types.FunctionType) and own_code.is_foreign_function(inner):
            yield f"{place}.{key}"


def _is_pattern_pass(value: Any) -> bool:
    return type(value).__name__ == "PatternMatcherPass"


def _in_entry(place: str, value: Any) -> Iterator[str]:
    if not _is_pattern_pass(value):
        yield place
        return
    entries = [entry for listed in value.patterns.values() for entry in listed]
    yield from (place for entry in entries if any(map(_is_foreign, vars(entry).values())))


def _is_foreign(value: Any) -> bool:
    """Return whether a value is a foreign function or contains one."""
    if isinstance(value, _LISTS):
        return any(map(_is_foreign, value))
    inner = getattr(value, "__wrapped__", value) if isinstance(value, types.FunctionType) else value
    return isinstance(inner, types.FunctionType) and own_code.is_foreign_function(inner)


def inductor_constants() -> dict[str, str]:
    """Return the plain values in Inductor's modules by dotted name, for a comparison before and after an import."""
    return {
        f"{name}.{key}": repr(value)
        for name, module in sys.modules.copy().items()
        if name.startswith("torch._inductor.") and "config" not in name
        for key, value in vars(module).copy().items()
        if type(value) in (bool, int, float, str) and not key.startswith("__")
    }


def _in_operators() -> Iterator[str]:
    """Yield the foreign kernels and Python decompositions that are registered for torch's own operators."""
    for name in torch._C._dispatch_get_all_op_names():  # noqa: SLF001  # torch has no public name for it
        if name.partition("::")[0] in _ATEN:
            for key, place in _LINE.findall(torch._C._dispatch_dump(name)):  # noqa: SLF001  # the same
                if not own_code.is_own_file(place) or place.endswith("torch/library.py"):
                    yield f"{name} ({key})"
    for packet in (item for space in _ATEN for item in vars(getattr(torch.ops, space)).copy().values()):
        if isinstance(packet, torch._ops.OpOverloadPacket):  # noqa: SLF001  # the same
            for overload in vars(packet).copy().values():
                if isinstance(overload, torch._ops.OpOverload):  # noqa: SLF001  # the same
                    yield from _in_kernels(overload)


def _in_kernels(operator: torch._ops.OpOverload) -> Iterator[str]:
    for key, kernel in operator.py_kernels.items():
        inner = getattr(kernel, "__wrapped__", kernel)
        if isinstance(inner, types.FunctionType) and own_code.is_foreign_function(inner):
            yield f"{operator} ({key})"
