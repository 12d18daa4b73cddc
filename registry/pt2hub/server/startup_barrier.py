"""Startup barrier: API processes import in parallel with the supervisor's checks and serve once they passed."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from types import TracebackType

_RELEASE = b"g"


class StartupBarrier:
    """A pipe from which every process reads one byte before serving; at end of file the process exits silently."""

    def __init__(self) -> None:
        self.reader, self._writer = os.pipe()
        self._waiting = 0
        self._is_open = False

    def count_launch(self) -> None:
        """Count a starting process; after `open` it is released immediately."""
        self._waiting += 1
        if self._is_open:
            self._let_through()

    def open(self) -> None:
        """Release waiting and future processes."""
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
        os.write(self._writer, _RELEASE * self._waiting)
        self._waiting = 0


def may_serve(reader: int) -> bool:
    """Wait at the barrier in an API process; return whether it was opened.

    Args:
        reader: `StartupBarrier.reader`, which is closed.
    """
    with os.fdopen(reader, "rb", buffering=0) as pipe:
        return pipe.read(1) == _RELEASE
