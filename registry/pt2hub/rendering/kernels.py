"""Operations of kernels as text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pt2hub.domain.fusion import group_by_line, sources_of
from pt2hub.renderable import Sheet
from pt2hub.rendering.quantities import format_count
from pt2hub.rendering.regions import MAX_REGIONS, describe_calls

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pt2hub.domain.digests import Digest
    from pt2hub.domain.fusion import FusedKernel
    from pt2hub.wire.kernels import KernelsView, ReusedPart

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
    notes = tuple(line for line, _ in reused_lines(view))
    title = f"{view.model}@{view.number} for {view.target}: {format_count(len(rows), 'kernel')}"
    return Sheet(title, rows, notes)


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


def reused_lines(view: KernelsView) -> list[tuple[str, Digest | None]]:
    """Return a line for each part whose kernels another artifact has, with that artifact."""
    shown = [(_reused_line(part), part.artifact) for part in view.reused_parts[:MAX_REGIONS]]
    more = len(view.reused_parts) - len(shown)
    return (
        [*shown, (f"{format_count(more, 'more part')} with code of other artifacts.", None)]
        if more
        else shown
    )


def _reused_line(part: ReusedPart) -> str:
    calls = describe_calls(part.calls, part.modules)
    if not part.version:
        return f"The kernels of {calls} are not listed: no artifact that you may read has them."
    return f"The kernels of {calls} are listed with {part.version}, whose code is reused."


def has_resources(kernels: Sequence[FusedKernel]) -> bool:
    """Return whether registers, shared memory or spills of any kernel are known."""
    return any(getattr(kernel, name) is not None for kernel in kernels for name in RESOURCES)


def _join(names: Sequence[str]) -> str:
    more = len(names) - MAX_OPERATIONS
    return " + ".join(names[:MAX_OPERATIONS]) + (f" and {more} more" if more > 0 else "")
