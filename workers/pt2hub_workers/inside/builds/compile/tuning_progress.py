"""Progress of autotuning by operation: a line in the log for each, and the step's detail for what runs now."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from pt2hub_workers.inside.builds.compile.autotune_candidates import Operation, template_name

MIN_INTERVAL_S = 2.0
MAX_REPORTS = 400
"""Reports of details, after which there are none: the worker accepts a bounded number of them."""
_GROWTH = 0.01
"""Share of the elapsed time between two reports, so that hours of autotuning need few."""


def _ignore(text: str) -> object:
    return text


@dataclass(slots=True)
class TuningProgress:
    """Reports each operation that is autotuned.

    Attributes:
        log: Writes a line of the build's log.
        detail: Shows what runs now.
    """

    log: Callable[[str], object] = _ignore
    detail: Callable[[str], object] = _ignore
    _operation: Operation | None = None
    _timed: int = 0
    _reports: int = 0
    _began: float = field(default_factory=time.monotonic)
    _shown: float = -math.inf

    def begin(self, operation: Operation) -> None:
        """Report that an operation's candidates are compiled and timed."""
        self._operation, self._timed = operation, 0
        self._show(f"autotuning {describe(operation)}, {_count(operation)}")

    def time_candidate(self) -> None:
        """Report that the next candidate is timed."""
        self._timed += 1
        if operation := self._operation:
            self._show(
                f"autotuning {describe(operation)}, candidate {self._timed} of {len(operation.choices)}"
            )

    def end(self, operation: Operation) -> None:
        """Write what the operation's candidates took."""
        self._operation = None
        seconds = operation.precompile_seconds + operation.benchmark_seconds
        timed = {item: time for item, time in operation.times.items() if math.isfinite(time)}
        fastest = min(timed, key=lambda item: timed[item], default=None)
        best = (
            f"{template_name(fastest)} is fastest, {timed[fastest]:.4g} ms"
            if timed
            else "none could be timed"
        )
        failed = len(operation.choices) - len(timed)
        without = f", {failed} of them without a time" if failed else ""
        self.log(f"autotuned {describe(operation)}: {best}, {_count(operation)}{without}, in {seconds:.1f} s")

    def _show(self, text: str) -> None:
        now = time.monotonic()
        interval = max(MIN_INTERVAL_S, _GROWTH * (now - self._began))
        if now - self._shown >= interval and self._reports < MAX_REPORTS:
            self._shown = now
            self._reports += 1
            self.detail(text)


def describe(operation: Operation) -> str:
    """Return an operation's number, name and input sizes, such as `operation 3, mm 256x512 512x512`."""
    shapes = " ".join("x".join(map(str, _sizes(node))) or "scalar" for node in operation.nodes)
    return f"operation {operation.number}, {operation.op} {shapes}".rstrip()


def _sizes(node: Any) -> list[Any]:
    try:
        return list(node.get_size())
    except (AttributeError, NotImplementedError):
        return ["?"]


def _count(operation: Operation) -> str:
    count = len(operation.choices)
    return f"{count} candidate{'' if count == 1 else 's'}"
