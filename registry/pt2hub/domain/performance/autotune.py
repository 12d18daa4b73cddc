"""Autotuning results: operations and their kernel candidates."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

_MAX_SIZES = 16
_MAX_PARAMETERS = 64


@dataclass(frozen=True, slots=True)
class AutotuneChoice:
    """A kernel candidate for an operation, identified by its template and parameters.

    Attributes:
        op: The operation.
        shapes: Shapes of the inputs.
        dtypes: Dtypes of the inputs.
        candidate: The compiler's display name. Its number counts the templates of the whole compilation
            (`triton_mm_17`), so the same kernel has different names in different builds.
        milliseconds: Its time; None if it could not be timed.
        rank: Rank among the candidates, from 1; those without a time come last.
        chosen: Whether the compiler chose it.
        template: Template of the kernel: `triton_mm`, `cpp_CppMicroGemmFP32Vec`; `extern: addmm` for library kernels.
        parameters: Parameters of the template: tile sizes, stages, warps.
        reason: Why it has no time; empty if it has one.
        strides: Strides of the inputs.
        operation: Number of the operation in the compilation, from 1, since operations may be equal.
        precompile_seconds: Time spent compiling the operation's candidates.
        benchmark_seconds: Time spent timing the operation's candidates.
    """

    op: str
    shapes: list[Any]
    dtypes: list[Any]
    candidate: str
    milliseconds: float | None
    rank: int
    chosen: bool
    template: str = ""
    parameters: dict[str, Any] | None = None
    reason: str = ""
    strides: list[Any] = field(default_factory=list)
    operation: int = 0
    precompile_seconds: float | None = None
    benchmark_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Candidate:
    """A kernel candidate.

    Attributes:
        name: The compiler's name for it.
        kernel: The template it was made from.
        parameters: The template's parameters as text; empty if it has none or they are unknown.
        milliseconds: Its time, None if it failed.
        share: The best candidate's time divided by its own, in percent; 100 is the best.
        chosen: Whether the compiler chose it.
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
    """An operation and its candidates.

    Attributes:
        name: The operation.
        inputs: Shapes of the inputs in the compiler's format: `2x512, 512x1000`.
        strides: Strides of the inputs: `[512, 1], [1, 512]`.
        dtypes: Dtypes of the inputs; a single one if all are equal.
        candidates: Fastest first, failed ones last.
        precompile_seconds: Time spent compiling the candidates, None if unknown.
        benchmark_seconds: Time spent timing the candidates, None if unknown.
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
        """Number of candidates that failed."""
        return sum(item.milliseconds is None for item in self.candidates)


def operations(choices: Iterable[AutotuneChoice]) -> list[Operation]:
    """Group a table of candidates into operations, in order.

    Args:
        choices: Candidates grouped by operation, best first.
    """
    return [_operation(group) for group in _groups(choices)]


def parameters_text(parameters: Mapping[str, Any] | None, other: Mapping[str, Any] | None = None) -> str:
    """Format parameters like the compiler: `BLOCK_M=64, num_warps=4`.

    Args:
        parameters: Names and values.
        other: Parameters of another kernel of the same template; only differing ones are then formatted.
    """
    shown = (
        f"{name}={value}"
        for name, value in (parameters or {}).items()
        if other is None or name not in other or other[name] != value
    )
    return ", ".join(islice(shown, _MAX_PARAMETERS))


def _groups(choices: Iterable[AutotuneChoice]) -> Iterator[list[AutotuneChoice]]:
    group: list[AutotuneChoice] = []
    for choice in choices:
        if group and (_operation_key(choice) != _operation_key(group[-1]) or choice.rank <= group[-1].rank):
            yield group
            group = []
        group.append(choice)
    if group:
        yield group


def _operation_key(choice: AutotuneChoice) -> tuple[object, ...]:
    return choice.operation, choice.op, choice.shapes, choice.dtypes


def _operation(group: Sequence[AutotuneChoice]) -> Operation:
    first = group[0]
    best = min((item.milliseconds for item in group if item.milliseconds is not None), default=0.0)
    return Operation(
        name=first.op,
        inputs=", ".join(_sizes(shape) for shape in islice(first.shapes, _MAX_SIZES)),
        strides=", ".join(_strides(item) for item in islice(first.strides, _MAX_SIZES)),
        dtypes=", ".join(dict.fromkeys(str(dtype) for dtype in islice(first.dtypes, _MAX_SIZES))),
        candidates=tuple(_candidate(item, best) for item in group),
        precompile_seconds=first.precompile_seconds,
        benchmark_seconds=first.benchmark_seconds,
    )


def _candidate(item: AutotuneChoice, best: float) -> Candidate:
    share = 0.0 if item.milliseconds is None else _share(best, item.milliseconds)
    parameters = parameters_text(item.parameters)
    return Candidate(
        item.candidate, item.template, parameters, item.milliseconds, share, item.chosen, item.reason
    )


def _share(best: float, own: float) -> float:
    share = 100 * best / own if own > 0 else 100.0
    return share if math.isfinite(share) else 0.0


def _sizes(shape: Any) -> str:
    if not isinstance(shape, list):
        return str(shape)
    return "x".join(str(size) for size in islice(shape, _MAX_SIZES)) or "scalar"


def _strides(strides: Any) -> str:
    if not isinstance(strides, list):
        return str(strides)
    return f"[{', '.join(str(stride) for stride in islice(strides, _MAX_SIZES))}]"
