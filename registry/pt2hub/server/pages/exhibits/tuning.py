"""Autotuning as PyTorch's tutorials print it: an operation, its candidates, and how far each is from the best."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from typing import Any

    from pt2hub.domain.publications import AutotuneChoice

_MOST_SIZES = 16
_SHOWN = 8


@dataclass(frozen=True, slots=True)
class Candidate:
    """A kernel that was timed.

    Attributes:
        name: Its name.
        milliseconds: Its time.
        share: The best one's time over its own, in percent: 100 is the best.
        chosen: Whether the compiler took it.
    """

    name: str
    milliseconds: float
    share: float
    chosen: bool


@dataclass(frozen=True, slots=True)
class Operation:
    """An operation and what was tried for it.

    Attributes:
        name: The operation.
        inputs: Shapes of its inputs, as the compiler prints them: `2x512, 512x1000`.
        dtypes: Their dtypes; one where all are the same.
        shown: The candidates that came first.
        others: Those behind them.
    """

    name: str
    inputs: str
    dtypes: str
    shown: tuple[Candidate, ...]
    others: tuple[Candidate, ...]


def operations(choices: Iterable[AutotuneChoice]) -> list[Operation]:
    """The operations of a table of candidates, in its order.

    Args:
        choices: Candidates of each operation behind each other, the best first.
    """
    return [_operation(group) for group in _groups(choices)]


def _groups(choices: Iterable[AutotuneChoice]) -> Iterator[list[AutotuneChoice]]:
    group: list[AutotuneChoice] = []
    for choice in choices:
        if group and (_what(choice) != _what(group[-1]) or choice.rank <= group[-1].rank):
            yield group
            group = []
        group.append(choice)
    if group:
        yield group


def _what(choice: AutotuneChoice) -> tuple[object, ...]:
    return choice.op, choice.shapes, choice.dtypes


def _operation(group: Sequence[AutotuneChoice]) -> Operation:
    first = group[0]
    best = min(item.milliseconds for item in group)
    candidates = tuple(
        Candidate(item.candidate, item.milliseconds, _share(best, item.milliseconds), item.chosen)
        for item in group
    )
    inputs = ", ".join(_sizes(shape) for shape in islice(first.shapes, _MOST_SIZES))
    dtypes = ", ".join(dict.fromkeys(str(dtype) for dtype in islice(first.dtypes, _MOST_SIZES)))
    return Operation(first.op, inputs, dtypes, candidates[:_SHOWN], candidates[_SHOWN:])


def _share(best: float, own: float) -> float:
    share = 100 * best / own if own > 0 else 100.0
    return share if math.isfinite(share) else 0.0


def _sizes(shape: Any) -> str:  # noqa: ANN401  # a list of sizes, or whatever else stood there
    if not isinstance(shape, list):
        return str(shape)
    return "x".join(str(size) for size in islice(shape, _MOST_SIZES)) or "scalar"
