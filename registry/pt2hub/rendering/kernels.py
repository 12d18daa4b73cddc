"""Operations of kernels as text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pt2hub.domain.fusion import group_by_line, sources_of
from pt2hub.renderable import Sheet
from pt2hub.rendering.quantities import format_count

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pt2hub.domain.fusion import FusedKernel
    from pt2hub.wire.kernels import KernelsView

MAX_LINES = 6
"""Lines of the model that are listed of a kernel."""
MAX_OPERATIONS = 8
"""Operations that are listed of a line."""
RESOURCES = ("registers", "shared_bytes", "spills")
RESOURCE_LABELS = ("Registers", "Shared memory", "Spills")


def kernels(view: KernelsView) -> Sheet:
    """Return the kernels of an artifact with their operations."""
    rows = tuple(
        (
            kernel.name,
            format_count(kernel.calls, "call"),
            "; ".join(f"{line} {names}".strip() for line, names in lines),
        )
        for kernel, lines in format_operations(view)
    )
    return Sheet(f"{view.model}@{view.number} for {view.target}: {format_count(len(rows), 'kernel')}", rows)


def format_operations(view: KernelsView) -> Iterator[tuple[FusedKernel, list[tuple[str, str]]]]:
    """Yield each kernel with the model's lines that it computes and the operations of each line."""
    sources = sources_of(view.graph)
    for kernel in view.kernels:
        yield kernel, format_lines(group_by_line(kernel, sources))


def format_lines(lines: Sequence[tuple[str, Sequence[str]]]) -> list[tuple[str, str]]:
    """Return lines of the model, each with its operations as text; the first ones of many."""
    shown = [(line, _join(names)) for line, names in lines[:MAX_LINES]]
    more = len(lines) - len(shown)
    return [*shown, ("", f"and {more} more lines")] if more else shown


def has_resources(kernels: Sequence[FusedKernel]) -> bool:
    """Return whether registers, shared memory or spills of any kernel are known."""
    return any(getattr(kernel, name) is not None for kernel in kernels for name in RESOURCES)


def _join(names: Sequence[str]) -> str:
    more = len(names) - MAX_OPERATIONS
    return " + ".join(names[:MAX_OPERATIONS]) + (f" and {more} more" if more > 0 else "")
