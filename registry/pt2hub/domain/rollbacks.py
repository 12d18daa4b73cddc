"""Where a rollback of an alias leads: one rule for commands, pages and retention."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

MAX_REPLAYED = 100
"""Newest moves that say where a rollback leads: it needs two, but for aliases that go to and fro."""


def rollback_version(moves: Sequence[tuple[int | None, int | None]]) -> int | None:
    """Return the version that a rollback leads to; None without any.

    A move to a version that the alias was on leaves all later ones: after 1, 2, 3 and a rollback to 2, it is 1.

    Args:
        moves: The versions before and after each move of the alias, oldest first; the last `MAX_REPLAYED` count.
    """
    stack: list[int] = []
    for before, after in moves[-MAX_REPLAYED:]:
        if before is None or after is None:  # set for the first time or again, or removed
            stack = []
        elif not stack:
            stack = [before]
        if after in stack:
            del stack[stack.index(after) + 1 :]
        elif after is not None:
            stack.append(after)
    return stack[-2] if len(stack) > 1 else None
