"""From a spec's source to a module in eval mode."""

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
    from collections.abc import Callable, Iterator, Sequence

    from pt2hub.domain.specs import FactorySource


def build_module(source: FactorySource, allowed: Sequence[str]) -> torch.nn.Module:
    """Calls the factory under its seed; every parameter and buffer gets its own contiguous storage.

    Args:
        source: Which factory, with which arguments.
        allowed: Modules whose factories may be named.

    Raises:
        UnknownFactory: The module cannot be imported, is not allowed, or has no such function.
        FactoryArguments: The factory does not take these arguments.
        FactoryFailed: The factory raised, or returned something other than a module.
    """
    check_factory(source, allowed)
    factory = find_factory(source)
    _check_arguments(factory, source)
    torch.manual_seed(source.seed)
    try:
        module = factory(**source.kwargs)
    except Exception as error:
        if isinstance(error, TypeError) and "unexpected keyword argument" in str(error):
            raise _unfit(factory, source, error) from error  # it passed **kwargs on before anyone looked
        raise FactoryFailed(
            f"{source.factory} raised {type(error).__name__}: {_first_line(error)}",
            where="source.factory",
            hint="Call the factory with the same arguments in a Python shell; it must need no network.",
        ) from error
    if not isinstance(module, torch.nn.Module):
        raise FactoryFailed(
            f"{source.factory} returned {type(module).__name__}, not a torch.nn.Module",
            where="source.factory",
        )
    return own_storage(module.eval().requires_grad_(False))


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


def own_storage(module: torch.nn.Module) -> torch.nn.Module:
    """Gives every parameter and buffer its own contiguous storage, ties kept.

    The compiler writes whole storages: constants that are views of one flat buffer would each be written
    with all of it (facts/aoti.md, section 16).
    """
    clones: dict[tuple[Any, ...], torch.Tensor] = {}
    originals: list[torch.Tensor] = []  # kept alive: a clone at a freed address would look like a tied tensor
    done: set[int] = set()
    for tensor in _parameters_and_buffers(module):
        if id(tensor) in done:  # one tensor under two names, such as a submodule used twice
            continue
        done.add(id(tensor))
        originals.append(tensor.detach())
        same_memory = (tensor.data_ptr(), tensor.shape, tensor.stride(), tensor.dtype)
        key = same_memory if tensor.numel() else (id(tensor),)
        if key not in clones:
            clones[key] = tensor.detach().clone(memory_format=torch.contiguous_format)
        tensor.data = clones[key]
    return module


def _parameters_and_buffers(module: torch.nn.Module) -> Iterator[torch.Tensor]:
    for _, parameter in module.named_parameters(remove_duplicate=False):
        yield parameter
    for _, buffer in module.named_buffers(remove_duplicate=False):
        yield buffer


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
