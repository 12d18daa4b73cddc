"""Descriptions of values, functions and kernels as JSON: equal in every process for equal code, different otherwise."""

from __future__ import annotations

import dis
import enum
import functools
import sys
import types
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import sympy
import torch

from pt2hub.domain.digests import digest_bytes
from pt2hub_workers.inside.builds.key import own_code
from pt2hub_workers.inside.builds.key.global_names import NoDigest, find_globals
from pt2hub_workers.inside.builds.key.triton_kernels import kernel_types

MAX_PARTS = 20_000
"""Maximum number of values in one description; a function that reads more has no meaningful digest."""
_LITERAL = (type(None), bool, int, str)
_TEXTS = (torch.dtype, torch.device, torch.layout, torch.memory_format, torch.Size, range)
_Write: TypeAlias = Callable[[Any], Any]


class CodeValues:
    """Describes values, and functions and kernels with everything that they read.

    Code that differs only in comments, line numbers or paths has the same description.
    """

    def __init__(self) -> None:
        self._seen: dict[int, int] = {}
        self._alive: list[object] = []
        self._parts = 0

    def restart_count(self) -> None:
        """Reset the count of values for the next description."""
        self._parts = 0

    def describe(self, value: Any) -> Any:
        """Describe a value."""
        self._parts += 1
        if self._parts > MAX_PARTS:
            raise NoDigest(f"more than {MAX_PARTS} values hang on it")
        if isinstance(value, enum.Enum):
            return ["enum", *_qualified_name(type(value)), value.name]
        if isinstance(value, _LITERAL):
            return value
        if isinstance(value, float | complex):
            return ["number", repr(value)]
        if isinstance(value, _TEXTS):
            return [type(value).__name__, str(value)]
        return self._describe_compound(value)

    def _describe_compound(self, value: Any) -> Any:
        if isinstance(value, bytes):
            return ["bytes", value.hex()]
        if isinstance(value, list | tuple):
            return [type(value).__name__, *map(self.describe, value)]
        if isinstance(value, set | frozenset):
            return ["set", *sorted((self.describe(item) for item in value), key=repr)]
        if isinstance(value, Mapping):
            return ["dict", *([self.describe(key), self.describe(item)] for key, item in value.items())]
        if isinstance(value, slice):
            return ["slice", *map(self.describe, (value.start, value.stop, value.step))]
        if isinstance(value, sympy.Basic):
            return ["expression", sympy.srepr(value)]
        if isinstance(value, torch.Tensor):
            return describe_tensor(value)
        return self._describe_object(value)

    def _describe_object(self, value: Any) -> Any:
        if id(value) in self._seen:
            return ["seen", self._seen[id(value)]]
        self._seen[id(value)] = len(self._seen)
        self._alive.append(value)  # else another object could get its id
        for kind, describe in self._kinds():
            if isinstance(value, kind):
                return describe(value)
        if own_code.is_own_module(type(value).__module__) and hasattr(value, "__dict__"):
            return ["instance", *_qualified_name(type(value)), self.describe(vars(value))]
        raise NoDigest(f"a value of type {type(value).__module__}.{type(value).__qualname__}")

    def _kinds(self) -> tuple[tuple[Any, _Write], ...]:
        return (
            *((kind, functools.partial(describe, self.describe)) for kind, describe in kernel_types()),
            (types.FunctionType, self._describe_function),
            (types.CodeType, self._describe_code),
            (
                types.MethodType,
                lambda item: ["method", self.describe(item.__func__), self.describe(item.__self__)],
            ),
            (
                functools.partial,
                lambda item: ["partial", *map(self.describe, (item.func, item.args, item.keywords))],
            ),
            (torch._ops.OpOverload, lambda item: ["operator", str(item), str(item._schema)]),  # noqa: SLF001
            (torch._ops.OpOverloadPacket, lambda item: ["operators", str(item)]),  # noqa: SLF001
            (torch._ops.HigherOrderOperator, lambda item: ["higher_order", item.name()]),  # noqa: SLF001
            ((types.BuiltinFunctionType, type, types.ModuleType), _describe_named),
        )

    def _describe_function(self, function: types.FunctionType) -> Any:
        cells = {
            name: cell.cell_contents
            for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
            if not _is_empty(cell)
        }
        if own_code.is_own_function(function):
            return ["own", function.__module__, function.__qualname__, self.describe(cells)]
        return [
            "function",
            self.describe(function.__code__),
            self.describe([function.__defaults__, function.__kwdefaults__, cells]),
            [[list(path), self.describe(value)] for path, value in find_globals(function)],
        ]

    def _describe_code(self, code: types.CodeType) -> list[Any]:
        """Describe bytecode and its constants, without file names and line numbers."""
        flags = [code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags]
        names = [code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars]
        constants = code.co_consts[1:] if _has_docstring(code) else code.co_consts
        return [
            "code",
            sys.implementation.cache_tag,
            code.co_code.hex(),
            getattr(
                code, "co_exceptiontable", b""
            ).hex(),  # ranges of exception handlers, which are not in the bytecode
            flags,
            self.describe(names),
            self.describe(list(constants)),
        ]


def describe_tensor(tensor: torch.Tensor) -> list[Any]:
    """Return a tensor's layout and the digest of its values."""
    if isinstance(tensor, torch._subclasses.FakeTensor):  # noqa: SLF001  # torch has no public name for it
        raise NoDigest("a tensor without values")
    layout = [list(tensor.shape), list(tensor.stride()), str(tensor.dtype), tensor.device.type]
    flat = tensor.detach().cpu().contiguous().reshape(-1)
    data = flat.view(torch.uint8).numpy().tobytes() if flat.numel() else b""
    return ["tensor", *layout, digest_bytes(data)]


def _describe_named(value: Any) -> list[Any]:
    """Describe code of the toolchain by its name, because versions identify its content."""
    if isinstance(value, types.ModuleType):
        module, name = value.__name__, ""
    else:
        module, name = value.__module__ or "builtins", value.__qualname__
    if not own_code.is_own_module(module):
        kind = "class" if isinstance(value, type) else "function" if name else "module"
        raise NoDigest(f"the {kind} {module}.{name}".rstrip("."))
    return ["name", module, name]


def _qualified_name(kind: type) -> tuple[str, str]:
    return kind.__module__, kind.__qualname__


def _is_empty(cell: types.CellType) -> bool:
    try:
        cell.cell_contents  # noqa: B018  # reading it is the only test
    except ValueError:
        return True
    return False


def _has_docstring(code: types.CodeType) -> bool:
    """Return whether the first constant is a docstring, which no instruction loads (up to Python 3.12)."""
    if not code.co_consts or not isinstance(code.co_consts[0], str):
        return False
    return all(item.arg != 0 for item in dis.get_instructions(code) if item.opname == "LOAD_CONST")
