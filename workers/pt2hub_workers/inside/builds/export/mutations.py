"""Finds the inputs and constants that an exported program writes to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.utils import _pytree as pytree

if TYPE_CHECKING:
    from collections.abc import Iterator

    Bases = frozenset[str]
    Known = dict[torch.fx.Node, Bases]

_NONE: Bases = frozenset()


def find_mutated_placeholders(program: torch.export.ExportedProgram) -> frozenset[str]:
    """Return the names of the placeholders that the program writes to.

    `torch.export.export` leaves operations that write in place as they are and lists no mutations in its signature
    (seen with torch 2.11 and 2.13: `buffers_to_mutate` is empty), so they are found by the operations' schemas.
    """
    found: set[str] = set()
    given = [frozenset((node.name,)) for node in program.graph.find_nodes(op="placeholder")]
    _follow(program.graph_module, given, found)
    return frozenset(found)


def _follow(module: torch.fx.GraphModule, given: list[Bases], found: set[str]) -> Bases:
    """Add the placeholders that a graph writes to to `found`.

    Returns:
        The placeholders that its results may be views of.
    """
    known: Known = dict(zip(module.graph.find_nodes(op="placeholder"), given, strict=True))
    for node in module.graph.nodes:
        if node.op == "call_function":
            known[node] = _bases_of(module, node, known, found)
            for value in _mutated_nodes(node):
                found |= known.get(value, _NONE)
    return _union(known, module.graph.output_node().all_input_nodes)


def _bases_of(module: torch.fx.GraphModule, node: torch.fx.Node, known: Known, found: set[str]) -> Bases:
    """Return the placeholders that a node's result may be a view of."""
    if isinstance(node.target, torch._ops.HigherOrderOperator):  # noqa: SLF001  # torch has no public name for it
        return _bases_of_subgraphs(module, node, known, found)
    if not isinstance(node.target, torch._ops.OpOverload):  # noqa: SLF001  # the same
        return _union(known, node.all_input_nodes)  # an item of a tuple
    return _union(
        known,
        [v for v, schema in _arguments(node) if schema.alias_info is not None and not _converts(node, v)],
    )


def _bases_of_subgraphs(
    module: torch.fx.GraphModule, node: torch.fx.Node, known: Known, found: set[str]
) -> Bases:
    """Do the same as `_bases_of` for the graphs that an operation runs, such as a block under `torch.no_grad`."""
    values = pytree.tree_leaves((node.args, node.kwargs))
    graphs = {place: graph for place, value in enumerate(values) if (graph := _graph(module, value))}
    if not graphs:
        return _union(known, node.all_input_nodes)
    everything = _union(known, node.all_input_nodes)
    # All of these operations take what they pass on after the last graph.
    passed = [known.get(value, _NONE) for value in values[max(graphs) + 1 :]]
    results = _NONE
    for graph in graphs.values():
        count = len(graph.graph.find_nodes(op="placeholder"))
        results |= _follow(graph, passed if len(passed) == count else [everything] * count, found)
    return results


def _graph(module: torch.fx.GraphModule, value: object) -> torch.fx.GraphModule | None:
    if not isinstance(value, torch.fx.Node) or value.op != "get_attr":
        return None
    found = getattr(module, str(value.target), None)
    return found if isinstance(found, torch.fx.GraphModule) else None


def _union(known: Known, values: list[torch.fx.Node]) -> Bases:
    return _NONE.union(*(known.get(value, _NONE) for value in values))


def _converts(node: torch.fx.Node, value: torch.fx.Node) -> bool:
    """Return whether an operation that may return its argument unchanged makes a new tensor, because the dtype differs."""
    if node.target.overloadpacket is not torch.ops.aten.to:  # type: ignore[union-attr]  # of an OpOverload
        return False
    made, given = node.meta.get("val"), value.meta.get("val")
    return isinstance(made, torch.Tensor) and isinstance(given, torch.Tensor) and made.dtype != given.dtype


def _mutated_nodes(node: torch.fx.Node) -> list[torch.fx.Node]:
    if not isinstance(node.target, torch._ops.OpOverload):  # noqa: SLF001
        return []
    return [value for value, schema in _arguments(node) if schema.alias_info and schema.alias_info.is_write]


def _arguments(node: torch.fx.Node) -> Iterator[tuple[torch.fx.Node, Any]]:
    """Yield an operation's tensor arguments, each with its entry in the schema."""
    schema = node.target._schema.arguments  # type: ignore[union-attr]  # noqa: SLF001  # of an OpOverload
    for place, entry in enumerate(schema):
        value = node.args[place] if place < len(node.args) else node.kwargs.get(entry.name)
        for leaf in pytree.tree_leaves(value):
            if isinstance(leaf, torch.fx.Node):
                yield leaf, entry
