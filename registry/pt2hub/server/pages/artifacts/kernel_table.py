"""Table of an artifact's kernels."""

from __future__ import annotations

import re
from dataclasses import dataclass

from pt2hub.domain.digests import Digest
from pt2hub.domain.fusion import FusedKernel
from pt2hub.rendering.kernels import format_operations, has_resources, reused_lines
from pt2hub.wire.kernels import KernelsView

SHOWN = 20
_FINDABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,260}")
"""Names that the sources can be searched for."""


@dataclass(frozen=True, slots=True)
class KernelRow:
    """A kernel.

    Attributes:
        lines: Lines of the model with their operations.
        generated: Its name in the generated sources; may be empty.
    """

    kernel: FusedKernel
    lines: tuple[tuple[str, str], ...]
    generated: str


@dataclass(frozen=True, slots=True)
class KernelTable:
    """The kernels of an artifact.

    Attributes:
        has_resources: Whether registers, shared memory or spills of any kernel are known.
        reused: A line for each part whose kernels another artifact has, with that artifact.
    """

    view: KernelsView
    shown: tuple[KernelRow, ...]
    others: tuple[KernelRow, ...]
    has_resources: bool
    reused: tuple[tuple[str, Digest | None], ...] = ()


def tabulate(view: KernelsView) -> KernelTable:
    """Return the table of an artifact's kernels."""
    rows = tuple(
        KernelRow(kernel, tuple(lines), kernel.name if _FINDABLE.fullmatch(kernel.name) else "")
        for kernel, lines in format_operations(view)
    )
    return KernelTable(
        view, rows[:SHOWN], rows[SHOWN:], has_resources(view.kernels), tuple(reused_lines(view))
    )
