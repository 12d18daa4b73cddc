"""Models that factories of installed packages build."""

from __future__ import annotations

import difflib
import importlib
import warnings
from typing import TYPE_CHECKING, Any

from pt2hub.domain.specs import check_factory
from pt2hub.errors import FactoryArguments, UnknownFactory
from pt2hub.operators import declare_torchvision
from pt2hub_workers.inside.sources.calling import Call
from pt2hub_workers.inside.sources.configs import WHERE, with_config

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pt2hub.domain.specs import FactorySource


def build(source: FactorySource, allowed: Sequence[str]) -> Any:  # noqa: ANN401  # whatever the factory returns
    """Calls the factory under its seed.

    Args:
        source: Which factory, with which arguments, or fields of its configuration.
        allowed: Modules whose factories may be named.

    Raises:
        UnknownFactory: The module cannot be imported, is not allowed, or has no such function.
        FactoryArguments: The factory does not take these arguments, or its configuration these fields.
        FactoryFailed: The factory raised.
    """
    check_factory(source, allowed)
    factory = find_factory(source)
    if source.config is not None:
        factory = with_config(source, factory)
    elif _needs_config(factory):
        raise FactoryArguments(
            f"{source.factory} is built from a configuration",
            where=WHERE,
            hint="Write its fields there; {} takes the defaults.",
        )
    return Call(factory, source.factory, "source.factory").make(source.kwargs, source.seed)


def find_factory(source: FactorySource) -> Callable[..., Any]:
    """Imports a factory.

    Raises:
        UnknownFactory: The module is not installed, or has no such function.
    """
    module_name, attribute = source.module, source.factory.partition(":")[2]
    declare_torchvision()
    try:
        # What a package says about itself at import is nothing that a publisher can mend.
        with warnings.catch_warnings(action="ignore"):
            module = importlib.import_module(module_name)
            factory = getattr(module, attribute, None)  # transformers imports a model's own module here
    except ImportError as error:
        raise UnknownFactory(
            f"{module_name} cannot be imported on this worker: {error}",
            where="source.factory",
            hint="Install its package beside the worker's torch.",
        ) from error
    if not callable(factory):
        near = difflib.get_close_matches(attribute, dir(module), n=3)
        raise UnknownFactory(
            f"{module_name} has no function {attribute}",
            where="source.factory",
            hint=f"Did you mean {', '.join(near)}?" if near else f"See dir({module_name}).",
        )
    return factory


def _needs_config(factory: Callable[..., Any]) -> bool:
    """Whether it is a class of transformers: its own, or an Auto class, which would say that it is not to be called."""
    return isinstance(getattr(factory, "config_class", None), type) or hasattr(factory, "_model_mapping")
