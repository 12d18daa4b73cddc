"""Alignment of two sequences with few edits (Myers, "An O(ND) Difference Algorithm", 1986)."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

Pair: TypeAlias = "tuple[int | None, int | None]"
"""Places in the first and the second sequence; None where only the other has the item."""


def align(before: Sequence[Hashable], after: Sequence[Hashable], *, most: int) -> list[Pair] | None:
    """Return the shortest alignment of two sequences; None if it has more than `most` additions and removals."""
    start, end = _common_ends(before, after)
    one, other = before[start : len(before) - end], after[start : len(after) - end]
    middle = _align_middle(one, other, most)
    if middle is None:
        return None
    head: list[Pair] = [(at, at) for at in range(start)]
    shifted: list[Pair] = [
        (None if at is None else at + start, None if to is None else to + start) for at, to in middle
    ]
    tail: list[Pair] = [(len(before) - at, len(after) - at) for at in range(end, 0, -1)]
    return head + shifted + tail


def _common_ends(before: Sequence[Hashable], after: Sequence[Hashable]) -> tuple[int, int]:
    """Return the lengths of the common start and the common end."""
    shortest = min(len(before), len(after))
    start = next((at for at in range(shortest) if before[at] != after[at]), shortest)
    rest = shortest - start
    return start, next((at for at in range(rest) if before[-1 - at] != after[-1 - at]), rest)


def _align_middle(before: Sequence[Hashable], after: Sequence[Hashable], most: int) -> list[Pair] | None:
    """Search for the path with the fewest edits, diagonal by diagonal; `furthest` has the furthest place of each."""
    furthest = {1: 0}
    history: list[dict[int, int]] = []
    for edits in range(min(most, len(before) + len(after)) + 1):
        history.append(dict(furthest))
        for diagonal in range(-edits, edits + 1, 2):
            at = _next_start(furthest, diagonal, edits)
            while at < len(before) and at - diagonal < len(after) and before[at] == after[at - diagonal]:
                at += 1
            furthest[diagonal] = at
            if at >= len(before) and at - diagonal >= len(after):
                return _trace(history, len(before), len(after))
    return None


def _next_start(furthest: dict[int, int], diagonal: int, edits: int) -> int:
    """Return the furthest place on a diagonal after one more edit."""
    is_addition = _is_addition(furthest, diagonal, edits)
    return furthest[diagonal + 1] if is_addition else furthest[diagonal - 1] + 1


def _is_addition(furthest: dict[int, int], diagonal: int, edits: int) -> bool:
    """Return whether the furthest place on a diagonal is reached by an addition."""
    return diagonal == -edits or (diagonal != edits and furthest[diagonal - 1] < furthest[diagonal + 1])


def _trace(history: list[dict[int, int]], at: int, to: int) -> list[Pair]:
    """Return the pairs of the path that ends at these places."""
    pairs: list[Pair] = []
    for edits in range(len(history) - 1, -1, -1):
        diagonal, furthest = at - to, history[edits]
        begin = _next_start(furthest, diagonal, edits) if edits else 0
        while at > begin:
            at, to = at - 1, to - 1
            pairs.append((at, to))
        if edits:
            is_addition = _is_addition(furthest, diagonal, edits)
            at, to = (at, to - 1) if is_addition else (at - 1, to)
            pairs.append((None, to) if is_addition else (at, None))
    return pairs[::-1]
