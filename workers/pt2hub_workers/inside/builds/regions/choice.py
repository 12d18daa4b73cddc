"""Chooses the modules of a program that become regions."""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from pt2hub.errors import InvalidInput
from pt2hub_workers.inside.builds.regions.errors import RegionsImpossible, refuse_regions
from pt2hub_workers.inside.builds.regions.parts import Part, group_segments
from pt2hub_workers.inside.builds.regions.segments import Block, Cut, blocks_of, is_computed

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    import torch
    from torch.export import ExportedProgram

    Requested = Literal["auto", "none"] | tuple[str, ...]

PART_COST = 200
"""What a part costs besides its operations, in operations. Measured on an H100 with torch 2.11, four builds beside each
other (`make gpu-results`, 2026-11-25): one part of 5 operations compiled in 7.6 s, 64 of them as a whole in 18.5 s; three
parts of BERT-base with 57 operations in 26.9 s, its 310 operations as a whole in 20.4 s."""
MIN_GAIN = 2.0
"""Regions are chosen where they at least divide the cost of a compile by this."""
MIN_CALLS = 3
MAX_PARTS = 256
"""Parts that the worker takes of one build."""
_MAX_TRIES = 8
"""Classes that are tried, the one with most operations first: each try cuts the program."""
_MAX_SHOWN = 8
"""Names that an error lists."""


@dataclass(frozen=True, slots=True)
class Division:
    """A program in parts.

    Attributes:
        parts: In the order of their first calls.
    """

    cut: Cut
    parts: tuple[Part, ...]

    @property
    def modules(self) -> tuple[str, ...]:
        """Paths of the regions, in the order of their calls."""
        return tuple(segment.block.path for segment in self.cut.segments if segment.block)

    @property
    def cost(self) -> int:
        """What its compile costs, in operations."""
        return sum(len(part.first.nodes) + PART_COST for part in self.parts)


class RegionChoice:
    """The choice of regions for one program.

    Args:
        separate: Names of the weights, by which equal blocks may differ.
    """

    def __init__(self, program: ExportedProgram, module: torch.nn.Module, separate: Collection[str]) -> None:
        self._program = program
        self._module = module
        self._separate = separate
        self._blocks = _find_blocks(program)

    def choose(self, requested: Requested) -> Division | None:
        """Return the program in parts; None where it is to be compiled as a whole.

        Raises:
            InvalidInput: A requested region does not exist, or nothing of what was requested repeats.
        """
        if requested == "none":
            return None
        return self._choose_best() if requested == "auto" else self._choose_named(requested)

    def _choose_named(self, names: Sequence[str]) -> Division:
        chosen: dict[str, None] = {}
        for name in names:
            found = [block.path for block in self._blocks if _is_named(block, name)]
            if not found:
                raise self._unknown(name)
            chosen |= dict.fromkeys(found)
        try:
            division = self._divide(chosen)
        except RegionsImpossible as error:
            raise refuse_regions(names, error) from error
        _require_repeated(division)
        return division

    def _choose_best(self) -> Division | None:
        whole = sum(is_computed(node) for node in self._program.graph.nodes) + PART_COST
        best: Division | None = None
        chosen: list[str] = []
        for blocks in self._candidates():
            paths = [block.path for block in blocks]
            if any(_lies_in(path, other) or _lies_in(other, path) for path in paths for other in chosen):
                continue
            try:
                division = self._divide([*chosen, *paths])
            except RegionsImpossible:
                continue
            if division.cost < (best.cost if best else whole):
                best, chosen = division, [*chosen, *paths]
        return best if best and whole >= MIN_GAIN * best.cost else None

    def _candidates(self) -> list[list[Block]]:
        """Return blocks of equal class, those with most operations first."""
        repeated = _repeated_blocks(self._module)
        found: dict[str, list[Block]] = {}
        for block in self._blocks:
            if not repeated or _class_name(block) in repeated:
                found.setdefault(block.kind, []).append(block)
        ordered = sorted(found.values(), key=lambda blocks: -sum(self._blocks[block] for block in blocks))
        return [blocks for blocks in ordered if len(blocks) >= MIN_CALLS][:_MAX_TRIES]

    def _divide(self, paths: Iterable[str]) -> Division:
        cut = Cut(self._program, paths)
        parts = tuple(group_segments(self._program, cut.segments, self._separate))
        if len(parts) > MAX_PARTS:
            raise RegionsImpossible(f"it has {len(parts)} different parts, more than {MAX_PARTS}")
        return Division(cut, parts)

    def _unknown(self, name: str) -> InvalidInput:
        known = dict.fromkeys(
            text
            for block in self._blocks
            for text in (_class_name(block), block.path.rpartition(".")[0], block.path)
        )
        near = difflib.get_close_matches(name, filter(None, known), n=1, cutoff=0.6)
        classes = dict.fromkeys(map(_class_name, self._blocks))
        hint = f"Did you mean {near[0]}? " if near else ""
        shown = ", ".join(list(classes)[:_MAX_SHOWN])
        return InvalidInput(
            f"Unknown region {name!r}: no module of the exported model has this path or class",
            where="compile.regions",
            hint=f"{hint}Classes in the exported model: {shown}.",
        )


def _find_blocks(program: ExportedProgram) -> dict[Block, int]:
    """Return every call of a module, with the number of its operations."""
    found: dict[Block, int] = {}
    for node in program.graph.nodes:
        if is_computed(node):
            for block in blocks_of(node):
                found[block] = found.get(block, 0) + 1
    return found


def _repeated_blocks(module: torch.nn.Module) -> frozenset[str]:
    """Return the class names that libraries such as diffusers declare for compilation by regions."""
    found: set[str] = set()
    for item in module.modules():
        names = getattr(item, "_repeated_blocks", None)
        found |= {str(name) for name in names} if isinstance(names, list | tuple) else set()
    return frozenset(found)


def _class_name(block: Block) -> str:
    return block.kind.rpartition(".")[2]


def _is_named(block: Block, name: str) -> bool:
    """Return whether a name is a block's class or path, or the path of the list that holds it."""
    return name in (_class_name(block), block.kind, block.path, block.path.rpartition(".")[0])


def _lies_in(path: str, other: str) -> bool:
    return path == other or path.startswith(f"{other}.")


def _require_repeated(division: Division) -> None:
    """Refuse regions that are all different: each would be compiled, and none would be called twice."""
    regions = [part for part in division.parts if part.modules]
    if len(regions) < len(division.modules):
        return
    if len(regions) == 1:
        raise InvalidInput(
            f"The region {regions[0].modules[0]} is called once, so nothing would be compiled once for several calls",
            where="compile.regions",
            hint="Name a class or list of repeated blocks, or write regions: none.",
        )
    one, other = regions[:2]
    raise InvalidInput(
        f"The regions are all different: {one.modules[0]} and {other.modules[0]} differ in "
        f"{first_difference(one.description, other.description)}",
        where="compile.regions",
        hint="Name blocks that are equal but for their weights, or write regions: none.",
    )


def first_difference(one: object, other: object) -> str:
    """Return the innermost values in which two descriptions differ first, as text."""
    if isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        for left, right in zip(one, other, strict=True):
            if left != right:
                return first_difference(left, right)
    if isinstance(one, list) and isinstance(other, list):
        return f"the number of their operations or values ({len(one)} and {len(other)})"
    return f"{str(one)[:80]} and {str(other)[:80]}"
