"""Which source builds which model, and what every model must be."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from pt2hub.domain.specs import CodeSource, FactorySource, ProgramSource
from pt2hub.errors import NotAModule
from pt2hub_workers.inside.sources import factories
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
    """

    factories: tuple[str, ...]
    source: Path | None
    weights: Path | None
    scratch: Path


def build_model(source: Source, given: Given) -> torch.nn.Module:
    """Builds the model, in eval mode; every parameter and buffer gets its own contiguous storage.

    Args:
        source: As the spec has it.
        given: Files and settings.

    Raises:
        Pt2hubError: The source is at fault; see each kind's own module.
        NotAModule: It built something other than a module or a plain function.
    """
    built = _build(source, given)
    if not isinstance(built, torch.nn.Module):
        raise NotAModule(
            f"the source built {type(built).__name__}, not a torch.nn.Module",
            where="source",
            hint="Return the module itself.",
        )
    return own_storage(built.eval().requires_grad_(False))


def _build(source: Source, given: Given) -> Any:  # noqa: ANN401  # whatever the source builds
    match source:
        case FactorySource():
            return factories.build(source, given.factories)
        case CodeSource() | ProgramSource():
            raise NotImplementedError  # room R2
