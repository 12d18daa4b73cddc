"""Lets processes of the API import what they need while their supervisor still checks whether they may serve."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from types import TracebackType

_GO = b"g"


class StartGate:
    """A pipe from which every process reads one byte before it serves; at its end it leaves without a word.

    Attributes:
        reader: The end that the processes inherit.
    """

    def __init__(self) -> None:
        """Opens the pipe."""
        self.reader, self._writer = os.pipe()
        self._waiting = 0
        self._is_open = False

    def launched(self) -> None:
        """Count a process that will read: one that is started again later need not wait."""
        self._waiting += 1
        if self._is_open:
            self._let_through()

    def open(self) -> None:
        """Let those through that wait, and those that come."""
        self._is_open = True
        self._let_through()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._writer)
        os.close(self.reader)

    def _let_through(self) -> None:
        os.write(self._writer, _GO * self._waiting)
        self._waiting = 0


def may_serve(reader: int) -> bool:
    """Wait for the supervisor's word, in a process of the API; whether it came.

    Args:
        reader: `StartGate.reader`, which is closed.
    """
    with os.fdopen(reader, "rb", buffering=0) as pipe:
        return pipe.read(1) == _GO
