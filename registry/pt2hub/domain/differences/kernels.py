"""Differences between the kernels of two artifacts' code."""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass
from itertools import zip_longest
from typing import TYPE_CHECKING

from pt2hub.domain.differences.fields import Change, count_changes
from pt2hub.domain.fusion import FusedKernel

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

MAX_KERNELS_LISTED = 100
_NUMBER = re.compile(r"_\d+\Z")


@dataclass(frozen=True, slots=True)
class KernelDifference:
    """A kernel that differs.

    Attributes:
        change: `changed` if calls, registers, shared memory or spills differ.
        before: Kernel of the first artifact; None if added.
        after: Kernel of the second artifact; None if removed.
    """

    change: Change
    before: FusedKernel | None = None
    after: FusedKernel | None = None


@dataclass(frozen=True, slots=True)
class KernelDifferences:
    """Differences between the kernels of two artifacts.

    Attributes:
        added: Number of kernels that only the second artifact has.
        removed: Number of kernels that only the first artifact has.
        changed: Number of kernels with other calls, registers, shared memory or spills.
        before_calls: Number of places in the code of the first artifact that call a kernel; None if unknown.
        after_calls: As `before_calls`, of the second artifact.
        kernels: The kernels that differ, in the order of their first call.
        left_out: Number of further kernels that differ.
        unrecorded: Number of nodes and kernels beyond the limits of the records.
        reused_parts: Number of parts of each artifact whose code, and record of kernels, another artifact has.
        missing: Why the kernels cannot be compared; empty if they can.
    """

    added: int = 0
    removed: int = 0
    changed: int = 0
    before_calls: int | None = None
    after_calls: int | None = None
    kernels: tuple[KernelDifference, ...] = ()
    left_out: int = 0
    unrecorded: int = 0
    reused_parts: tuple[int, int] = (0, 0)
    missing: str = ""


def compare_kernels(before: Sequence[FusedKernel], after: Sequence[FusedKernel]) -> KernelDifferences:
    """Compare kernels by name.

    The compiler numbers kernels in order (`triton_poi_fused_relu_3`), so the number is ignored: the nth kernel with a name is
    matched with the nth in the other code.
    """
    found = list(_differences(before, after))
    added, removed, changed = count_changes(item.change for item in found)
    return KernelDifferences(
        added,
        removed,
        changed,
        before_calls=sum(kernel.calls for kernel in before),
        after_calls=sum(kernel.calls for kernel in after),
        kernels=tuple(found[:MAX_KERNELS_LISTED]),
        left_out=max(0, len(found) - MAX_KERNELS_LISTED),
    )


def _differences(before: Sequence[FusedKernel], after: Sequence[FusedKernel]) -> Iterator[KernelDifference]:
    one, other = _by_name(before), _by_name(after)
    for name in {**one, **other}:
        for was, now in zip_longest(one.get(name, ()), other.get(name, ())):
            if was is None or now is None:
                yield KernelDifference("added" if was is None else "removed", was, now)
            elif _resources(was) != _resources(now):
                yield KernelDifference("changed", was, now)


def _by_name(kernels: Sequence[FusedKernel]) -> dict[str, list[FusedKernel]]:
    found: dict[str, list[FusedKernel]] = defaultdict(list)
    for kernel in kernels:
        found[_NUMBER.sub("", kernel.name)].append(kernel)
    return found


def _resources(kernel: FusedKernel) -> tuple[int | None, ...]:
    return kernel.calls, kernel.registers, kernel.shared_bytes, kernel.spills
