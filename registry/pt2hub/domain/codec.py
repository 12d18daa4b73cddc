"""Conversion of frozen dataclasses to JSON values and back.

The light client decodes responses with this alone: pydantic would add four packages and a third of the CLI's start-up
time. Unknown fields are ignored, so that older clients can read newer servers.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import re
import types
import typing
from typing import Any, TypeVar

from pt2hub.domain.digests import DIGEST_PATTERN, Digest
from pt2hub.errors import BadResponse

T = TypeVar("T")
_DIGEST = re.compile(DIGEST_PATTERN)
_SURROGATE = b"\\ud"
"""Beginning of an escaped surrogate; one that is not escaped is not UTF-8."""
_PLAIN = frozenset({str, int, float, bool})


def encode(value: Any) -> Any:
    """Return a dataclass as JSON values, including None and empty containers."""
    if value is None or type(value) in _PLAIN:  # fast path: true for most values of a config
        return value
    if isinstance(value, tuple | list):
        return [encode(item) for item in value]
    if isinstance(value, dict):
        return {key: encode(item) for key, item in value.items()}
    if names := _names(typing.cast("typing.Hashable", type(value))):
        return {name: encode(getattr(value, name)) for name in names}
    return value


def parse_json(data: bytes) -> Any:
    """Parse a JSON document that may have been written by anybody.

    Raises:
        ValueError: It is not JSON, is nested too deeply, or has NaN or a text with half a surrogate pair, neither of which
            can be written again.
    """
    try:
        value = json.loads(data, parse_constant=_refuse_constant)
        if _SURROGATE in data.lower():
            json.dumps(value, ensure_ascii=False).encode()
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
    return value


def _refuse_constant(name: str) -> typing.NoReturn:
    raise ValueError(f"invalid number {name}")


def decode(cls: type[T], value: Any, *, where: str = "") -> T:
    """Decode a dataclass, or a container of them, from JSON values.

    Args:
        cls: The type to decode.
        value: JSON values.
        where: Path of `value` in the document, for the error.

    Raises:
        BadResponse: A field is missing or has the wrong type.
    """
    return typing.cast("T", _decode(cls, value, where or getattr(cls, "__name__", "value")))


@functools.cache
def _names(cls: typing.Hashable) -> tuple[str, ...]:
    """Return the field names of a dataclass; empty for other types."""
    return tuple(item.name for item in dataclasses.fields(cls)) if dataclasses.is_dataclass(cls) else ()


@functools.cache
def _fields(cls: type) -> tuple[tuple[str, Any, bool], ...]:
    """Return name, type and required flag of each field of a dataclass."""
    hints, missing = typing.get_type_hints(cls), dataclasses.MISSING
    return tuple(
        (item.name, hints[item.name], item.default is missing and item.default_factory is missing)
        for item in dataclasses.fields(cls)
    )


def _decode_named(kind: typing.NewType, value: Any, where: str) -> Any:
    plain = _decode(kind.__supertype__, value, where)
    if kind is Digest and not _DIGEST.fullmatch(plain):  # it names files
        raise BadResponse(f"{where} must be a digest, got {plain!r:.80}")
    return plain


def _decode(kind: Any, value: Any, where: str) -> Any:
    if type(value) is kind:  # fast path: true for most values
        return value
    origin = typing.get_origin(kind)
    if kind is Any or isinstance(kind, TypeVar):
        return value
    if isinstance(kind, typing.NewType):
        return _decode_named(kind, value, where)
    if origin in (types.UnionType, typing.Union):
        return _decode_union(typing.get_args(kind), value, where)
    if origin in (tuple, list, dict):
        return _decode_container(origin, typing.get_args(kind), value, where)
    if origin is typing.Literal:
        return value
    if dataclasses.is_dataclass(kind):
        return _decode_dataclass(typing.cast("type", kind), value, where)
    return _decode_scalar(kind, value, where)


def _decode_union(choices: tuple[Any, ...], value: Any, where: str) -> Any:
    if value is None and type(None) in choices:
        return None
    present = [choice for choice in choices if choice is not type(None)]
    for choice in present:
        if isinstance(choice, type) and isinstance(value, choice):
            return value
    return _decode(present[0], value, where)


def _decode_container(origin: Any, args: tuple[Any, ...], value: Any, where: str) -> Any:
    if not isinstance(value, dict if origin is dict else list):
        raise BadResponse(f"{where} must be {origin.__name__}, got {type(value).__name__}")
    if isinstance(value, dict):
        return {key: _decode(args[1], item, f"{where}.{key}") for key, item in value.items()}
    return origin(_decode(args[0], item, f"{where}[{index}]") for index, item in enumerate(value))


def _decode_dataclass(cls: type, value: Any, where: str) -> Any:
    if not isinstance(value, dict):
        raise BadResponse(f"{where} must be an object, got {type(value).__name__}")
    given = {}
    for name, hint, required in _fields(cls):
        if name in value:
            given[name] = _decode(hint, value[name], f"{where}.{name}")
        elif required:
            raise BadResponse(f"{where}.{name} is missing")
    return cls(**given)


def _decode_scalar(kind: Any, value: Any, where: str) -> Any:
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        try:
            return float(value)
        except OverflowError:
            raise BadResponse(f"{where} is a number outside the range of floats") from None
    if isinstance(kind, type) and not isinstance(value, kind):
        raise BadResponse(f"{where} must be {kind.__name__}, got {type(value).__name__}")
    return value
