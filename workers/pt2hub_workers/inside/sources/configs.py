"""Configuration objects of transformers, built from JSON fields, whose unknown ones it would keep and ignore itself."""

from __future__ import annotations

import contextlib
import difflib
import importlib
import inspect
from typing import TYPE_CHECKING, Any

from pt2hub.errors import Detail, FactoryArguments

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pt2hub.domain.specs import FactorySource

WHERE = "source.config"
_TYPE = "model_type"
_NEAR = 3


def with_config(source: FactorySource, factory: Callable[..., Any]) -> Callable[..., Any]:
    """What builds the model of a configuration: a class's or an Auto class's own way, which heeds its dtype too.

    Args:
        source: Its `config` is there.
        factory: A class of transformers, or of what is built like it.

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
        own = _of_type(fields.pop(_TYPE, None))
        make = factory.from_config
        taken = inspect.signature(make)
    else:
        raise FactoryArguments(
            f"{source.factory} takes no configuration",
            where=WHERE,
            hint="Write its arguments to source.kwargs. A configuration is for classes of transformers.",
        )
    config = _configured(own, fields)

    def build(**kwargs: Any) -> Any:  # noqa: ANN401  # whatever the class takes and makes
        return make(config, **kwargs)

    others = [item for name, item in taken.parameters.items() if name != "config"]
    build.__signature__ = taken.replace(parameters=others)  # type: ignore[attr-defined]  # what inspect.signature reads
    return build


def _configured(kind: type, fields: Mapping[str, Any]) -> Any:  # noqa: ANN401  # a PretrainedConfig
    try:
        made = kind(**fields)
    except Exception as error:  # each configuration checks its fields its own way
        raise FactoryArguments(
            f"{kind.__name__} refuses its fields: {' '.join(str(error).split())[:500]}",
            where=next((f"{WHERE}.{name}" for name in fields if f"'{name}'" in str(error)), WHERE),
            hint="Build the same configuration in a Python shell.",
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
    """Fields that the configuration did no more with than keep them, also those of configurations within it."""
    known = _known(kind)
    parts: Mapping[str, type] = getattr(kind, "sub_configs", {})
    found = []
    for name, value in fields.items():
        inner = getattr(made, name, None) if name in parts and isinstance(value, dict) else None
        if inner is not None:
            given = {key: item for key, item in value.items() if key != _TYPE}
            found += _unknown(type(inner), inner, given, f"{where}.{name}")
        elif name in vars(made) and name not in known:
            near = difflib.get_close_matches(name, known, n=_NEAR)
            found.append(
                Detail(f"{where}.{name}", _no_field(kind), given=str(value), allowed=", ".join(near) or None)
            )
    return found


def _known(kind: type) -> set[str]:
    known = {*inspect.signature(kind).parameters, *getattr(kind, "attribute_map", {}), *dir(kind)}
    with contextlib.suppress(Exception):  # one that cannot do without arguments
        known.update(vars(kind()))
    return {name for name in known if not name.startswith("__")}


def _no_field(kind: type) -> str:
    return f"{kind.__name__} has no such field"


def _hint(unknown: Detail, kind: type) -> str:
    ask = f"Did you mean {unknown.allowed}? " if unknown.allowed else ""
    return f"{ask}transformers would keep the field and ignore it. The fields are those of {kind.__name__} in its release."


def _check_type(given: object, kind: type) -> None:
    expected = getattr(kind, _TYPE, None)
    if given is not None and given != expected:
        raise FactoryArguments(
            f"the class is built from {kind.__name__}, whose model_type is {expected}, not {given}",
            where=f"{WHERE}.{_TYPE}",
            hint="Leave model_type out, or name the class that fits.",
        )


def _of_type(given: object) -> type:
    """The configuration class that a type names."""
    mapping = importlib.import_module("transformers").CONFIG_MAPPING
    if given in mapping.keys():  # noqa: SIM118  # it is lazy, and no more than looks like a dict
        found: type = mapping[given]
        return found
    near = difflib.get_close_matches(str(given), mapping.keys(), n=_NEAR)
    raise FactoryArguments(
        f"there is no model_type {given}" if given is not None else "an Auto class needs a model_type",
        where=f"{WHERE}.{_TYPE}",
        hint=f"Did you mean {', '.join(near)}?"
        if near
        else "Such as bert, gpt2, vit: AutoConfig.for_model takes it.",
    )
