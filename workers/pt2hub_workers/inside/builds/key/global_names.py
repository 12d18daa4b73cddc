"""Globals that functions read, by dotted path."""

from __future__ import annotations

import builtins
import dis
import types
from typing import TYPE_CHECKING, Any

from pt2hub_workers.inside.builds.key import own_code

if TYPE_CHECKING:
    from collections.abc import Mapping

_DYNAMIC = frozenset({"eval", "exec", "globals", "locals", "vars", "__import__", "compile", "open"})
"""Builtins that access names that a function's bytecode does not contain."""


class NoDigest(Exception):  # a condition that callers handle, not an error of a build
    """A value that shapes code and has no digest; the message describes it."""


def find_globals(function: types.FunctionType) -> list[tuple[tuple[str, ...], Any]]:
    """Return the globals that a function's bytecode reads, with their current values, by dotted path.

    Raises:
        NoDigest: It reads names that its bytecode does not contain, such as through `eval`.
    """
    paths: dict[tuple[str, ...], None] = {}
    for code in _codes(function.__code__):
        for path in _paths_in(code):
            paths[path] = None
    return [
        found for path in sorted(paths) if (found := resolve_path(path, function.__globals__)) is not None
    ]


def resolve_path(path: tuple[str, ...], names: Mapping[str, Any]) -> tuple[tuple[str, ...], Any] | None:
    """Follow a dotted path while it leads through modules; return None for a builtin.

    Raises:
        NoDigest: The name is undefined, leads to unknown code, or is a foreign module as a whole.
    """
    name, *attributes = path
    if name not in names:
        if name in _DYNAMIC:
            raise NoDigest(f"it calls {name}()")
        if hasattr(builtins, name):
            return None
        raise NoDigest(f"the name {name} is not defined")
    value, walked = names[name], [name]
    for attribute in attributes:
        if not isinstance(value, types.ModuleType) or own_code.is_own_module(value.__name__):
            break
        if not hasattr(value, attribute):
            raise NoDigest(f"{'.'.join(walked)} has no attribute {attribute}")
        value = getattr(value, attribute)
        walked.append(attribute)
    if isinstance(value, types.ModuleType) and not own_code.is_own_module(value.__name__):
        raise NoDigest(f"it uses the module {value.__name__} as a whole")
    return tuple(walked), value


def _codes(code: types.CodeType) -> list[types.CodeType]:
    inner = [
        item
        for constant in code.co_consts
        if isinstance(constant, types.CodeType)
        for item in _codes(constant)
    ]
    return [code, *inner]


def _paths_in(code: types.CodeType) -> list[tuple[str, ...]]:
    """Return the dotted paths that bytecode reads from globals."""
    found: list[tuple[str, ...]] = []
    open_path = False
    for instruction in dis.get_instructions(code):
        name = instruction.opname
        if name in ("LOAD_GLOBAL", "LOAD_NAME"):
            found.append((str(instruction.argval),))
            open_path = True
        elif name in ("LOAD_ATTR", "LOAD_METHOD") and open_path:
            found[-1] = (*found[-1], str(instruction.argval))
        else:
            open_path = False
        if name == "IMPORT_NAME" and not own_code.is_own_module(str(instruction.argval)):
            raise NoDigest(f"it imports {instruction.argval}")
    return found
