"""Rows of an artifact's profile beside those of torch.compile, and the generated kernels that they stand for."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pt2hub.domain.performance.profiles import ProfileRow

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pt2hub.domain.fusion import FusedKernel
    from pt2hub.domain.performance.profiles import Profile

_LIBRARY = re.compile(r"aoti_torch_(?:cpu|cuda)_(\w+?)(?:_out)?")
"""Functions by which generated code calls an operator of a library."""
_VARIANT = re.compile(r"^(?:_|cudnn_|mkldnn_|mkl_)+")
"""What an operator's own implementation has before its name: `aten::_convolution`, `aten::cudnn_convolution`."""
_NUMBERED = re.compile(r"(.+)_\d+")
_PACKAGE = re.compile(r"model_(?=triton_)")
"""Before a Triton kernel's name where it is in a package. Rows lack it, so that they pair with torch.compile's."""


@dataclass(frozen=True, slots=True)
class PairedRow:
    """An operation or kernel, as the calls of the artifact and of torch.compile ran it.

    Attributes:
        name: The profiler's name for it; equal names may stand for different kernels, since each compile numbers its own.
        artifact: None if the artifact did not run it.
        torch_compile: None if torch.compile did not run it, or was not profiled.
    """

    name: str
    artifact: ProfileRow | None = None
    torch_compile: ProfileRow | None = None


def pair_rows(own: Profile, other: Profile | None) -> tuple[PairedRow, ...]:
    """Return the rows of both profiles by name, those that take longest in a call of either first."""
    mine = {row.name: row for row in own.rows}
    theirs = {row.name: row for row in other.rows} if other else {}
    rows = [PairedRow(name, mine.get(name), theirs.get(name)) for name in {**mine, **theirs}]

    def longest(row: PairedRow) -> float:
        times = [row.artifact.total_us / own.calls if row.artifact else 0.0]
        if row.torch_compile and other:
            times.append(row.torch_compile.total_us / other.calls)
        return max(times)

    return tuple(sorted(rows, key=lambda row: (-longest(row), row.name)))


def _merge(one: FusedKernel, other: FusedKernel) -> FusedKernel:
    """Return two kernels of one name as one: parts that are compiled apart number theirs alike, and a row has both."""
    return replace(
        one,
        calls=one.calls + other.calls,
        operations=tuple(dict.fromkeys((*one.operations, *other.operations))),
        lowered=tuple(dict.fromkeys((*one.lowered, *other.lowered))),
    )


class KernelIndex:
    """The kernels of an artifact's code, for finding the one that a row of its profile stands for."""

    def __init__(self, kernels: Iterable[FusedKernel]) -> None:
        self._by_row: dict[str, FusedKernel] = {}
        self._by_stem: dict[str, list[FusedKernel]] = {}
        self._by_operator: dict[str, FusedKernel] = {}
        by_name: dict[str, FusedKernel] = {}
        for kernel in kernels:
            before = by_name.get(kernel.name)
            by_name[kernel.name] = _merge(before, kernel) if before else kernel
        for kernel in by_name.values():
            self._by_row[_PACKAGE.sub("", kernel.name)] = kernel
            if found := _LIBRARY.fullmatch(kernel.name):
                self._by_operator.setdefault(_VARIANT.sub("", found[1]), kernel)
            if found := _NUMBERED.fullmatch(kernel.name):
                self._by_stem.setdefault(found[1], []).append(kernel)

    def find(self, row: ProfileRow) -> FusedKernel | None:
        """Return a row's kernel: by its name, by the operator that launches it, or None.

        In the code, the package's name is before a kernel of the compiler's, and a number is after one of the model's own.
        """
        if found := self._by_row.get(row.name):
            return found
        numbered: Sequence[FusedKernel] = self._by_stem.get(row.name, ())
        if len(numbered) == 1:
            return numbered[0]
        _, operator, name = (row.operator or row.name).partition("::")
        return self._by_operator.get(_VARIANT.sub("", name)) if operator else None
