"""SIGINT, SIGTERM and SIGHUP as one exception, raised at most once."""

from __future__ import annotations

import contextlib
import signal
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupted(BaseException):
    """A signal asked for the end. No `except Exception` on the way may swallow it."""


class Interrupts:
    """Turns the first signal into `Interrupted`, and ignores those that follow while everything stops."""

    def __init__(self) -> None:
        self._armed = False

    @contextlib.contextmanager
    def installed(self) -> Iterator[None]:
        """Takes the signals over, and gives them back at the end."""
        # A terminal that closes ends the server too, unless nohup told the kernel otherwise.
        taken = [item for item in _SIGNALS if item != signal.SIGHUP or _asked_for(item)]
        before = {number: signal.signal(number, self._handle) for number in taken}
        self._armed = True
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def disarm(self) -> None:
        """From now on signals are ignored."""
        self._armed = False

    def _handle(self, number: int, frame: FrameType | None) -> None:
        del number, frame
        if self._armed:
            self._armed = False
            raise Interrupted


def _asked_for(number: signal.Signals) -> bool:
    return signal.getsignal(number) is not signal.SIG_IGN
