"""Sets of byte ranges."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


class RangeSet:
    """A set of bytes of a file, as sorted, disjoint, half-open ranges.

    Attributes:
        total: Number of bytes in the set.
    """

    def __init__(self) -> None:
        self.total = 0
        self._starts: list[int] = []
        self._stops: list[int] = []

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return iter(zip(self._starts, self._stops, strict=True))

    @property
    def reach(self) -> int:
        """End of the bytes that are there from the first one on."""
        return self._stops[0] if self._starts[:1] == [0] else 0

    def add(self, start: int, stop: int) -> None:
        """Add a range; it may overlap with others."""
        if start >= stop:
            return
        first = bisect_left(
            self._stops, start
        )  # the first range that ends at the new one or behind its start
        last = bisect_right(self._starts, stop)
        if first < last:
            start, stop = min(start, self._starts[first]), max(stop, self._stops[last - 1])
            merged = zip(self._starts[first:last], self._stops[first:last], strict=True)
            self.total -= sum(end - begin for begin, end in merged)
        self._starts[first:last], self._stops[first:last] = [start], [stop]
        self.total += stop - start

    def missing(self, size: int) -> list[tuple[int, int]]:
        """Return the ranges that the set lacks of a file of this size."""
        begins, ends = [0, *self._stops], [*self._starts, size]
        return [(begin, end) for begin, end in zip(begins, ends, strict=True) if begin < end]
