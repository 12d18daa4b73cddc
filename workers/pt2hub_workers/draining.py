"""How a worker ends: it takes no more builds, lets those that run go on for a while, then hands them back.

A second signal hands them back at once. Whatever hangs in the end, the process does end.
"""

from __future__ import annotations

import os
import threading
import time
from typing import TYPE_CHECKING

import structlog

if TYPE_CHECKING:
    from pt2hub.server.db.queue import BuildConsumer
    from pt2hub.server.interrupts import Interrupts
    from pt2hub_workers.overseer import Overseer

HUNG_SECONDS = 12.0
"""A slot may hang in a call to a storage that does not answer. Its build is fenced, so nothing is lost by going."""
_LOOK_SECONDS = 0.05
_log = structlog.get_logger()


class Drain:
    """Waits in a thread for the signal, then ends the worker step by step."""

    def __init__(
        self, signals: Interrupts, consumer: BuildConsumer, overseer: Overseer, *, seconds: float
    ) -> None:
        """Prepares; `start` begins to wait.

        Args:
            signals: Tells when to end; signals that came before `start` count.
            consumer: Takes builds off the queue; its `run` returns when it is stopped and nothing runs.
            overseer: Halts what runs.
            seconds: How long what runs may go on.
        """
        self._signals = signals
        self._consumer = consumer
        self._overseer = overseer
        self._seconds = seconds

    def start(self) -> None:
        """Begins to wait for a signal."""
        threading.Thread(target=self._run, daemon=True, name="drain").start()

    def _run(self) -> None:
        number = self._signals.wait()
        _log.info("stopping", signal=number.name if number else None, seconds=self._seconds)
        self._consumer.stop()
        self._overseer.drain()
        self._wait()
        self._overseer.halt_all()
        time.sleep(HUNG_SECONDS)
        _log.warning("left while a build would not stop")
        self._overseer.stop()
        os._exit(0)

    def _wait(self) -> None:
        deadline = time.monotonic() + self._seconds
        while time.monotonic() < deadline and not self._overseer.wait_idle(_LOOK_SECONDS):
            if self._signals.wait(0):
                _log.info("stopping at once")
                return
