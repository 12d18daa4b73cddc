"""Shutdown of a worker: it takes no more builds, lets running ones continue for a while, then hands them back.

A second signal hands them back at once. The process exits even if a build hangs.
"""

from __future__ import annotations

import os
import threading
import time
from typing import TYPE_CHECKING

import structlog

if TYPE_CHECKING:
    from pt2hub.server.db.queue import BuildConsumer
    from pt2hub.system.interrupts import Interrupts
    from pt2hub_workers.operations.heartbeat import HeartbeatMonitor

HUNG_SECONDS = 12.0
"""How long to wait for a slot that hangs, such as in a storage call. Its build is fenced, so exiting loses nothing."""
_POLL_SECONDS = 0.05
_log = structlog.get_logger()


class Drain:
    """Thread that waits for a signal, then shuts the worker down step by step.

    Args:
        signals: Signals to stop; those before `start` count.
    """

    def __init__(
        self, signals: Interrupts, consumer: BuildConsumer, monitor: HeartbeatMonitor, *, seconds: float
    ) -> None:
        self._signals = signals
        self._consumer = consumer
        self._monitor = monitor
        self._seconds = seconds

    def start(self) -> None:
        """Start waiting for a signal."""
        threading.Thread(target=self._run, daemon=True, name="drain").start()

    def _run(self) -> None:
        number = self._signals.wait()
        _log.info("stopping", signal=number.name if number else None, seconds=self._seconds)
        self._consumer.stop()
        self._monitor.drain()
        self._wait()
        self._monitor.cancel_all()
        time.sleep(HUNG_SECONDS)
        _log.warning("exiting although a build did not stop")
        self._monitor.stop()
        os._exit(0)

    def _wait(self) -> None:
        deadline = time.monotonic() + self._seconds
        while time.monotonic() < deadline and not self._monitor.wait_idle(_POLL_SECONDS):
            if self._signals.wait(0):
                _log.info("stopping immediately")
                return
