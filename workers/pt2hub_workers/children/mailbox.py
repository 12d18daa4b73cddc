"""Mailbox of messages from a child process, bounded so that a child that sends too much blocks itself."""

from __future__ import annotations

import json
import math
import threading
import time
from collections import deque
from typing import Any

MAX_LINE = 16 << 20
"""Bytes of one message; the largest, configs with thousands of constants, have one or two MiB."""
MAX_WAITING = 16 << 20
"""Bytes of all waiting messages; a single one may be as long."""
_LINE_COST = 100
"""Approximate overhead of a line in addition to its bytes."""
MAX_DEPTH = 64
"""Nesting of lists and objects; deeper values would cause recursion errors wherever they are processed."""
MAX_VALUES = 1_000_000
"""Lists, objects and their items; as Python objects they take about a hundred bytes each."""
_DIGITS = 18
"""Digits of an integer, so that it fits into 64 bits."""


class Mailbox:
    """Bounded queue of lines between two threads."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._lines: deque[bytes] = deque()
        self._size = 0
        self._woken = False
        self._over = False

    def put(self, line: bytes) -> bool:
        """Add a line, waiting for space; return False if the mailbox is closed."""
        cost = len(line) + _LINE_COST
        with self._changed:
            self._changed.wait_for(lambda: self._over or not self._lines or self._size + cost <= MAX_WAITING)
            if not self._over:
                self._lines.append(line)
                self._size += cost
                self._changed.notify_all()
            return not self._over

    def take(self, seconds: float) -> bytes | None:
        """Return the next line; `b""` after the last one, None on a timeout or a wake-up."""
        deadline = time.monotonic() + seconds
        with self._changed:
            while not (self._lines or self._woken or self._over):
                if not self._changed.wait(max(0.0, deadline - time.monotonic())):
                    return None
            if self._woken:
                self._woken = False
                return None
            if not self._lines:
                return b""
            line = self._lines.popleft()
            self._size -= len(line) + _LINE_COST
            self._changed.notify_all()
            return line

    def wake(self) -> None:
        """End the current or the next wait for a line at once."""
        with self._changed:
            self._woken = True
            self._changed.notify_all()

    def end(self) -> None:
        """Close the mailbox; waiting lines can still be read."""
        with self._changed:
            self._over = True
            self._changed.notify_all()


def read_message(line: bytes) -> dict[str, Any]:
    """Decode a message: a JSON object with an `event`, otherwise unchecked.

    Texts have no characters that a database refuses; numbers are finite, or text ("Infinity").
    """
    if line.count(b",") + line.count(b"[") + line.count(b"{") > MAX_VALUES:  # texts hold some as well
        raise ValueError("too many values")
    try:
        message = json.loads(line, parse_constant=str, parse_int=_integer, parse_float=_float)
        message = _clean(message, MAX_DEPTH)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
    if not isinstance(message, dict) or not isinstance(message.get("event"), str):
        raise ValueError("not an object with an event")  # noqa: TRY004  # about the message, not our code
    return message


def _integer(text: str) -> int:
    if len(text) > _DIGITS:
        raise ValueError(f"an integer has more than {_DIGITS} digits")
    return int(text)


def _float(text: str) -> float | str:
    value = float(text)
    return value if math.isfinite(value) else text[:_DIGITS]


def _clean(value: Any, depth: int) -> Any:
    if depth == 0:
        raise ValueError("nested too deeply")
    if isinstance(value, str):
        return _storable(value)
    if isinstance(value, list):
        return [_clean(item, depth - 1) for item in value]
    if isinstance(value, dict):
        return {_storable(key): _clean(item, depth - 1) for key, item in value.items()}
    return value


def _storable(text: str) -> str:
    """Remove NUL, which PostgreSQL refuses, and lone surrogates, which UTF-8 cannot encode."""
    if text.isascii() and "\0" not in text:
        return text
    return text.encode(errors="replace").decode().replace("\0", "")
