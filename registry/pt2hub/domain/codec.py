"""Frozen dataclasses to JSON values and back.

The light client reads the server's answers with this and nothing else: pydantic would bring four packages
and a third of the command line's start-up time. Unknown fields are ignored, so that an older client reads
a newer server.
"""

from __future__ import annotations

import dataclasses
import functools
import types
import typing
from typing import Any, TypeVar

from pt2hub.errors import BadResponse

T = TypeVar("T")
_PLAIN = frozenset({str, int, float, bool})


def encode(value: Any) -> Any:  # noqa: ANN401  # any dataclass or JSON value
    """JSON values of a dataclass, with None and empty containers kept."""
    if value is None or type(value) in _PLAIN:  # most of a config is: asked before anything that costs more
        return value
    if isinstance(value, tuple | list):
        return [encode(item) for item in value]
    if isinstance(value, dict):
        return {key: encode(item) for key, item in value.items()}
    if names := _names(typing.cast("typing.Hashable", type(value))):
        return {name: encode(getattr(value, name)) for name in names}
    return value


def decode(cls: type[T], value: Any, *, where: str = "") -> T:  # noqa: ANN401  # any JSON value
    """A dataclass (or container of them) out of JSON values.

    Args:
        cls: The type to build.
        value: JSON values.
        where: Path of `value` in the document, for the error.

    Raises:
        BadResponse: A field is missing or of the wrong type.
    """
    return typing.cast("T", _decode(cls, value, where or getattr(cls, "__name__", "value")))


@functools.cache
def _names(cls: typing.Hashable) -> tuple[str, ...]:
    """The fields of a dataclass; none of anything else."""
    return tuple(item.name for item in dataclasses.fields(cls)) if dataclasses.is_dataclass(cls) else ()


@functools.cache
def _fields(cls: type) -> tuple[tuple[str, Any, bool], ...]:
    """Name, type and whether it must be given, of each field of a dataclass."""
    hints, missing = typing.get_type_hints(cls), dataclasses.MISSING
    return tuple(
        (item.name, hints[item.name], item.default is missing and item.default_factory is missing)
        for item in dataclasses.fields(cls)
    )


def _decode(kind: Any, value: Any, where: str) -> Any:  # noqa: ANN401  # a type and a value of it
    if type(value) is kind:  # most values: asked before anything that costs more
        return value
    origin = typing.get_origin(kind)
    if kind is Any or isinstance(kind, TypeVar):
        return value
    if isinstance(kind, typing.NewType):
        return _decode(kind.__supertype__, value, where)
    if origin in (types.UnionType, typing.Union):
        return _decode_union(typing.get_args(kind), value, where)
    if origin in (tuple, list, dict):
        return _decode_container(origin, typing.get_args(kind), value, where)
    if origin is typing.Literal:
        return value
    if dataclasses.is_dataclass(kind):
        return _decode_dataclass(typing.cast("type", kind), value, where)
    return _decode_scalar(kind, value, where)


def _decode_union(choices: tuple[Any, ...], value: Any, where: str) -> Any:  # noqa: ANN401  # as _decode
    if value is None and type(None) in choices:
        return None
    present = [choice for choice in choices if choice is not type(None)]
    for choice in present:
        if isinstance(choice, type) and isinstance(value, choice):
            return value
    return _decode(present[0], value, where)


def _decode_container(origin: Any, args: tuple[Any, ...], value: Any, where: str) -> Any:  # noqa: ANN401  # as _decode
    if not isinstance(value, dict if origin is dict else list):
        raise BadResponse(f"{where} holds {type(value).__name__} where {origin.__name__} belongs")
    if isinstance(value, dict):
        return {key: _decode(args[1], item, f"{where}.{key}") for key, item in value.items()}
    return origin(_decode(args[0], item, f"{where}[{index}]") for index, item in enumerate(value))


def _decode_dataclass(cls: type, value: Any, where: str) -> Any:  # noqa: ANN401  # as _decode
    if not isinstance(value, dict):
        raise BadResponse(f"{where} holds {type(value).__name__} where an object belongs")
    given = {}
    for name, hint, required in _fields(cls):
        if name in value:
            given[name] = _decode(hint, value[name], f"{where}.{name}")
        elif required:
            raise BadResponse(f"{where}.{name} is missing")
    return cls(**given)


def _decode_scalar(kind: Any, value: Any, where: str) -> Any:  # noqa: ANN401  # as _decode
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        try:
            return float(value)
        except OverflowError:
            raise BadResponse(f"{where} holds a number beyond all floats") from None
    if isinstance(kind, type) and not isinstance(value, kind):
        raise BadResponse(f"{where} holds {type(value).__name__} where {kind.__name__} belongs")
    return value
