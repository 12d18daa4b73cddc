"""Candidates of Inductor's autotuning: what each one is, and why one failed.

Written against torch 2.13 and run with 2.11 on GPUs: everything that is read from a candidate may be missing.
"""

from __future__ import annotations

import ast
import math
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

MAX_REASON = 300
"""Characters of a reason."""
MAX_VALUE = 200
"""Characters of a parameter's value."""
_COUNTER = re.compile(r"_\d+$")
"""Inductor counts the templates of a process, and ends their names with that number."""
_EXTERN = "extern"
_ASSIGNMENT = re.compile(r"(\w+)=(.*?)(?=, \w+=|$)", re.DOTALL)
_NO_PARAMETER = frozenset(
    {"backend", "op_type", "kernel_name", "kernel_call_name", "tile_shape", "template_name"}
)
"""Keys of `info_dict()` that name the candidate or repeat its tile sizes."""
_BLOCKS = ("block_m", "block_n", "block_k")
UNTIMED = "it has no time: the compiler left it out"
TOO_LATE = "it was not timed: the budget of autotuning was used up"


def template(choice: Any) -> str:  # noqa: ANN401  # Inductor's
    """Return what a candidate is made from: `triton_mm`, `extern: addmm`, `cpp_CppMicroGemmFP32Vec`."""
    name = str(getattr(choice, "name", type(choice).__name__))
    info = _info(choice)
    if str(info.get("backend", "")).lower() == _EXTERN or "Extern" in type(choice).__name__:
        return f"{_EXTERN}: {name}"
    return _COUNTER.sub("", name)


def parameters(choice: Any) -> dict[str, Any]:  # noqa: ANN401  # Inductor's
    """Return what a candidate's template was given, from its description, `info_dict()` and register blocking."""
    described = dict(_described(str(getattr(choice, "description", "") or "")))
    upper = {name.upper() for name in described}
    found = {
        name: _plain(value)
        for name, value in _info(choice).items()
        if name not in _NO_PARAMETER and (name.upper() not in upper or name in described)
    }
    blocking = getattr(getattr(choice, "template", None), "register_blocking", None)
    blocks = {name: getattr(blocking, name) for name in _BLOCKS if hasattr(blocking, name)}
    return dict(
        sorted({**{name: _plain(value) for name, value in blocks.items()}, **found, **described}.items())
    )


def failure(error: BaseException) -> str:
    """Return the reason of a failure in one line: its kind and the last thing that it says.

    What comes before the last line of a compiler's message is its command and its source.
    """
    text = str(error).strip()
    said = text if len(text) <= MAX_REASON else next(reversed(text.splitlines()), "").strip() or text
    kind = type(error).__name__
    return " ".join((f"{kind}: {said}" if said and not said.startswith(kind) else said or kind).split())[
        :MAX_REASON
    ]


@dataclass(slots=True)
class Operation:
    """An operation, its candidates, and what became of them.

    Attributes:
        number: Its number in the compile, from 1.
        op: Its name.
        nodes: Inductor's nodes of its inputs.
        choices: All candidates that Inductor was given.
        times: Milliseconds of those that were timed; infinite for failed ones.
        reasons: Why candidates failed, by the candidate's `id`.
        chosen: The one that Inductor took; None until it says so.
        precompile_seconds: Time that it waited for compilers.
        benchmark_seconds: Time of everything else.
    """

    number: int
    op: str
    nodes: list[Any]
    choices: list[Any]
    times: dict[Any, float] = field(default_factory=dict)
    reasons: dict[int, str] = field(default_factory=dict)
    chosen: Any = None
    precompile_seconds: float = 0.0
    benchmark_seconds: float = 0.0

    def entries(self) -> Iterator[dict[str, Any]]:
        """Yield one entry per candidate, the timed ones first and the best of them before the others."""
        timed, failed = self._sorted()
        taken = self.chosen if self.chosen is not None else next(iter(timed), None)
        for rank, choice in enumerate((*timed, *failed), start=1):
            milliseconds = self.times.get(choice)
            is_timed = milliseconds is not None and math.isfinite(milliseconds)
            yield {
                **self._shared(),
                "candidate": str(getattr(choice, "name", type(choice).__name__)),
                "template": template(choice),
                "parameters": parameters(choice),
                "milliseconds": float(milliseconds) if is_timed and milliseconds is not None else None,
                "reason": "" if is_timed else self._reason(choice),
                "rank": rank,
                "chosen": choice is taken,
            }

    def _sorted(self) -> tuple[list[Any], list[Any]]:
        timed = [choice for choice, time in self.times.items() if math.isfinite(time)]
        timed.sort(key=lambda choice: self.times[choice])
        known = {id(choice) for choice in timed}
        failed = {id(choice): choice for choice in (*self.choices, *self.times) if id(choice) not in known}
        return timed, list(failed.values())

    def _reason(self, choice: Any) -> str:  # noqa: ANN401  # Inductor's
        if id(choice) in self.reasons:
            return self.reasons[id(choice)]
        if getattr(choice, "failed", False):
            return "it could not be compiled: the build's log says why"
        return "it could not be timed: the build's log says why" if choice in self.times else UNTIMED

    def _shared(self) -> dict[str, Any]:
        return {
            "op": self.op,
            "operation": self.number,
            "shapes": [_sizes(node, "get_size") for node in self.nodes],
            "strides": [_sizes(node, "get_stride") for node in self.nodes],
            "dtypes": [_dtype(node) for node in self.nodes],
            "precompile_seconds": round(self.precompile_seconds, 3),
            "benchmark_seconds": round(self.benchmark_seconds, 3),
        }


def _info(choice: Any) -> Mapping[str, Any]:  # noqa: ANN401  # Inductor's
    try:
        info = choice.info_dict()
    except Exception:  # noqa: BLE001  # a description is worth no build
        return {}
    return info if isinstance(info, dict) else {}


def _described(description: str) -> Iterable[tuple[str, Any]]:
    """Yield the assignments of a description: `BLOCK_M=64, num_warps=4`.

    Inductor makes it of a key by putting ", " for "-", also for the sign of a number.
    """
    for name, text in _ASSIGNMENT.findall(description):
        value = f"-{text.removeprefix(', ')}" if text.startswith(", ") else text
        try:
            yield name, _plain(ast.literal_eval(value.strip()))
        except (ValueError, SyntaxError):
            yield name, _plain(value.strip())


def _plain(value: object) -> str | int | float | bool:
    """Return a value as JSON has it; anything but finite numbers and booleans as text."""
    if isinstance(value, bool | int) or (isinstance(value, float) and math.isfinite(value)):
        return value
    return str(value)[:MAX_VALUE]


def _sizes(node: Any, name: str) -> list[str]:  # noqa: ANN401  # Inductor's
    try:
        return [str(size) for size in getattr(node, name)()]
    except Exception:  # noqa: BLE001  # a layout that is not decided yet has no strides
        return []


def _dtype(node: Any) -> str:  # noqa: ANN401  # Inductor's
    return str(node.get_dtype()).removeprefix("torch.")
