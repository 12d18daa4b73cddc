"""Differences between two exported graphs, node by node, within bounds of time and length; the graphs are untrusted."""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from pt2hub.domain.differences.fields import Change, count_changes
from pt2hub.domain.differences.sequences import align
from pt2hub.domain.fusion import GraphNode

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

MAX_EDITS = 400
"""Added and removed nodes up to which nodes are matched by position: the time grows with this times the length."""
MAX_NODES_LISTED = 100
_SYMBOL = re.compile(r"\b[su]\d+\b")

_Pair: TypeAlias = "tuple[int | None, int | None]"


@dataclass(frozen=True, slots=True)
class NodeDifference:
    """A node that differs.

    Attributes:
        change: `changed` if shape or dtype differ between nodes that call the same.
        before: Node of the first graph; None if added.
        after: Node of the second graph; None if removed.
    """

    change: Change
    before: GraphNode | None = None
    after: GraphNode | None = None


@dataclass(frozen=True, slots=True)
class GraphDifferences:
    """Differences between two exported graphs; arguments of nodes are not recorded and not compared.

    Attributes:
        added: Number of nodes that only the second graph has.
        removed: Number of nodes that only the first graph has.
        changed: Number of nodes with another shape or dtype.
        nodes: The nodes that differ, in the graphs' order.
        left_out: Number of further nodes that differ.
        is_aligned: Whether nodes are matched by their order; else the graphs differ in too many places, and the nth node that
            calls something is matched with the nth in the other graph.
        unrecorded: Number of nodes and kernels beyond the limits of the records.
        missing: Why the graphs cannot be compared; empty if they can.
    """

    added: int = 0
    removed: int = 0
    changed: int = 0
    nodes: tuple[NodeDifference, ...] = ()
    left_out: int = 0
    is_aligned: bool = True
    unrecorded: int = 0
    missing: str = ""

    @property
    def summary(self) -> str:
        """The counts as text (`3 nodes added, 1 changed`); empty without differences."""
        counts = (("added", self.added), ("removed", self.removed), ("changed", self.changed))
        texts = [f"{count} {change}" for change, count in counts if count]
        if not texts:
            return ""
        first, _, rest = texts[0].partition(" ")
        return ", ".join([f"{first} node{'' if first == '1' else 's'} {rest}", *texts[1:]])


def compare_graphs(before: Sequence[GraphNode], after: Sequence[GraphNode]) -> GraphDifferences:
    """Compare two graphs: first by what their nodes call, then by shape and dtype of matched nodes."""
    keys = [[(node.opcode, node.target) for node in graph] for graph in (before, after)]
    pairs = align(*keys, most=MAX_EDITS)
    is_aligned = pairs is not None
    found = list(_differences(before, after, pairs if pairs is not None else _match_nth(*keys)))
    added, removed, changed = count_changes(item.change for item in found)
    return GraphDifferences(
        added,
        removed,
        changed,
        nodes=tuple(found[:MAX_NODES_LISTED]),
        left_out=max(0, len(found) - MAX_NODES_LISTED),
        is_aligned=is_aligned,
    )


def _differences(
    before: Sequence[GraphNode], after: Sequence[GraphNode], pairs: Iterable[_Pair]
) -> Iterator[NodeDifference]:
    one, other = _outputs(before), _outputs(after)
    for at, to in pairs:
        if at is None and to is not None:
            yield NodeDifference("added", after=after[to])
        elif at is not None and to is None:
            yield NodeDifference("removed", before=before[at])
        elif at is not None and to is not None and one[at] != other[to]:
            yield NodeDifference("changed", before[at], after[to])


def _match_nth(before: Sequence[tuple[str, str]], after: Sequence[tuple[str, str]]) -> Iterator[_Pair]:
    """Match the nth node that calls something with the nth one of the other graph."""
    places: dict[tuple[str, str], list[int]] = defaultdict(list)
    for to, key in reversed(list(enumerate(after))):
        places[key].append(to)
    for at, key in enumerate(before):
        yield at, places[key].pop() if places[key] else None
    yield from ((None, to) for to in sorted(to for rest in places.values() for to in rest))


def _outputs(graph: Sequence[GraphNode]) -> list[tuple[tuple[str, ...] | None, str | None]]:
    """Return the nodes' shapes and dtypes, with symbols numbered by their first use: every export numbers anew."""
    symbols: dict[str, str] = {}

    def rename(found: re.Match[str]) -> str:
        return symbols.setdefault(found[0], f"symbol {len(symbols)}")

    return [
        (None if node.shape is None else tuple(_SYMBOL.sub(rename, size) for size in node.shape), node.dtype)
        for node in graph
    ]
