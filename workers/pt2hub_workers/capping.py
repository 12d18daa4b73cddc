"""The lines of one log on their way, and how long a log may become."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, NamedTuple

from pt2hub.domain.builds import LogLine

if TYPE_CHECKING:
    from collections.abc import Callable

HEAD_BYTES = 8 << 20
"""What is printed is kept from the beginning up to here,"""
TAIL_BYTES = 1 << 20
"""and so is the end of it."""
MAX_LOG_BYTES = 16 << 20
"""Beyond its beginning a log takes the build's own lines (steps, warnings, errors) up to here, for they are few."""
LINE_BYTES = 64
"""What a line costs beside its text."""
MAX_TEXT = 8192
_PRINTED = frozenset({"output", "compiler"})
_BATCH = 2000
_BATCH_BYTES = 1 << 20


class _Held(NamedTuple):
    text: str
    at: float
    step: str
    level: str
    cost: int


class Lines:
    """Numbers lines, cleans them, and holds them until they are stored. Not for several threads at once."""

    def __init__(self, clean: Callable[[str], str]) -> None:
        """Begins a log.

        Args:
            clean: Takes secrets out of a text.
        """
        self._clean = clean
        self._waiting: deque[LogLine] = deque()
        self._count = 0
        self._bytes = 0
        self._full = False
        self._tail: deque[_Held] = deque()
        self._tail_bytes = 0
        self._gone = [0, 0]

    def __len__(self) -> int:
        """How many lines wait to be stored."""
        return len(self._waiting)

    def add(self, text: str, *, at: float, step: str, level: str) -> None:
        """Takes a line; beyond the cap it goes to the end of the log, which only the last ones reach.

        Args:
            text: Without its end.
            at: Seconds since the epoch.
            step: The step that wrote it.
            level: As of `LogLine`.
        """
        line = _Held(text[: 2 * MAX_TEXT], at, step, level, min(len(text), MAX_TEXT) + LINE_BYTES)
        cap = HEAD_BYTES if level in _PRINTED else MAX_LOG_BYTES - TAIL_BYTES
        if self._bytes + line.cost <= cap and not (self._full and level in _PRINTED):
            self._append(line)
            return
        if not self._full:
            self._full = True
            said = f"The log has {HEAD_BYTES >> 20} MiB: of what is printed from here on it keeps the last"
            self._append(
                _Held(f"{said} {TAIL_BYTES >> 20} MiB, at its end.", at, step, "warning", LINE_BYTES)
            )
        self._keep_last(line)

    def close(self) -> None:
        """Ends the log for now: what it holds back of its end follows."""
        if not self._tail:
            return
        lines, size = self._gone
        if lines:
            first = self._tail[0]
            said = f"Here {lines} lines are left out, {size} bytes of text."
            self._append(_Held(said, first.at, first.step, "warning", LINE_BYTES))
        self._gone, self._tail_bytes = [0, 0], 0
        while self._tail:
            self._append(self._tail.popleft())

    def batch(self) -> list[LogLine]:
        """The first lines that wait, as many as one transaction should write."""
        found: list[LogLine] = []
        size = 0
        for line in self._waiting:
            size += len(line.text)
            if found and (len(found) == _BATCH or size > _BATCH_BYTES):
                break
            found.append(line)
        return found

    def stored(self, count: int) -> None:
        """Forgets the first lines that waited."""
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
