"""Checks the model in eager mode at its smallest sizes, before anything is compiled."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pt2hub.errors import InputRefused, NanOutput
from pt2hub_workers.inside.builds.export import eager, inputs

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    import torch

    from pt2hub.domain.publishing.spec import Spec


def check_smallest(module: torch.nn.Module, spec: Spec, examples: Mapping[str, Path]) -> None:
    """Refuse a model that fails at the smallest sizes that its spec declares.

    Verification would find it too, after minutes of compiling. Typical causes are batch normalisation in training mode
    and a standard deviation over one row.
    """
    smallest = {name: dim.min for name, dim in spec.dims.items()}
    if not spec.dims or (error := _find_error(smallest, module, spec, examples)) is None:
        return
    example = {name: dim.example for name, dim in spec.dims.items()}
    alone = (
        name for name in smallest if _find_error({**example, name: smallest[name]}, module, spec, examples)
    )
    names = [name] if (name := next(alone, None)) else list(smallest)
    sizes = ", ".join(f"{name}={smallest[name]}" for name in names)
    raise error.replace(
        message=f"at the smallest sizes, {sizes}: {error.message}",
        where=f"dims.{names[0]}.min",
        hint=f"Raise {' or '.join(f'dims.{name}.min' for name in names)}, or change the model. {error.hint or ''}".strip(),
    ) from error


def _find_error(
    sizes: dict[str, int], module: torch.nn.Module, spec: Spec, examples: Mapping[str, Path]
) -> InputRefused | NanOutput | None:
    device = eager.find_device(module)
    made = inputs.make_inputs(spec, inputs.Point("smallest", sizes), examples)
    moved = {name: tensor.to(device) for name, tensor in made.items()}
    try:
        eager.check_finite(eager.run_flat(module, moved), moved)
    except (InputRefused, NanOutput) as error:
        return error
    return None
