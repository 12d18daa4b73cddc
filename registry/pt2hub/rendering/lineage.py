"""Lineage as text, and as a tree for pages and terminals."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pt2hub.wire.lineage import DerivationView

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


@dataclass(frozen=True, slots=True)
class LineageNode:
    """A version, or an external parent, in a tree of ancestors or descendants.

    Attributes:
        name: `team/name@3`, or an external reference.
        derivation: The derivation that leads to it.
        nodes: What follows it; empty where it was shown before.
        repeated: Whether what follows it is shown elsewhere in the tree.
    """

    name: str
    derivation: DerivationView
    nodes: tuple[LineageNode, ...] = ()
    repeated: bool = False


def derivation_text(item: DerivationView) -> str:
    """Return the parent of a derivation, with the relation and what should be known of both."""
    return f"{item.parent} ({describe_derivation(item)})"


def describe_derivation(item: DerivationView) -> str:
    """Return the relation of a derivation, and what should be known of it."""
    notes = [item.relation]
    if item.automatic:
        notes.append("by pt2hub: the same code with other weights")
    if item.deleted:
        notes.append("deleted")
    return ", ".join(notes)


def ancestor_tree(start: str, derivations: Sequence[DerivationView]) -> tuple[LineageNode, ...]:
    """Return the tree of what a version is derived from."""
    return _tree(start, [(item.version, item.parent, item) for item in derivations], {start})


def descendant_tree(start: str, derivations: Sequence[DerivationView]) -> tuple[LineageNode, ...]:
    """Return the tree of what is derived from a version."""
    return _tree(start, [(item.parent, item.version, item) for item in derivations], {start})


def tree_lines(nodes: Sequence[LineageNode], indent: str = "  ") -> Iterator[str]:
    """Yield the lines of a tree."""
    for node in nodes:
        seen = ", see above" if node.repeated else ""
        yield f"{indent}{node.name} ({describe_derivation(node.derivation)}{seen})"
        yield from tree_lines(node.nodes, f"{indent}  ")


def _tree(
    start: str, edges: Sequence[tuple[str, str, DerivationView]], seen: set[str]
) -> tuple[LineageNode, ...]:
    found = []
    for near, far, item in edges:
        if near != start:
            continue
        repeated = far in seen and any(other == far for other, _, _ in edges)
        seen.add(far)
        found.append(LineageNode(far, item, () if repeated else _tree(far, edges, seen), repeated))
    return tuple(found)
