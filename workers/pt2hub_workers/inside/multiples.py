"""Whether an exported program holds for every multiple that the spec declares.

torch.export proves what it assumed of a dimension over its whole range, but not of one computed from another
(`8 * Dim("n")`): a program that needs multiples of 16 is exported for multiples of 8 without a word, and compiled code
checks nothing (seen with torch 2.11 and 2.13). What it assumed is in the program's guards, which are tried here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from pt2hub_workers.inside import explaining

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pt2hub.domain.specs import DimSpec, Input, Spec

TRIED = 64
"""Sizes of each dimension that are tried from the smallest on; the largest is tried too."""


def check_multiples(program: torch.export.ExportedProgram, order: list[str], spec: Spec) -> None:
    """Refuses a program that assumes more of a dimension than the spec says.

    The smallest size is left to the gate, which runs it: torch takes it for a special case (once the step) that it
    has not traced, and mostly it is none.

    Args:
        program: The program.
        order: Paths of its inputs, in the order it takes them.
        spec: For shapes and dimensions.

    Raises:
        DimensionSpecialised: A size of a dimension is none that the program is right for.
    """
    if all(dim.multiple_of == 1 for dim in spec.dims.values()):
        return
    guards: torch.nn.Module = program.module()._guards_fn  # type: ignore[assignment]  # noqa: SLF001  # its only name
    declared = {item.name: item for item in spec.inputs}
    example = {name: dim.example for name, dim in spec.dims.items()}
    for name, dim in spec.dims.items():
        sizes = range(dim.min, dim.max + 1, dim.multiple_of)
        tried = sorted({*sizes[1:TRIED], sizes[-1]})
        held = [
            size
            for size in tried
            if _holds(guards, [declared[path] for path in order], {**example, name: size})
        ]
        if held != tried:
            raise explaining.unfit(name, _advice(name, dim, tried, held))


def _holds(guards: torch.nn.Module, inputs: list[Input], sizes: Mapping[str, int]) -> bool:
    tensors = [
        torch.empty(
            [sizes[size] if isinstance(size, str) else size for size in item.shape],
            dtype=getattr(torch, item.dtype),
            device="meta",
        )
        for item in inputs
    ]
    try:
        guards(*tensors)
    except AssertionError:
        return False
    return True


def _advice(name: str, dim: DimSpec, tried: list[int], held: list[int]) -> tuple[str, str]:
    """What to write, from the sizes that were tried and those that held."""
    if held == [dim.example]:
        return explaining.one_size(name, dim.example)
    if len(held) > 1 and held[0] + dim.multiple_of < held[1]:
        step = held[1] - held[0]
        # Once the greater step is a special case as well.
        if {*held, step} == {step, *(size for size in tried if size % step == 0)}:
            return explaining.only_multiples(name, step)
    if held == tried[: len(held)]:
        return explaining.fewer_sizes(name, {"max": held[-1]}) if held else explaining.other_sizes(name, "")
    if held == tried[-len(held) :]:
        return explaining.fewer_sizes(name, {"min": held[0]})
    wrong = next(size for size in tried if size not in held)
    return explaining.other_sizes(name, f"not {wrong}")
