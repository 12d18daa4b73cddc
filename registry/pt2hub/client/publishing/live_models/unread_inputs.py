"""Inputs that an exported program never reads: their model ignores them, or torch.export lost them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.export.graph_signature import InputKind, TensorArgument

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch.export import ExportedProgram

_SIZES = ("sym_size", "sym_stride", "sym_numel", "sym_storage_offset")
"""Operators that read a tensor's shape but not its values."""


def unread_inputs(program: ExportedProgram, paths: Sequence[str]) -> list[str]:
    """Return the inputs whose values reach no output or buffer of the program; their sizes may be read.

    torch.export gives one node to arguments that are one tensor, and the others none (seen with torch 2.13).

    Args:
        paths: Of its tensor inputs, in the order it takes them.
    """
    names = [
        item.arg.name
        for item in program.graph_signature.input_specs
        if item.kind is InputKind.USER_INPUT and isinstance(item.arg, TensorArgument)
    ]
    if len(names) != len(paths):
        return []
    reached = _reachable_nodes(program.graph)
    return [
        path for path, name in zip(paths, names, strict=True) if name not in reached or names.count(name) > 1
    ]


def operator_name(target: Any) -> str:
    """Return an operator's name without its overload, such as aten.rand_like."""
    if isinstance(target, torch._ops.OpOverload):  # noqa: SLF001  # torch has no public name for it
        return target._schema.name.replace("::", ".")  # noqa: SLF001  # its only name
    return str(getattr(target, "__name__", target))


def _reachable_nodes(graph: torch.fx.Graph) -> frozenset[str]:
    """Return the names of nodes whose values matter, walking back from outputs, writes and opaque nodes."""
    waiting = [node for node in graph.nodes if node.op == "output" or _acts(node)]
    seen = set(waiting)
    while waiting:
        node = waiting.pop()
        if any(part in operator_name(node.target) for part in _SIZES):
            continue
        for before in node.all_input_nodes:
            if before not in seen:
                seen.add(before)
                waiting.append(before)
    return frozenset(node.name for node in seen)


def _acts(node: torch.fx.Node) -> bool:
    target: Any = node.target
    if node.op != "call_function":
        return False
    if isinstance(target, torch._ops.OpOverload):  # noqa: SLF001  # torch has no public name for it
        return bool(target._schema.is_mutable)  # noqa: SLF001  # its only name
    return isinstance(target, torch._ops.HigherOrderOperator)  # noqa: SLF001  # the same
