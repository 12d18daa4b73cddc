"""Builds a model from any kind of source, and checks it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from pt2hub.domain.publishing.spec import CodeSource, FactorySource, ProgramSource
from pt2hub.errors import NotAModule
from pt2hub_workers.inside.sources import code, factories, functions, programs
from pt2hub_workers.inside.sources.storage import own_storage
from pt2hub_workers.inside.sources.tensor_checks import check_tensors

if TYPE_CHECKING:
    from pt2hub.domain.publishing.spec import Source
    from pt2hub_workers.inside.sources.source_files import SourceFiles


def build_model(source: Source, given: SourceFiles) -> torch.nn.Module:
    """Build the model in eval mode; every parameter and buffer gets its own contiguous storage.

    Raises:
        NotAModule: The source returned something other than a module or a plain function.
    """
    model = _as_module(_build(source, given), source)
    check_tensors(model)
    return own_storage(model.eval().requires_grad_(False))


def _build(source: Source, given: SourceFiles) -> Any:
    match source:
        case FactorySource():
            return factories.build(source, given.factories)
        case CodeSource():
            return code.build(source, given.source, given.scratch)
        case ProgramSource():
            return programs.build(given)


def _as_module(built: Any, source: Source) -> torch.nn.Module:
    """Return a module: the one that was built, the one inside a torch.compile wrapper, or one around a function."""
    where = "source.entry" if isinstance(source, CodeSource) else "source.factory"
    if functions.is_function(built):
        return functions.wrap_function(built, where)
    if isinstance(built, torch._dynamo.OptimizedModule):  # noqa: SLF001  # torch has no public name for it
        built = built._orig_mod  # noqa: SLF001  # the same
    if isinstance(built, torch.nn.Module) and not isinstance(built, torch.jit.ScriptModule):
        return built
    raise NotAModule(
        f"the source must return a torch.nn.Module, got {_describe(built)}",
        where=where,
        hint="Return the module before scripting, exporting or compiling it, or a function of the inputs.",
    )


def _describe(built: object) -> str:
    if isinstance(built, type):
        return f"the class {built.__name__}"
    return "nothing" if built is None else f"an object of type {type(built).__name__}"
