"""Log limit: the lines of one log that wait to be stored, and the largest size of a log."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, NamedTuple

from pt2hub.domain.builds import LogLine

if TYPE_CHECKING:
    from collections.abc import Callable

HEAD_BYTES = 8 << 20
"""Printed lines are kept from the beginning of the log up to this size,"""
TAIL_BYTES = 1 << 20
"""and from its end up to this size."""
MAX_LOG_BYTES = 16 << 20
"""Largest log: the build's own lines (steps, warnings, errors), which are few, are kept up to this size."""
LINE_BYTES = 64
"""Overhead of a line in addition to its text."""
MAX_TEXT = 8192
_OUTPUT_LEVELS = frozenset({"output", "compiler"})
_BATCH = 2000
_BATCH_BYTES = 1 << 20


class _Held(NamedTuple):
    text: str
    at: float
    step: str
    level: str
    cost: int


class LogLimit:
    """Queue of numbered, redacted lines that wait to be stored. Not thread-safe."""

    def __init__(self, clean: Callable[[str], str]) -> None:
        self._clean = clean
        self._waiting: deque[LogLine] = deque()
        self._count = 0
        self._bytes = 0
        self._full = False
        self._tail: deque[_Held] = deque()
        self._tail_bytes = 0
        self._gone = [0, 0]

    def __len__(self) -> int:
        """Return the number of lines that wait to be stored."""
        return len(self._waiting)

    def add(self, text: str, *, at: float, step: str, level: str) -> None:
        """Add a line; beyond the limit it goes to the end of the log, where only the last lines are kept.

        Args:
            at: Seconds since the epoch.
        """
        line = _Held(text[: 2 * MAX_TEXT], at, step, level, min(len(text), MAX_TEXT) + LINE_BYTES)
        cap = HEAD_BYTES if level in _OUTPUT_LEVELS else MAX_LOG_BYTES - TAIL_BYTES
        if self._bytes + line.cost <= cap and not (self._full and level in _OUTPUT_LEVELS):
            self._append(line)
            return
        if not self._full:
            self._full = True
            notice = f"The log reached {HEAD_BYTES >> 20} MiB. Of the output from here on, the last"
            self._append(
                _Held(
                    f"{notice} {TAIL_BYTES >> 20} MiB are kept, at the end of the log.",
                    at,
                    step,
                    "warning",
                    LINE_BYTES,
                )
            )
        self._keep_last(line)

    def close(self) -> None:
        """End the log for now: append the lines kept for its end."""
        if not self._tail:
            return
        lines, size = self._gone
        if lines:
            first = self._tail[0]
            notice = f"{lines} lines are left out here ({size} bytes)."
            self._append(_Held(notice, first.at, first.step, "warning", LINE_BYTES))
        self._gone, self._tail_bytes = [0, 0], 0
        while self._tail:
            self._append(self._tail.popleft())

    def batch(self) -> list[LogLine]:
        """Return the next lines to store, as many as one transaction should write."""
        found: list[LogLine] = []
        size = 0
        for line in self._waiting:
            size += len(line.text)
            if found and (len(found) == _BATCH or size > _BATCH_BYTES):
                break
            found.append(line)
        return found

    def forget(self, count: int) -> None:
        """Remove the first waiting lines, which are stored."""
        for _ in range(count):
            self._waiting.popleft()

    def _append(self, line: _Held) -> None:
        self._count += 1
        self._bytes += line.cost
        text = self._clean(line.text)
        if len(text) > MAX_TEXT:
            text = f"{text[: MAX_TEXT - 1]}…"
        self._waiting.append(LogLine(self._count, line.at, line.step, line.level, text))

    def _keep_last(self, line: _Held) -> None:
        self._tail.append(line)
        self._tail_bytes += line.cost
        while self._tail_bytes > TAIL_BYTES:
            gone = self._tail.popleft()
            self._tail_bytes -= gone.cost
            self._gone[0] += 1
            self._gone[1] += gone.cost - LINE_BYTES
