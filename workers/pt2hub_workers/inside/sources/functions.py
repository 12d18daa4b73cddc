"""Wraps plain functions in modules, which torch.export requires."""

from __future__ import annotations

import functools
import inspect
from typing import TYPE_CHECKING, Any

import torch

from pt2hub.errors import NotAModule

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping


_SETTING_TYPES = (int, float, bool, str, dict, "int", "float", "bool", "str", "dict")
"""Annotations of a builder's arguments, as types and as text (postponed annotations)."""


class FunctionModule(torch.nn.Module):
    """A module without weights whose forward is a function; each function gets its own subclass."""


def is_function(value: object) -> bool:
    """Return whether a value is a function: in Python or built in, a method, or a partial call of one."""
    return inspect.isroutine(value) or isinstance(value, functools.partial)


def looks_like_model(entry: Callable[..., Any], given: Mapping[str, Any]) -> bool:
    """Return whether an entry looks like a model itself: a function with required positional arguments that may be tensors."""
    try:
        parameters = inspect.signature(entry).parameters if is_function(entry) else {}
    except ValueError:  # built in
        return False
    if set(given) - set(parameters):
        return False
    required = [
        item
        for name, item in parameters.items()
        if item.kind in (item.POSITIONAL_ONLY, item.POSITIONAL_OR_KEYWORD)
        and item.default is item.empty
        and name not in given
    ]
    return any(item.annotation not in _SETTING_TYPES for item in required)


def wrap_function(function: Callable[..., Any], where: str) -> FunctionModule:
    """Wrap a function in a module whose forward has the function's signature and whose class has its name."""
    for name, module in _modules_of(function):
        raise NotAModule(
            f"the function calls {name}, a {type(module).__name__}: its weights would not be part of the model",
            where=where,
            hint="Return that module itself, or a module that has it as an attribute and calls it in forward.",
        )
    try:
        signature = inspect.signature(function)
    except ValueError as error:
        raise NotAModule(
            f"{_name(function)} is a built-in function without a signature",
            where=where,
            hint="Write a function with named arguments that calls it.",
        ) from error

    def forward(self: FunctionModule, *args: Any, **kwargs: Any) -> Any:
        del self
        return function(*args, **kwargs)

    own = inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY)
    full = signature.replace(parameters=[own, *signature.parameters.values()])
    functools.update_wrapper(forward, function, updated=())
    forward.__signature__ = full  # type: ignore[attr-defined]  # what inspect.signature reads
    made: type[FunctionModule] = type(_name(function), (FunctionModule,), {"forward": forward})
    return made()


def _modules_of(function: Callable[..., Any]) -> Iterator[tuple[str, torch.nn.Module]]:
    """Yield the modules that a function refers to other than by its arguments."""
    if isinstance(function, functools.partial):
        given = {**{str(place): value for place, value in enumerate(function.args)}, **function.keywords}
        yield from ((name, value) for name, value in given.items() if isinstance(value, torch.nn.Module))
        yield from _modules_of(function.func)
        return
    owner = getattr(function, "__self__", None)
    if isinstance(owner, torch.nn.Module):
        yield "its own object", owner
    plain = inspect.unwrap(getattr(function, "__func__", function))
    if inspect.isfunction(plain):
        seen = inspect.getclosurevars(plain)
        for name, value in {**seen.globals, **seen.nonlocals}.items():
            if isinstance(value, torch.nn.Module):
                yield name, value


def _name(function: Callable[..., Any]) -> str:
    name = str(getattr(function, "__name__", ""))
    return name if name.isidentifier() else FunctionModule.__name__
