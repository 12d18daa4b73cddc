"""Autotuning as PyTorch prints it: an operation, its candidates, and how far each is from the best."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from typing import Any

    from pt2hub.domain.publications import AutotuneChoice

_MOST_SIZES = 16
_MOST_PARAMETERS = 64


@dataclass(frozen=True, slots=True)
class Candidate:
    """A kernel that was tried.

    Attributes:
        name: The compiler's name of it.
        kernel: What it is made from.
        parameters: What that was given, as text; empty where it takes none or none are known.
        milliseconds: Its time, None for one that failed.
        share: The best one's time over its own, in percent: 100 is the best.
        chosen: Whether the compiler took it.
        reason: Why it failed.
    """

    name: str
    kernel: str
    parameters: str
    milliseconds: float | None
    share: float
    chosen: bool
    reason: str


@dataclass(frozen=True, slots=True)
class Operation:
    """An operation and what was tried for it.

    Attributes:
        name: The operation.
        inputs: Shapes of its inputs, as the compiler prints them: `2x512, 512x1000`.
        strides: Their strides: `[512, 1], [1, 512]`.
        dtypes: Their dtypes; one where all are the same.
        candidates: The quickest first, those that failed last.
        precompile_seconds: What waiting for their compilers took, None where it was not kept.
        benchmark_seconds: What timing them took, likewise.
    """

    name: str
    inputs: str
    strides: str
    dtypes: str
    candidates: tuple[Candidate, ...]
    precompile_seconds: float | None
    benchmark_seconds: float | None

    @property
    def failed(self) -> int:
        """How many candidates have no time."""
        return sum(item.milliseconds is None for item in self.candidates)


def operations(choices: Iterable[AutotuneChoice]) -> list[Operation]:
    """Return the operations of a table of candidates, in its order.

    Args:
        choices: Candidates of each operation behind each other, the best first.
    """
    return [_operation(group) for group in _groups(choices)]


def parameters_text(parameters: Mapping[str, Any] | None, beside: Mapping[str, Any] | None = None) -> str:
    """Return parameters as the compiler prints them: `BLOCK_M=64, num_warps=4`.

    Args:
        parameters: Names and values.
        beside: Those of another kernel of the same template: then only the ones that differ.
    """
    shown = (
        f"{name}={value}"
        for name, value in (parameters or {}).items()
        if beside is None or name not in beside or beside[name] != value
    )
    return ", ".join(islice(shown, _MOST_PARAMETERS))


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
    return choice.operation, choice.op, choice.shapes, choice.dtypes


def _operation(group: Sequence[AutotuneChoice]) -> Operation:
    first = group[0]
    best = min((item.milliseconds for item in group if item.milliseconds is not None), default=0.0)
    return Operation(
        name=first.op,
        inputs=", ".join(_sizes(shape) for shape in islice(first.shapes, _MOST_SIZES)),
        strides=", ".join(_strides(item) for item in islice(first.strides, _MOST_SIZES)),
        dtypes=", ".join(dict.fromkeys(str(dtype) for dtype in islice(first.dtypes, _MOST_SIZES))),
        candidates=tuple(_candidate(item, best) for item in group),
        precompile_seconds=first.precompile_seconds,
        benchmark_seconds=first.benchmark_seconds,
    )


def _candidate(item: AutotuneChoice, best: float) -> Candidate:
    share = 0.0 if item.milliseconds is None else _share(best, item.milliseconds)
    parameters = parameters_text(item.parameters)
    return Candidate(
        item.candidate, item.kernel, parameters, item.milliseconds, share, item.chosen, item.reason
    )


def _share(best: float, own: float) -> float:
    share = 100 * best / own if own > 0 else 100.0
    return share if math.isfinite(share) else 0.0


def _sizes(shape: Any) -> str:  # noqa: ANN401  # a list of sizes, or whatever else stood there
    if not isinstance(shape, list):
        return str(shape)
    return "x".join(str(size) for size in islice(shape, _MOST_SIZES)) or "scalar"


def _strides(strides: Any) -> str:  # noqa: ANN401  # a list of strides, or whatever else stood there
    if not isinstance(strides, list):
        return str(strides)
    return f"[{', '.join(str(stride) for stride in islice(strides, _MOST_SIZES))}]"
