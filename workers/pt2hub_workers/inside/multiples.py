"""Whether an exported program holds for all sizes that the spec declares, alone and together.

torch.export proves what it assumed of a dimension over its whole range, but not of one computed from another
(`8 * Dim("n")`), nor of two: a program that needs multiples of 16 is exported for multiples of 8 without a word, and
one with a branch on `x.shape[0] >= y.shape[0]` with one of its sides. Compiled code checks nothing (seen with torch 2.11
and 2.13). What the program assumed is in its guards, which are tried here.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import torch

from pt2hub_workers.inside import explaining
from pt2hub_workers.inside.tracing import Names

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pt2hub.domain.specs import DimSpec, Spec

TRIED = 64
"""Sizes of each dimension that are tried from the smallest on; the largest is tried too."""


def check_sizes(program: torch.export.ExportedProgram, order: list[str], spec: Spec) -> None:
    """Refuses a program that assumes more of its dimensions than the spec says.

    The smallest size is left to the gate, which runs it: torch takes it for a special case (once the step) that it
    has not traced, and mostly it is none.

    Args:
        program: The program.
        order: Paths of its inputs, in the order it takes them.
        spec: For shapes and dimensions.

    Raises:
        DimensionSpecialised: A size of a dimension is none that the program is right for.
    """
    steps = any(dim.multiple_of > 1 for dim in spec.dims.values())
    if not steps and len(spec.dims) < 2:  # noqa: PLR2004  # torch itself proved all of it
        return
    guards = _Guards(program, order, spec)
    if steps:
        for name, dim in spec.dims.items():
            _check_alone(guards, name, dim, spec)
    for pair in itertools.combinations(spec.dims, 2):
        for sizes in itertools.product(*(_few(spec.dims[name]) for name in pair)):
            together = dict(zip(pair, sizes, strict=True))
            if said := guards.refusal(together):
                advice = explaining.not_together(together, said)
                raise explaining.unfit(pair[1], advice)


class _Guards:
    """What a program assumes of the sizes of its inputs."""

    def __init__(self, program: torch.export.ExportedProgram, order: list[str], spec: Spec) -> None:
        declared = {item.name: item for item in spec.inputs}
        self._guards: torch.nn.Module = program.module()._guards_fn  # type: ignore[assignment]  # noqa: SLF001  # its only name
        self._inputs = [declared[path] for path in order]
        self._example = {name: dim.example for name, dim in spec.dims.items()}
        self._names = Names(spec)

    def refusal(self, sizes: Mapping[str, int]) -> str | None:
        """What the program assumes that sizes, the others those of the example, do not keep to; None if nothing."""
        all_sizes = {**self._example, **sizes}
        tensors = [
            torch.empty(
                [all_sizes[size] if isinstance(size, str) else size for size in item.shape],
                dtype=getattr(torch, item.dtype),
                device="meta",
            )
            for item in self._inputs
        ]
        try:
            self._guards(*tensors)
        except AssertionError as error:
            return self._names.guard(str(error).removeprefix("Guard failed: "))
        return None

    def hold(self, sizes: Mapping[str, int]) -> bool:
        """Whether the program is right for sizes."""
        return self.refusal(sizes) is None


def _few(dim: DimSpec) -> list[int]:
    """Some sizes of a dimension, small ones and large ones."""
    sizes = range(dim.min, dim.max + 1, dim.multiple_of)
    return sorted({sizes[1], dim.example, sizes[len(sizes) // 2], sizes[-1]})


def _check_alone(guards: _Guards, name: str, dim: DimSpec, spec: Spec) -> None:
    sizes = range(dim.min, dim.max + 1, dim.multiple_of)
    tried = sorted({*sizes[1:TRIED], sizes[-1]})
    held = [size for size in tried if guards.hold({name: size})]
    if held == tried:
        return
    same = (
        other
        for other, its in spec.dims.items()
        if other != name and its == dim and all(guards.hold({name: size, other: size}) for size in tried)
    )
    other = next(same, None)
    raise explaining.unfit(
        name, explaining.equal_sizes(name, other) if other else _advice(name, dim, tried, held)
    )


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
