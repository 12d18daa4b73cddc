"""Termination signals: recorded by a minimal handler and acted on where pt2hub's own code waits.

An exception out of a handler would leave a library in the middle of whatever it was at: a query half sent, a lock held.
So long calls into libraries run in another thread, which the main thread abandons when a signal comes.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import threading
import time
from concurrent.futures import Future, wait
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType

T = TypeVar("T")
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_LOOK_SECONDS = 0.05


class Interrupted(BaseException):
    """A termination signal arrived. A BaseException, so that no `except Exception` swallows it."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


def hold() -> None:
    """Keep the signals back, also across `exec`, until `Interrupts.installed` or `release` lets them through.

    Without it, a signal that comes while a Python process starts and imports kills it: nothing handles it yet.
    """
    signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)


def release() -> None:
    """Let the signals through that whoever started this process, or `hold`, kept back."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)


class Interrupts:
    """Termination signals (SIGINT, SIGTERM, SIGHUP), recorded for the main thread."""

    def __init__(self) -> None:
        self._asked: int | None = None
        # A handler interrupts the main thread anywhere, so it takes no lock: it writes to a pipe.
        self._reader, self._writer = os.pipe()
        os.set_blocking(self._writer, False)

    @contextlib.contextmanager
    def install(self) -> Iterator[None]:
        """Take the signals over, and give them back at the end; call it from the main thread."""
        # A closing terminal ends the server too, unless it runs under nohup.
        taken = [number for number in SIGNALS if number != signal.SIGHUP or _is_heeded(number)]
        before = {number: signal.signal(number, self._handle) for number in taken}
        release()
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def check(self) -> None:
        """Raise where a signal has come.

        Raises:
            Interrupted: It has.
        """
        if self._asked is not None:
            raise Interrupted(self._asked)

    def pause(self, seconds: float) -> None:
        """Wait some seconds.

        Raises:
            Interrupted: A signal has come.
        """
        deadline = time.monotonic() + seconds
        self.check()
        while (left := deadline - time.monotonic()) > 0:
            time.sleep(min(left, _LOOK_SECONDS))
            self.check()

    def call(self, work: Callable[[], T]) -> T:
        """Run a long library call outside the main thread.

        It must start no processes that are to outlive it: the kernel takes the end of the thread that started a process
        for its parent's death.

        Args:
            work: What to do. After a signal it is left where it is, and ends with the process at the latest.

        Raises:
            Interrupted: A signal has come.
        """
        self.check()
        future: Future[T] = Future()
        threading.Thread(target=_complete, args=(future, work), daemon=True, name="interruptible").start()
        while not wait([future], timeout=_LOOK_SECONDS).done:
            self.check()
        self.check()
        return future.result()

    def wait(self, seconds: float | None = None) -> signal.Signals | None:
        """Return the next signal, from any thread; None where none comes in time."""
        readable, _, _ = select.select([self._reader], [], [], seconds)
        return signal.Signals(os.read(self._reader, 1)[0]) if readable else None

    def end(self) -> None:
        """Ask for the end as SIGTERM does, from any thread."""
        os.write(self._writer, bytes([signal.SIGTERM]))

    def _handle(self, number: int, frame: FrameType | None) -> None:
        del frame
        self._asked = number
        with contextlib.suppress(OSError):  # full: there are enough of them to read
            os.write(self._writer, bytes([number]))


def _complete(future: Future[T], work: Callable[[], T]) -> None:
    try:
        future.set_result(work())
    except BaseException as error:  # noqa: BLE001  # it is raised again where it is waited for
        future.set_exception(error)


def _is_heeded(number: signal.Signals) -> bool:
    return signal.getsignal(number) is not signal.SIG_IGN
