"""What a child sends, until someone reads it: bounded, so that one that sends without end waits, and not the worker."""

from __future__ import annotations

import json
import math
import threading
import time
from collections import deque
from typing import Any

MAX_LINE = 16 << 20
"""Bytes of one message; the largest are configs with thousands of constants, of one or two MiB."""
MAX_WAITING = 16 << 20
"""Bytes of all messages that wait to be read; a single one may be as long."""
_LINE_COST = 100
"""What a line costs beside its bytes, about."""
MAX_DEPTH = 64
"""Of lists and objects in each other; deeper ones would end in errors of recursion wherever they are looked at."""
MAX_VALUES = 1_000_000
"""Lists, objects and what is in them: as Python's objects they take some hundred bytes each, and the parent's time."""
_DIGITS = 18
"""Of an integer: it fits where numbers are kept."""


class Mailbox:
    """Lines from one thread to another."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._lines: deque[bytes] = deque()
        self._size = 0
        self._woken = False
        self._over = False

    def put(self, line: bytes) -> bool:
        """Adds a line, once there is room for it; returns False where nobody will read it."""
        cost = len(line) + _LINE_COST
        with self._changed:
            self._changed.wait_for(lambda: self._over or not self._lines or self._size + cost <= MAX_WAITING)
            if not self._over:
                self._lines.append(line)
                self._size += cost
                self._changed.notify_all()
            return not self._over

    def take(self, seconds: float) -> bytes | None:
        """The next line; `b""` where there will be none, None where none came in time or someone woke the reader."""
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
        """Ends the present or the next wait for a line at once."""
        with self._changed:
            self._woken = True
            self._changed.notify_all()

    def end(self) -> None:
        """No more lines come, and what waits may still be read."""
        with self._changed:
            self._over = True
            self._changed.notify_all()


def read_message(line: bytes) -> dict[str, Any]:
    """A message, of which nothing is known but that it is a JSON object that names its event.

    Texts have no character that a database refuses, numbers are finite or words ("Infinity").

    Raises:
        ValueError: It is none.
    """
    if line.count(b",") + line.count(b"[") + line.count(b"{") > MAX_VALUES:  # texts hold some as well
        raise ValueError("it has too many values")
    try:
        message = json.loads(line, parse_constant=str, parse_int=_integer, parse_float=_float)
        message = _clean(message, MAX_DEPTH)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
    if not isinstance(message, dict) or not isinstance(message.get("event"), str):
        raise ValueError("it is no object that names its event")  # noqa: TRY004  # of what was sent, not of our code
    return message


def _integer(text: str) -> int:
    if len(text) > _DIGITS:
        raise ValueError("it has an integer of too many digits")
    return int(text)


def _float(text: str) -> float | str:
    value = float(text)
    return value if math.isfinite(value) else text[:_DIGITS]


def _clean(value: Any, depth: int) -> Any:  # noqa: ANN401  # JSON values
    if depth == 0:
        raise ValueError("it is nested too deeply")
    if isinstance(value, str):
        return _storable(value)
    if isinstance(value, list):
        return [_clean(item, depth - 1) for item in value]
    if isinstance(value, dict):
        return {_storable(key): _clean(item, depth - 1) for key, item in value.items()}
    return value


def _storable(text: str) -> str:
    """Without NUL, which PostgreSQL refuses, and lone surrogates, which have no UTF-8."""
    if text.isascii() and "\0" not in text:
        return text
    return text.encode(errors="replace").decode().replace("\0", "")
