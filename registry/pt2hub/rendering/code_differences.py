"""Rendering of the differences between exported graphs and between kernels."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pt2hub.rendering.diff_sections import Section
from pt2hub.rendering.quantities import format_bytes, format_count
from pt2hub.rendering.reasons import NOTHING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pt2hub.domain.differences.graphs import GraphDifferences, NodeDifference
    from pt2hub.domain.differences.kernels import KernelDifference, KernelDifferences
    from pt2hub.domain.differences.program_keys import KeyDifferences
    from pt2hub.domain.fusion import FusedKernel, GraphNode
    from pt2hub.wire.differences import DiffView

_NODES = ("Change", "Operation", "Before", "After", "Line of the model")
_KERNELS = ("Change", "Kernel", "Calls", "Registers", "Shared memory", "Spills")


def graph(view: DiffView) -> Section:
    """Return the section of the exported graphs."""
    found = view.graph
    if view.key.same:
        return Section("graph", "Graph", ("The program keys are the same, and so the graphs.",))
    if found.missing:
        return Section("graph", "Graph", (found.missing,))
    line = f"{found.summary}." if found.summary else _explain_same_nodes(view.key)
    return Section("graph", "Graph", (line,), _NODES, tuple(map(_node_row, found.nodes)), _graph_notes(found))


def _explain_same_nodes(key: KeyDifferences) -> str:
    """Return what is known where no recorded node differs: the key covers the whole graph, the record only its nodes."""
    groups = {item.path.partition(".")[0] for item in key.fields}
    if "graph" in groups:
        return (
            "The exported graphs differ, but not in what is recorded of their nodes: operations, shapes and dtypes. "
            "The difference is in what is not recorded, such as arguments."
        )
    if key.missing or key.left_out:
        return "The recorded nodes are the same; arguments of nodes are not recorded."
    return "The exported graphs are the same."


def kernels(view: DiffView) -> Section:
    """Return the section of the kernels."""
    found, code = view.kernels, view.comparison.code
    if code and code.same:
        return Section("kernels", "Kernels", (code.message,))
    if found.missing:
        return Section("kernels", "Kernels", (found.missing,))
    rows = tuple(map(_kernel_row, found.kernels))
    notes = (*_notes(found), *_reused_notes(view))
    return Section("kernels", "Kernels", (_kernel_line(found),), _KERNELS, rows, notes)


def _reused_notes(view: DiffView) -> Iterator[str]:
    """Yield what is not compared, because other artifacts have the record."""
    sides = (view.comparison.before, view.comparison.after)
    for side, count in zip(sides, view.kernels.reused_parts, strict=True):
        if count:
            name = f"{side.model}@{side.number}"
            yield (
                f"Not compared: the kernels of {format_count(count, 'part')} of {name} that {'runs' if count == 1 else 'run'} "
                f"code of other artifacts. pt2hub kernels {name} names them."
            )


def _node_row(item: NodeDifference) -> tuple[str, ...]:
    node = item.after or item.before
    assert node is not None, "one of them differs"
    return item.change, node.target, _output(item.before), _output(item.after), node.source or NOTHING


def _output(node: GraphNode | None) -> str:
    """Return a node's shape and dtype: `float32[8, s0]`."""
    if node is None:
        return NOTHING
    return node.name if node.shape is None else f"{node.dtype or ''}[{', '.join(node.shape)}]"


def _graph_notes(found: GraphDifferences) -> tuple[str, ...]:
    unaligned = (
        "The graphs differ in too many places to match nodes by their order: the nth node that calls an operation is compared "
        "with the nth one of the other graph."
    )
    return (*(() if found.is_aligned else (unaligned,)), *_notes(found))


def _kernel_line(found: KernelDifferences) -> str:
    counts = (("added", found.added), ("removed", found.removed), ("changed", found.changed))
    changes = ", ".join(f"{count} {change}" for change, count in counts if count)
    calls = f"the code has {format_count(found.before_calls or 0, 'call')} before, {found.after_calls or 0:,} after"
    return f"{changes or 'No kernel differs'}; {calls}."


def _kernel_row(item: KernelDifference) -> tuple[str, ...]:
    kernel = item.after or item.before
    assert kernel is not None, "one of them differs"
    sides = item.before, item.after
    return (
        item.change,
        kernel.name,
        _both(*(str(side.calls) if side else None for side in sides)),
        *(
            _both(*(_number(side, name) for side in sides))
            for name in ("registers", "shared_bytes", "spills")
        ),
    )


def _number(kernel: FusedKernel | None, name: str) -> str | None:
    value = getattr(kernel, name) if kernel else None
    if value is None:
        return None
    return format_bytes(value) if name == "shared_bytes" else str(value)


def _both(before: str | None, after: str | None) -> str:
    """Return two values as text: one where they are the same or only one is known."""
    if before is None or after is None or before == after:
        return before or after or NOTHING
    return f"{before}, then {after}"


def _notes(found: GraphDifferences | KernelDifferences) -> tuple[str, ...]:
    more = (f"{found.left_out:,} more.",) if found.left_out else ()
    if not found.unrecorded:
        return more
    return (
        *more,
        f"{format_count(found.unrecorded, 'kernel or node')} beyond the limits of the records: not compared.",
    )
