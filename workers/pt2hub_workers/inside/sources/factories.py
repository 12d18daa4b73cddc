"""Models that factories of installed packages build."""

from __future__ import annotations

import difflib
import importlib
import inspect
from typing import TYPE_CHECKING, Any

import torch

from pt2hub.domain.specs import check_factory
from pt2hub.errors import FactoryArguments, FactoryFailed, UnknownFactory
from pt2hub_workers.inside.schemas import declare_torchvision

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pt2hub.domain.specs import FactorySource


def build(source: FactorySource, allowed: Sequence[str]) -> Any:  # noqa: ANN401  # whatever the factory returns
    """Calls the factory under its seed.

    Args:
        source: Which factory, with which arguments.
        allowed: Modules whose factories may be named.

    Raises:
        UnknownFactory: The module cannot be imported, is not allowed, or has no such function.
        FactoryArguments: The factory does not take these arguments.
        FactoryFailed: The factory raised.
    """
    check_factory(source, allowed)
    factory = find_factory(source)
    _check_arguments(factory, source)
    torch.manual_seed(source.seed)
    try:
        return factory(**source.kwargs)
    except Exception as error:
        if isinstance(error, TypeError) and "unexpected keyword argument" in str(error):
            raise _unfit(factory, source, error) from error  # it passed **kwargs on before anyone looked
        raise FactoryFailed(
            f"{source.factory} raised {type(error).__name__}: {_first_line(error)}",
            where="source.factory",
            hint="Call the factory with the same arguments in a Python shell; it must need no network.",
        ) from error


def find_factory(source: FactorySource) -> Callable[..., Any]:
    """Imports a factory.

    Raises:
        UnknownFactory: The module is not installed, or has no such function.
    """
    module_name, attribute = source.module, source.factory.partition(":")[2]
    declare_torchvision()
    try:
        module = importlib.import_module(module_name)
    except ImportError as error:
        raise UnknownFactory(
            f"{module_name} cannot be imported on this worker: {error}",
            where="source.factory",
            hint="Install its package beside the worker's torch.",
        ) from error
    factory = getattr(module, attribute, None)
    if not callable(factory):
        near = difflib.get_close_matches(attribute, dir(module), n=3)
        raise UnknownFactory(
            f"{module_name} has no function {attribute}",
            where="source.factory",
            hint=f"Did you mean {', '.join(near)}?" if near else f"See dir({module_name}).",
        )
    return factory


def _check_arguments(factory: Callable[..., Any], source: FactorySource) -> None:
    signature = inspect.signature(factory)
    try:
        signature.bind(**source.kwargs)
    except TypeError as error:
        raise _unfit(factory, source, error) from error


def _unfit(factory: Callable[..., Any], source: FactorySource, error: TypeError) -> FactoryArguments:
    return FactoryArguments(
        f"{source.factory} {error}",
        where="source.kwargs",
        hint=f"Its signature is {source.factory.partition(':')[2]}{inspect.signature(factory)}.",
    )


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [""])[0][:500]
