"""Builds configuration objects of transformers from JSON fields; unknown fields, which it would ignore, are refused."""

from __future__ import annotations

import contextlib
import difflib
import importlib
import inspect
from typing import TYPE_CHECKING, Any

from pt2hub.errors import Detail, FactoryArguments

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pt2hub.domain.publishing.spec import FactorySource

WHERE = "source.config"
_TYPE = "model_type"
_MAX_SUGGESTIONS = 3


def with_config(source: FactorySource, factory: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that builds the model of a configuration the way its class or Auto class does.

    Args:
        factory: A class of transformers, or one with the same interface.

    Returns:
        A function of the remaining arguments.

    Raises:
        FactoryArguments: The factory takes no configuration, or the fields are unknown or wrong.
    """
    fields = dict(source.config or {})
    own = getattr(factory, "config_class", None)
    if isinstance(own, type):
        _check_type(fields.pop(_TYPE, None), own)
        make: Callable[..., Any] = getattr(factory, "_from_config", factory)
        taken = inspect.signature(factory)
    elif hasattr(factory, "from_config"):  # an Auto class
        own = _find_config_class(fields.pop(_TYPE, None))
        make = factory.from_config
        taken = inspect.signature(make)
    else:
        raise FactoryArguments(
            f"{source.factory} does not accept a configuration",
            where=WHERE,
            hint="Write its arguments to source.kwargs: a configuration is for classes of transformers only.",
        )
    config = _configure(own, fields)

    def build(**kwargs: Any) -> Any:
        return make(config, **kwargs)

    others = [item for name, item in taken.parameters.items() if name != "config"]
    build.__signature__ = taken.replace(parameters=others)  # type: ignore[attr-defined]  # what inspect.signature reads
    return build


def _configure(kind: type, fields: Mapping[str, Any]) -> Any:
    try:
        made = kind(**fields)
    except Exception as error:  # each configuration checks its fields its own way
        raise FactoryArguments(
            f"invalid fields for {kind.__name__}: {' '.join(str(error).split())[:500]}",
            where=next((f"{WHERE}.{name}" for name in fields if f"'{name}'" in str(error)), WHERE),
            hint="Reproduce the error by building the same configuration in a Python shell.",
        ) from error
    unknown = _unknown(kind, made, fields, WHERE)
    if unknown:
        raise FactoryArguments(
            "; ".join(f"{item.path.rpartition('.')[2]}: {item.message}" for item in unknown),
            where=unknown[0].path,
            details=tuple(unknown),
            hint=_hint(unknown[0], kind),
        )
    return made


def _unknown(kind: type, made: object, fields: Mapping[str, Any], where: str) -> list[Detail]:
    """Return the fields that the configuration merely stores, including those of nested configurations."""
    known = _known_fields(kind)
    parts: Mapping[str, type] = getattr(kind, "sub_configs", {})
    found = []
    for name, value in fields.items():
        inner = getattr(made, name, None) if name in parts and isinstance(value, dict) else None
        if inner is not None:
            given = {key: item for key, item in value.items() if key != _TYPE}
            found += _unknown(type(inner), inner, given, f"{where}.{name}")
        elif name in vars(made) and name not in known:
            close = difflib.get_close_matches(name, known, n=_MAX_SUGGESTIONS)
            found.append(
                Detail(f"{where}.{name}", _no_field(kind), given=str(value), allowed=", ".join(close) or None)
            )
    return found


def _known_fields(kind: type) -> set[str]:
    known = {*inspect.signature(kind).parameters, *getattr(kind, "attribute_map", {}), *dir(kind)}
    with contextlib.suppress(Exception):  # the class requires arguments
        known.update(vars(kind()))
    return {name for name in known if not name.startswith("__")}


def _no_field(kind: type) -> str:
    return f"{kind.__name__} has no such field"


def _hint(unknown: Detail, kind: type) -> str:
    ask = f"Did you mean {unknown.allowed}? " if unknown.allowed else ""
    return f"{ask}transformers would store the field and ignore it. See the fields of {kind.__name__} in the installed release."


def _check_type(given: object, kind: type) -> None:
    expected = getattr(kind, _TYPE, None)
    if given is not None and given != expected:
        raise FactoryArguments(
            f"model_type must be {expected} for {kind.__name__}, got {given}",
            where=f"{WHERE}.{_TYPE}",
            hint="Remove model_type, or use the factory of the matching class.",
        )


def _find_config_class(given: object) -> type:
    """Return the configuration class of a model_type."""
    mapping = importlib.import_module("transformers").CONFIG_MAPPING
    if given in mapping.keys():  # noqa: SIM118  # it is lazy, and not a real dict
        found: type = mapping[given]
        return found
    close = difflib.get_close_matches(str(given), mapping.keys(), n=_MAX_SUGGESTIONS)
    raise FactoryArguments(
        f"unknown model_type {given!r}" if given is not None else "an Auto class requires a model_type",
        where=f"{WHERE}.{_TYPE}",
        hint=f"Did you mean {', '.join(close)}?"
        if close
        else "Examples are bert, gpt2 and vit; AutoConfig.for_model accepts the same names.",
    )
