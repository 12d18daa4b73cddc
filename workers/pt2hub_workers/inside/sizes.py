"""Sizes between the smallest, the example's and the largest: compiled code may be right at those and wrong between.

Vectorised loops have a remainder at sizes that are no multiple of the vector's width, and blocked ones at others.
"""

from __future__ import annotations

import itertools
import random
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pt2hub.domain.digests import hex_of
from pt2hub_workers.inside.inputs import Point

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pt2hub.domain.specs import DimSpec, Spec

BETWEEN = "between"
"""Name of these points."""
MOST = 6
"""Points that are tried."""
SECONDS = 1.5
"""Time that eager may take for all of them, estimated from the example's; no size takes more than half of it. The
artifact takes as long again, and a retrained version waits for nothing else."""
ELEMENTS = 1 << 24
"""Elements of all their inputs together: they are stored with every version."""


@dataclass(frozen=True, slots=True)
class Between:
    """Which points are tried.

    Attributes:
        points: In order.
        note: What is said of them.
    """

    points: tuple[Point, ...]
    note: str


def between(spec: Spec, largest: Mapping[str, int], seconds: float) -> Between:
    """Sizes drawn by the version's digest, odd and prime ones and neighbours of powers of two among them.

    Args:
        spec: For the dimensions.
        largest: Sizes of the largest point; nothing beyond is tried.
        seconds: What eager takes at the example.
    """
    if not spec.dims:
        return Between((), "")
    generator = random.Random(int(hex_of(spec.identity())[:15], 16))  # noqa: S311  # no secret: it must be repeatable
    example = {name: dim.example for name, dim in spec.dims.items()}
    tried = [{name: dim.min for name, dim in spec.dims.items()}, example, dict(largest)]
    drawn: list[dict[str, int]] = []
    sequences = {name: _sequence(dim, largest[name], generator) for name, dim in spec.dims.items()}
    for _ in range(4 * MOST):
        sizes = {name: next(sequence) for name, sequence in sequences.items()}
        if sizes not in tried and sizes not in drawn and len(drawn) < MOST:
            drawn.append(sizes)
    taken = [*filter(_Budget(spec, seconds).has_room_for, drawn)]
    points = tuple(Point(BETWEEN, sizes, number) for number, sizes in enumerate(taken))
    return Between(points, _note(taken, len(drawn)))


class _Budget:
    """What trying sizes may take."""

    def __init__(self, spec: Spec, seconds: float) -> None:
        self._spec = spec
        self._seconds = seconds
        self._time = 0.0
        self._elements = 0

    def has_room_for(self, sizes: Mapping[str, int]) -> bool:
        """Whether these sizes can be tried too; if so, they take their part."""
        ratio = 1.0
        for name, size in sizes.items():
            ratio *= size / self._spec.dims[name].example
        seconds = self._seconds * max(ratio, 1.0)
        elements = sum(_elements(item.shape, sizes) for item in self._spec.inputs)
        if self._time + seconds > SECONDS or 2 * seconds > SECONDS or self._elements + elements > ELEMENTS:
            return False
        self._time += seconds
        self._elements += elements
        return True


def _elements(shape: list[int | str], sizes: Mapping[str, int]) -> int:
    product = 1
    for size in shape:
        product *= sizes[size] if isinstance(size, str) else size
    return product


def _sequence(dim: DimSpec, largest: int, generator: random.Random) -> Iterator[int]:
    """Sizes of one dimension without end: a prime, beside a power of two, any, and again."""
    step = dim.multiple_of
    low, high = dim.min // step, max(largest, dim.min) // step
    kinds = [
        _shuffled((number for number in _few(low, high) if _is_prime(number)), generator),
        _shuffled({2**power + side for power in range(1, 32) for side in (-1, 1)}, generator),
        _shuffled(_few(low, high), generator),
    ]
    inside = [[number for number in kind if low <= number <= high] for kind in kinds]
    endless = [itertools.cycle(kind) for kind in inside if kind]
    while True:
        for kind in endless:
            yield next(kind) * step


def _few(low: int, high: int) -> list[int]:
    """Numbers of a range: all of a short one; of a long one the first, and some of each following power of two."""
    if high - low < 4096:  # noqa: PLR2004  # all are quickly looked at
        return list(range(low, high + 1))
    found = set(range(low, low + 512))
    power = max(low, 1)
    while power <= high:
        found |= set(range(power, min(power + 64, high + 1)))
        power *= 2
    return sorted(found)


def _shuffled(numbers: Iterator[int] | set[int] | list[int], generator: random.Random) -> list[int]:
    found = sorted(numbers)
    generator.shuffle(found)
    return found


def _is_prime(number: int) -> bool:
    """Whether a number is an odd prime."""
    return number > 2 and all(number % other for other in range(2, int(number**0.5) + 1))  # noqa: PLR2004  # odd


def _note(taken: list[dict[str, int]], drawn: int) -> str:
    said = "; ".join(" ".join(f"{name}={size}" for name, size in sizes.items()) for sizes in taken)
    left = drawn - len(taken)
    more = f" ({left} more would take longer than {SECONDS:g} s, or too many elements)" if left else ""
    return f"sizes tried between the smallest and the largest: {said or 'none'}{more}" if drawn else ""
