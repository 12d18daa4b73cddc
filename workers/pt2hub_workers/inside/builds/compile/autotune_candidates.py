"""Candidates of Inductor's autotuning, with their parameters, times and failures.

Written for torch 2.13 and run with 2.11 on GPUs: every attribute of a candidate may be missing.
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
"""Maximum length of a reason in characters."""
MAX_VALUE = 200
"""Maximum length of a parameter's value in characters."""
_COUNTER = re.compile(r"_\d+$")
"""Suffix of template names: Inductor numbers the templates of a process."""
_EXTERN = "extern"
_ASSIGNMENT = re.compile(r"(\w+)=(.*?)(?=, \w+=|$)", re.DOTALL)
_NO_PARAMETER = frozenset(
    {"backend", "op_type", "kernel_name", "kernel_call_name", "tile_shape", "template_name"}
)
"""Keys of `info_dict()` that are not parameters: they name the candidate or repeat its tile sizes."""
_BLOCKS = ("block_m", "block_n", "block_k")
UNTIMED_REASON = "not timed: the compiler skipped it"
BUDGET_REASON = "not timed: the autotuning budget was used up"


def template_name(choice: Any) -> str:
    """Return the name of a candidate's template: `triton_mm`, `extern: addmm`, `cpp_CppMicroGemmFP32Vec`."""
    name = str(getattr(choice, "name", type(choice).__name__))
    info = _info(choice)
    if str(info.get("backend", "")).lower() == _EXTERN or "Extern" in type(choice).__name__:
        return f"{_EXTERN}: {name}"
    return _COUNTER.sub("", name)


def read_parameters(choice: Any) -> dict[str, Any]:
    """Return a candidate's template parameters, from its description, `info_dict()` and register blocking."""
    described = dict(_parse_description(str(getattr(choice, "description", "") or "")))
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


def describe_failure(error: BaseException) -> str:
    """Describe a failure in one line: its type and the last line of its message.

    A compiler's message starts with its command and its source, so the last line is the relevant one.
    """
    text = str(error).strip()
    last = text if len(text) <= MAX_REASON else next(reversed(text.splitlines()), "").strip() or text
    kind = type(error).__name__
    return " ".join((f"{kind}: {last}" if last and not last.startswith(kind) else last or kind).split())[
        :MAX_REASON
    ]


@dataclass(slots=True)
class Operation:
    """An operation with its candidates and their times.

    Attributes:
        number: The operation's number in the compile, from 1.
        times: Milliseconds of the timed candidates; infinite for failed ones.
        reasons: Why candidates failed, by the candidate's `id`.
        chosen: The candidate that Inductor chose; None until then.
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

    def choices_made(self) -> Iterator[dict[str, Any]]:
        """Yield one entry per candidate: the timed ones by time, then the others."""
        timed, failed = self._sort()
        taken = self.chosen if self.chosen is not None else next(iter(timed), None)
        for rank, choice in enumerate((*timed, *failed), start=1):
            milliseconds = self.times.get(choice)
            is_timed = milliseconds is not None and math.isfinite(milliseconds)
            yield {
                **self._shared_parameters(),
                "candidate": str(getattr(choice, "name", type(choice).__name__)),
                "template": template_name(choice),
                "parameters": read_parameters(choice),
                "milliseconds": float(milliseconds) if is_timed and milliseconds is not None else None,
                "reason": "" if is_timed else self._reason(choice),
                "rank": rank,
                "chosen": choice is taken,
            }

    def _sort(self) -> tuple[list[Any], list[Any]]:
        timed = [choice for choice, time in self.times.items() if math.isfinite(time)]
        timed.sort(key=lambda choice: self.times[choice])
        known = {id(choice) for choice in timed}
        failed = {id(choice): choice for choice in (*self.choices, *self.times) if id(choice) not in known}
        return timed, list(failed.values())

    def _reason(self, choice: Any) -> str:
        if id(choice) in self.reasons:
            return self.reasons[id(choice)]
        if getattr(choice, "failed", False):
            return "could not be compiled: see the build log"
        return "could not be timed: see the build log" if choice in self.times else UNTIMED_REASON

    def _shared_parameters(self) -> dict[str, Any]:
        return {
            "op": self.op,
            "operation": self.number,
            "shapes": [_sizes(node, "get_size") for node in self.nodes],
            "strides": [_sizes(node, "get_stride") for node in self.nodes],
            "dtypes": [_dtype(node) for node in self.nodes],
            "precompile_seconds": round(self.precompile_seconds, 3),
            "benchmark_seconds": round(self.benchmark_seconds, 3),
        }


def _info(choice: Any) -> Mapping[str, Any]:
    try:
        info = choice.info_dict()
    except Exception:  # noqa: BLE001  # a missing description must not fail a build
        return {}
    return info if isinstance(info, dict) else {}


def _parse_description(description: str) -> Iterable[tuple[str, Any]]:
    """Yield the assignments of a description: `BLOCK_M=64, num_warps=4`.

    Inductor makes it from a key by replacing "-" with ", ", including the sign of a number.
    """
    for name, text in _ASSIGNMENT.findall(description):
        value = f"-{text.removeprefix(', ')}" if text.startswith(", ") else text
        try:
            yield name, _plain(ast.literal_eval(value.strip()))
        except (ValueError, SyntaxError):
            yield name, _plain(value.strip())


def _plain(value: object) -> str | int | float | bool:
    """Return finite numbers and booleans unchanged, and other values as text."""
    if isinstance(value, bool | int) or (isinstance(value, float) and math.isfinite(value)):
        return value
    return str(value)[:MAX_VALUE]


def _sizes(node: Any, name: str) -> list[str]:
    try:
        return [str(size) for size in getattr(node, name)()]
    except Exception:  # noqa: BLE001  # an undecided layout has no strides
        return []


def _dtype(node: Any) -> str:
    return str(node.get_dtype()).removeprefix("torch.")
