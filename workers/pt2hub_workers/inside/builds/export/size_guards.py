"""Checks that an exported program is valid for all sizes that the spec declares, alone and in combination.

torch.export proves its assumptions about a dimension over the whole range, but neither for a dimension computed from
another (`8 * Dim("n")`) nor for two dimensions: a program that needs multiples of 16 is exported for multiples of 8
without a warning, and one with a branch on `x.shape[0] >= y.shape[0]` keeps one side. Compiled code checks nothing (seen
with torch 2.11 and 2.13). The program's assumptions are in its guards, which are evaluated here.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import torch

from pt2hub_workers.inside.builds.export import failures
from pt2hub_workers.inside.builds.export.model_lines import DimensionNames

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pt2hub.domain.publishing.spec import DimSpec, Spec

MAX_TRIED_SIZES = 64
"""Number of sizes of each dimension that are tried, from the smallest up; the largest is tried too."""


def check_sizes(program: torch.export.ExportedProgram, order: list[str], spec: Spec) -> None:
    """Refuse a program that assumes more about its dimensions than the spec declares.

    The smallest size is left to verification, which runs it: torch treats it (one step) as a special case that it has
    not traced, although most models do not.

    Args:
        order: Paths of the inputs, in the order of the program's arguments.
    """
    steps = any(dim.multiple_of > 1 for dim in spec.dims.values())
    if not steps and len(spec.dims) < 2:  # noqa: PLR2004  # torch itself proved all of it
        return
    guards = _Guards(program, order, spec)
    if steps:
        for name, dim in spec.dims.items():
            _check_alone(guards, name, dim, spec)
    for pair in itertools.combinations(spec.dims, 2):
        for sizes in itertools.product(*(_sample_sizes(spec.dims[name]) for name in pair)):
            together = dict(zip(pair, sizes, strict=True))
            if violation := guards.find_violation(together):
                advice = failures.advise_combination(together, violation)
                raise failures.dimension_error(pair[1], advice)


class _Guards:
    """A program's assumptions about the sizes of its inputs."""

    def __init__(self, program: torch.export.ExportedProgram, order: list[str], spec: Spec) -> None:
        declared = {item.name: item for item in spec.inputs}
        self._guards: torch.nn.Module = program.module()._guards_fn  # type: ignore[assignment]  # noqa: SLF001  # its only name
        self._inputs = [declared[path] for path in order]
        self._example = {name: dim.example for name, dim in spec.dims.items()}
        self._names = DimensionNames(spec)

    def find_violation(self, sizes: Mapping[str, int]) -> str | None:
        """Return the assumption that these sizes violate, with example sizes for the other dimensions; None if none."""
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
            return self._names.format_guard(str(error).removeprefix("Guard failed: "))
        return None

    def hold(self, sizes: Mapping[str, int]) -> bool:
        """Return whether the program is valid for these sizes."""
        return self.find_violation(sizes) is None


def _sample_sizes(dim: DimSpec) -> list[int]:
    """Return some small and large sizes of a dimension."""
    sizes = range(dim.min, dim.max + 1, dim.multiple_of)
    return sorted({sizes[1], dim.example, sizes[len(sizes) // 2], sizes[-1]})


def _check_alone(guards: _Guards, name: str, dim: DimSpec, spec: Spec) -> None:
    sizes = range(dim.min, dim.max + 1, dim.multiple_of)
    tried = sorted({*sizes[1:MAX_TRIED_SIZES], sizes[-1]})
    held = [size for size in tried if guards.hold({name: size})]
    if held == tried:
        return
    same = (
        other
        for other, its in spec.dims.items()
        if other != name and its == dim and all(guards.hold({name: size, other: size}) for size in tried)
    )
    other = next(same, None)
    raise failures.dimension_error(
        name, failures.advise_equal_sizes(name, other) if other else _advice(name, dim, tried, held)
    )


def _advice(name: str, dim: DimSpec, tried: list[int], held: list[int]) -> tuple[str, str]:
    """Return the problem and the hint, from the sizes that were tried and those that are valid."""
    if held == [dim.example]:
        return failures.advise_fixed_size(name, dim.example)
    if len(held) > 1 and held[0] + dim.multiple_of < held[1]:
        step = held[1] - held[0]
        # The greater step itself is a special case as well.
        if {*held, step} == {step, *(size for size in tried if size % step == 0)}:
            return failures.advise_multiples(name, step)
    if held == tried[: len(held)]:
        return (
            failures.advise_narrower_range(name, {"max": held[-1]})
            if held
            else failures.advise_other(name, "")
        )
    if held == tried[-len(held) :]:
        return failures.advise_narrower_range(name, {"min": held[0]})
    wrong = next(size for size in tried if size not in held)
    return failures.advise_other(name, f"not {wrong}")
