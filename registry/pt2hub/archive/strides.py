"""Layouts of dense tensors in memory: which strides are contiguous, and elements in another order."""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_CODES = {1: "B", 2: "H", 4: "I", 8: "Q"}
"""Codes of `memoryview.cast`, by bytes per element."""


def is_contiguous(shape: Sequence[int], strides: Sequence[int]) -> bool:
    """Return whether strides are those of a contiguous tensor; dimensions of size 0 or 1 may have any."""
    expected = 1
    for size, step in zip(reversed(shape), reversed(strides), strict=True):
        if size > 1 and step != expected:
            return 0 in shape
        expected *= size
    return True


def row_major(shape: Sequence[int]) -> tuple[int, ...]:
    """Return the strides of a contiguous tensor, in elements."""
    steps = itertools.accumulate(reversed(shape[1:]), lambda step, size: step * max(size, 1), initial=1)
    return tuple(steps)[::-1] if shape else ()


def order_in_memory(shape: Sequence[int], strides: Sequence[int]) -> tuple[int, ...] | None:
    """Return the dimensions of a tensor in the order of its memory, the slowest first; those of size 1 are left out.

    Returns:
        None if the tensor leaves gaps or holds an element twice, so that its memory is no reordering of its elements.
    """
    order = sorted((place for place, size in enumerate(shape) if size > 1), key=lambda place: -strides[place])
    sizes = [shape[place] for place in order]
    return tuple(order) if row_major(sizes) == tuple(strides[place] for place in order) else None


def count_rows(shape: Sequence[int], order: Sequence[int]) -> int:
    """Return the number of pieces in which `reorder` yields a tensor."""
    return math.prod(shape[place] for place in order[:-1])


def reorder(data: bytes, width: int, shape: Sequence[int], order: Sequence[int]) -> Iterator[bytes]:
    """Yield the elements of a contiguous tensor in the order of another layout.

    Args:
        width: Bytes per element.
        order: Of the layout, see `order_in_memory`.
    """
    steps = row_major(shape)
    with memoryview(data) as own:
        yield from gather(own, width, [shape[place] for place in order], [steps[place] for place in order])


def gather(data: memoryview, width: int, shape: Sequence[int], strides: Sequence[int]) -> Iterator[bytes]:
    """Yield the elements of a tensor row by row, in the order of its dimensions.

    Args:
        data: The tensor's memory, from its first element on.
        width: Bytes per element.
    """
    if not shape:
        yield bytes(data[:width])
        return
    code: Any = _CODES[width]
    *outer, length = shape
    *steps, step = strides
    with data.cast(code) as elements:
        for place in itertools.product(*map(range, outer)):
            at = sum(index * by for index, by in zip(place, steps, strict=True))
            if step:
                with elements[at : at + (length - 1) * step + 1 : step] as row:
                    yield row.tobytes()
            else:
                yield elements[at : at + 1].tobytes() * length
