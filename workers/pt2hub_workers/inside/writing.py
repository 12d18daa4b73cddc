"""Which of its inputs and constants an exported program writes to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.utils import _pytree as pytree

if TYPE_CHECKING:
    from collections.abc import Iterator

    Bases = frozenset[str]


def written(program: torch.export.ExportedProgram) -> frozenset[str]:
    """Names of the placeholders whose memory the program writes to.

    `torch.export.export` leaves operations that write in place as they are and lists no mutations in its signature
    (seen with torch 2.11 and 2.13: `buffers_to_mutate` is empty), so they are found by the operations' schemas.
    """
    bases: dict[torch.fx.Node, Bases] = {}
    found: set[str] = set()
    for node in program.graph.nodes:
        if node.op == "placeholder":
            bases[node] = frozenset((node.name,))
        elif node.op == "call_function":
            bases[node] = _bases_of(node, bases)
            for value in _changed(node):
                found |= bases.get(value, frozenset())
    return frozenset(found)


def _bases_of(node: torch.fx.Node, bases: dict[torch.fx.Node, Bases]) -> Bases:
    """What a result may be a view of."""
    if not isinstance(node.target, torch._ops.OpOverload):  # noqa: SLF001  # torch has no public name for it
        values = node.all_input_nodes  # an item of a tuple, or a higher-order operation
    else:
        values = [value for value, schema in _arguments(node) if schema.alias_info is not None]
    return frozenset().union(*(bases.get(value, frozenset()) for value in values))


def _changed(node: torch.fx.Node) -> list[torch.fx.Node]:
    if not isinstance(node.target, torch._ops.OpOverload):  # noqa: SLF001
        return []
    return [value for value, schema in _arguments(node) if schema.alias_info and schema.alias_info.is_write]


def _arguments(node: torch.fx.Node) -> Iterator[tuple[torch.fx.Node, Any]]:
    """An operation's arguments, each with its entry in the schema."""
    schema = node.target._schema.arguments  # type: ignore[union-attr]  # noqa: SLF001  # of an OpOverload
    for place, entry in enumerate(schema):
        value = node.args[place] if place < len(node.args) else node.kwargs.get(entry.name)
        for leaf in pytree.tree_leaves(value):
            if isinstance(leaf, torch.fx.Node):
                yield leaf, entry
