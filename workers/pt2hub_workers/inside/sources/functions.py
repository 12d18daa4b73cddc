"""Plain functions as modules: torch.export takes nothing else."""

from __future__ import annotations

import functools
import inspect
from typing import TYPE_CHECKING, Any

import torch

from pt2hub.errors import NotAModule

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping


_SETTINGS = (int, float, bool, str, dict, "int", "float", "bool", "str", "dict")
"""Annotations of a builder's arguments; as text where the code postpones them."""


class FunctionModule(torch.nn.Module):
    """A module without weights whose forward is a function; each function has a subclass of its own."""


def is_function(value: object) -> bool:
    """Whether it is a function: one written in Python or built in, a method, or a partial call of one."""
    return inspect.isroutine(value) or isinstance(value, functools.partial)


def takes_inputs(entry: Callable[..., Any], given: Mapping[str, Any]) -> bool:
    """Whether an entry looks like a model itself: a function that asks for positional arguments that may be tensors.

    Args:
        entry: A builder, or a model.
        given: What it would be called with; a name that it does not have is a slip of a builder's caller.
    """
    try:
        parameters = inspect.signature(entry).parameters if is_function(entry) else {}
    except ValueError:  # built in
        return False
    if set(given) - set(parameters):
        return False
    asked = [
        item
        for name, item in parameters.items()
        if item.kind in (item.POSITIONAL_ONLY, item.POSITIONAL_OR_KEYWORD)
        and item.default is item.empty
        and name not in given
    ]
    return any(item.annotation not in _SETTINGS for item in asked)


def as_module(function: Callable[..., Any], where: str) -> FunctionModule:
    """Wraps a function; forward has its signature, and the class its name.

    Args:
        function: As `is_function` tells.
        where: What of the spec named it, for errors.

    Raises:
        NotAModule: It has no signature, or calls a module, whose weights would become literals of the code.
    """
    for name, module in _modules_of(function):
        raise NotAModule(
            f"the function calls {name}, a {type(module).__name__}, whose weights would be no part of the model",
            where=where,
            hint="Return that module itself, or a module that has it as an attribute and calls it in forward.",
        )
    try:
        signature = inspect.signature(function)
    except ValueError as error:
        raise NotAModule(
            f"{_name(function)} is built in and does not tell its arguments",
            where=where,
            hint="Write a function with named arguments that calls it.",
        ) from error

    def forward(self: FunctionModule, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401  # the function's own
        del self
        return function(*args, **kwargs)

    own = inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY)
    told = signature.replace(parameters=[own, *signature.parameters.values()])
    functools.update_wrapper(forward, function, updated=())
    forward.__signature__ = told  # type: ignore[attr-defined]  # what inspect.signature reads
    made: type[FunctionModule] = type(_name(function), (FunctionModule,), {"forward": forward})
    return made()


def _modules_of(function: Callable[..., Any]) -> Iterator[tuple[str, torch.nn.Module]]:
    """Modules that a function has, but not as an argument."""
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
