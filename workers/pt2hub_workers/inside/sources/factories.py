"""Builds models with factories of installed packages."""

from __future__ import annotations

import difflib
import importlib
import warnings
from typing import TYPE_CHECKING, Any

from pt2hub.domain.publishing.spec import check_factory
from pt2hub.errors import FactoryArguments, UnknownFactory
from pt2hub.torchvision_operators import declare_torchvision
from pt2hub_workers.inside.sources.call import FactoryCall
from pt2hub_workers.inside.sources.configs import WHERE, with_config

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pt2hub.domain.publishing.spec import FactorySource


def build(source: FactorySource, allowed: Sequence[str]) -> Any:
    """Call the factory with its seed.

    Raises:
        UnknownFactory: The module cannot be imported, is not allowed, or has no such function.
        FactoryArguments: The factory does not accept the arguments, or its configuration the fields.
    """
    check_factory(source, allowed)
    factory = find_factory(source)
    if source.config is not None:
        factory = with_config(source, factory)
    elif _needs_config(factory):
        raise FactoryArguments(
            f"{source.factory} requires a configuration",
            where=WHERE,
            hint="Write its fields to source.config; {} selects the defaults.",
        )
    return FactoryCall(factory, source.factory, "source.factory").make(source.kwargs, source.seed)


def find_factory(source: FactorySource) -> Callable[..., Any]:
    """Import a factory."""
    module_name, attribute = source.module, source.factory.partition(":")[2]
    declare_torchvision()
    try:
        # A publisher cannot fix warnings that a package emits on import.
        with warnings.catch_warnings(action="ignore"):
            module = importlib.import_module(module_name)
            factory = getattr(module, attribute, None)  # transformers imports a model's own module here
    except ImportError as error:
        raise UnknownFactory(
            f"{module_name} cannot be imported on this worker: {error}",
            where="source.factory",
            hint="Install its package in the worker's environment.",
        ) from error
    if not callable(factory):
        close = difflib.get_close_matches(attribute, dir(module), n=3)
        raise UnknownFactory(
            f"{module_name} has no function {attribute}",
            where="source.factory",
            hint=f"Did you mean {', '.join(close)}?" if close else f"See dir({module_name}).",
        )
    return factory


def _needs_config(factory: Callable[..., Any]) -> bool:
    """Return whether a factory is a class of transformers or an Auto class, which needs a configuration."""
    return isinstance(getattr(factory, "config_class", None), type) or hasattr(factory, "_model_mapping")
