"""Which source builds which model, and what every model must be."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from pt2hub.domain.specs import CodeSource, FactorySource, ProgramSource, Spec
from pt2hub.errors import NotAModule
from pt2hub_workers.inside.sources import code, factories, functions, programs
from pt2hub_workers.inside.sources.checking import check_tensors
from pt2hub_workers.inside.sources.storage import own_storage

if TYPE_CHECKING:
    from pt2hub.domain.specs import Source


@dataclass(frozen=True, slots=True)
class Given:
    """What the worker gave the build beside the spec.

    Attributes:
        factories: Modules whose factories may be named.
        source: The uploaded archive or program, None for a factory.
        weights: The version's weights, None for the first build of a seeded source.
        scratch: A directory for unpacked files.
        device: `cpu` or `cuda`; a program's graph names the one it computes on.
        spec: How the model is called, which a program says of itself too; None where nothing is to be compared.
    """

    factories: tuple[str, ...]
    source: Path | None
    weights: Path | None
    scratch: Path
    device: str = "cpu"
    spec: Spec | None = None


def build_model(source: Source, given: Given) -> torch.nn.Module:
    """Builds the model, in eval mode; every parameter and buffer gets its own contiguous storage.

    Args:
        source: As the spec has it.
        given: Files and settings.

    Raises:
        Pt2hubError: The source is at fault; see each kind's own module.
        NotAModule: It built something other than a module or a plain function.
        UnsupportedTensor: The model has tensors that are not dense, real and plain.
    """
    model = _as_module(_build(source, given), source)
    check_tensors(model)
    return own_storage(model.eval().requires_grad_(False))


def _build(source: Source, given: Given) -> Any:  # noqa: ANN401  # whatever the source builds
    match source:
        case FactorySource():
            return factories.build(source, given.factories)
        case CodeSource():
            return code.build(source, given.source, given.scratch)
        case ProgramSource():
            return programs.build(given)


def _as_module(built: Any, source: Source) -> torch.nn.Module:  # noqa: ANN401  # whatever was built
    """What was built as a module: itself, the one that torch.compile wrapped, or a function's."""
    where = "source.entry" if isinstance(source, CodeSource) else "source.factory"
    if functions.is_function(built):
        return functions.as_module(built, where)
    if isinstance(built, torch._dynamo.OptimizedModule):  # noqa: SLF001  # torch has no public name for it
        built = built._orig_mod  # noqa: SLF001  # the same
    if isinstance(built, torch.nn.Module) and not isinstance(built, torch.jit.ScriptModule):
        return built
    raise NotAModule(
        f"the source made {_described(built)}, not a torch.nn.Module",
        where=where,
        hint="Return the module itself, not yet scripted, exported or compiled; or a function of the inputs.",
    )


def _described(built: object) -> str:
    if isinstance(built, type):
        return f"the class {built.__name__}"
    return "nothing" if built is None else f"an object of type {type(built).__name__}"
