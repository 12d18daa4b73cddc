"""Sizes between the smallest and the largest, at which compiled code may be wrong although it is right at both.

Vectorised and blocked loops have remainders at sizes that are not multiples of the vector or block width.
"""

from __future__ import annotations

import itertools
import random
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pt2hub.domain.digests import hex_of
from pt2hub_workers.inside.builds.export.inputs import Point

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pt2hub.domain.publishing.spec import DimSpec, Spec

BETWEEN = "between"
"""Name of these points."""
MAX_POINTS = 6
"""Maximum number of points that are tried."""
MAX_SECONDS = 1.5
"""Time limit for eager runs at all points, estimated from the example; no size may take more than half of it. The
artifact takes as long again, and a retrained version waits for nothing else."""
MAX_ELEMENTS = 1 << 24
"""Maximum number of elements of all their inputs together, which are stored with every version."""


@dataclass(frozen=True, slots=True)
class IntermediateSizes:
    """Points to try, and a note on them."""

    points: tuple[Point, ...]
    note: str


def choose_sizes(spec: Spec, largest: Mapping[str, int], seconds: float) -> IntermediateSizes:
    """Draw sizes by the version's digest, including odd and prime ones and neighbours of powers of two."""
    if not spec.dims:
        return IntermediateSizes((), "")
    generator = random.Random(int(hex_of(spec.identity())[:15], 16))  # noqa: S311  # no secret: it must be repeatable
    example = {name: dim.example for name, dim in spec.dims.items()}
    tried = [{name: dim.min for name, dim in spec.dims.items()}, example, dict(largest)]
    drawn: list[dict[str, int]] = []
    sequences = {name: _sequence(dim, largest[name], generator) for name, dim in spec.dims.items()}
    for _ in range(4 * MAX_POINTS):
        sizes = {name: next(sequence) for name, sequence in sequences.items()}
        if sizes not in tried and sizes not in drawn and len(drawn) < MAX_POINTS:
            drawn.append(sizes)
    taken = [*filter(_Budget(spec, seconds).take, drawn)]
    points = tuple(Point(BETWEEN, sizes, number) for number, sizes in enumerate(taken))
    return IntermediateSizes(points, _note(taken, len(drawn)))


class _Budget:
    """Time and memory budget of the intermediate sizes."""

    def __init__(self, spec: Spec, seconds: float) -> None:
        self._spec = spec
        self._seconds = seconds
        self._time = 0.0
        self._elements = 0

    def take(self, sizes: Mapping[str, int]) -> bool:
        """Take these sizes' part of the budget; return False if it does not suffice."""
        ratio = 1.0
        for name, size in sizes.items():
            ratio *= size / self._spec.dims[name].example
        seconds = self._seconds * max(ratio, 1.0)
        elements = sum(_count_elements(item.shape, sizes) for item in self._spec.inputs)
        if (
            self._time + seconds > MAX_SECONDS
            or 2 * seconds > MAX_SECONDS
            or self._elements + elements > MAX_ELEMENTS
        ):
            return False
        self._time += seconds
        self._elements += elements
        return True


def _count_elements(shape: list[int | str], sizes: Mapping[str, int]) -> int:
    product = 1
    for size in shape:
        product *= sizes[size] if isinstance(size, str) else size
    return product


def _sequence(dim: DimSpec, largest: int, generator: random.Random) -> Iterator[int]:
    """Yield sizes of one dimension endlessly: a prime, a neighbour of a power of two, any, and so on."""
    step = dim.multiple_of
    low, high = dim.min // step, max(largest, dim.min) // step
    kinds = [
        _shuffle((number for number in _sample(low, high) if _is_prime(number)), generator),
        _shuffle({2**power + side for power in range(1, 32) for side in (-1, 1)}, generator),
        _shuffle(_sample(low, high), generator),
    ]
    inside = [[number for number in kind if low <= number <= high] for kind in kinds]
    endless = [itertools.cycle(kind) for kind in inside if kind]
    while True:
        for kind in endless:
            yield next(kind) * step


def _sample(low: int, high: int) -> list[int]:
    """Return numbers of a range: all of a short one, otherwise the first ones and some after each power of two."""
    if high - low < 4096:  # noqa: PLR2004  # all are quickly looked at
        return list(range(low, high + 1))
    found = set(range(low, low + 512))
    power = max(low, 1)
    while power <= high:
        found |= set(range(power, min(power + 64, high + 1)))
        power *= 2
    return sorted(found)


def _shuffle(numbers: Iterator[int] | set[int] | list[int], generator: random.Random) -> list[int]:
    found = sorted(numbers)
    generator.shuffle(found)
    return found


def _is_prime(number: int) -> bool:
    """Return whether a number is an odd prime."""
    return number > 2 and all(number % other for other in range(2, int(number**0.5) + 1))  # noqa: PLR2004  # odd


def _note(taken: list[dict[str, int]], drawn: int) -> str:
    points = "; ".join(" ".join(f"{name}={size}" for name, size in sizes.items()) for sizes in taken)
    left = drawn - len(taken)
    more = f" ({left} more would exceed {MAX_SECONDS:g} s or the limit on elements)" if left else ""
    return f"sizes tried between the smallest and the largest: {points or 'none'}{more}" if drawn else ""
