"""Arguments of a call, split into tensors by path and fixed values."""

from __future__ import annotations

import inspect
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from pt2hub.archive.safetensors_header import WIDTHS
from pt2hub.domain.publishing import paths
from pt2hub.errors import InvalidInput, UnsupportedTensor

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

DTYPES = frozenset(
    {"float32", "float16", "bfloat16", "float64", "int64", "int32", "int16", "int8", "uint8", "bool"}
)
"""Dtypes of a spec's inputs; the same as `domain.publishing.inputs.Dtype`, which the light client cannot import."""
_VALUES = "Tensors, numbers, booleans, text and None can be published, alone or in dicts, lists and tuples."


@dataclass(frozen=True, slots=True)
class Call:
    """A call of a model.

    Attributes:
        tensors: The tensors in them by path (`domain.publishing.paths`), in the order of `values`.
    """

    values: Mapping[str, Any]
    tensors: Mapping[str, torch.Tensor]
    fixed: Mapping[str, Any]


def taken_apart(values: Mapping[str, Any]) -> Call:
    """Return the call with these arguments.

    Raises:
        InvalidInput: No argument is a tensor, or a spec cannot contain an argument.
        UnsupportedTensor: A tensor is complex, sparse, quantised, of a subclass or without values.
    """
    tensors, fixed = {}, {}
    for argument, value in values.items():
        for path, part in _parts(argument, value):
            if isinstance(part, torch.Tensor):
                _check_input(path, part)
                tensors[path] = part
            else:
                _check_fixed(path, part)
                fixed[path] = part
    if not tensors:
        raise InvalidInput(
            "The model needs at least one tensor argument",
            where="args",
            hint="Pass example inputs: pt2hub.publish(model, (x,), name=...).",
        )
    return Call(dict(values), tensors, fixed)


def bound(function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments by parameter name, in the order that torch.export expects.

    Raises:
        InvalidInput: The function does not take them, or takes them without a name.
    """
    signature = inspect.signature(function)
    try:
        signature.bind(*args, **kwargs)
    except TypeError as exc:
        raise InvalidInput(
            f"The model does not accept these arguments: {exc}",
            where="args",
            hint=f"Its signature is forward{signature}.",
        ) from exc
    named = signature.bind_partial(*args).arguments
    for name in named:
        if signature.parameters[name].kind is inspect.Parameter.VAR_POSITIONAL:
            raise InvalidInput(
                f"The model takes these arguments as *{name}, which gives them no names",
                where="args",
                hint="Wrap it in a function or module whose arguments are named.",
            )
    return {**named, **kwargs}


def unsupported_reason(tensor: torch.Tensor) -> str:
    """Return why a tensor cannot be published; empty if it can."""
    if type(tensor) not in (torch.Tensor, torch.nn.Parameter):
        return f"of the class {type(tensor).__name__}"
    if tensor.is_quantized:
        return "quantised"
    if tensor.layout is not torch.strided:
        return "sparse"
    if tensor.is_complex():
        return "complex"
    if tensor.is_meta:
        return "on the meta device, without values"
    name = dtype_name(tensor)
    return "" if name in WIDTHS else f"of dtype {name}"


def dtype_name(tensor: torch.Tensor) -> str:
    """Return the name of a tensor's dtype, such as `float32`."""
    return str(tensor.dtype).removeprefix("torch.")


def _parts(argument: str, value: object) -> list[tuple[str, Any]]:
    try:
        return list(paths.split(argument, value))
    except ValueError as exc:
        raise InvalidInput(str(exc), where=argument, hint=_VALUES) from exc


def _check_input(path: str, tensor: torch.Tensor) -> None:
    problem = unsupported_reason(tensor)
    name = dtype_name(tensor)
    if not problem and name not in DTYPES:
        problem = f"of dtype {name}"
    if problem:
        raise UnsupportedTensor(
            f"The example input is {problem}",
            where=path,
            hint=f"Inputs are plain dense tensors of {', '.join(sorted(DTYPES))}; convert it outside of the model, or "
            "inside.",
        )


def _check_fixed(path: str, value: object) -> None:
    plain = value is None or type(value) in (bool, int, float, str)
    if plain and (not isinstance(value, float) or math.isfinite(value)):
        return
    said = repr(value) if plain else f"of the class {type(value).__name__}"
    raise InvalidInput(
        f"The argument is {said}, which cannot be published",
        where=path,
        hint=f"{_VALUES} Wrap the model in a function that makes this value itself.",
    )
