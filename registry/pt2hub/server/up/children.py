"""Supervised API and worker processes."""

from __future__ import annotations

import sys
import time
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from pt2hub.server.up.supervised_services import TICK_SECONDS, Service
from pt2hub.system.processes import spawn

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from pt2hub.server.startup_barrier import StartupBarrier
    from pt2hub.system.interrupts import Interrupts
    from pt2hub.system.processes import Child

T = TypeVar("T")
_KILLED_AFTER = 5.0
"""Seconds added to a process's own shutdown time."""
HAND_BACK_SECONDS = 15.0
"""Time for a worker without drain time to end its children and hand back its build."""


def api_services(
    listeners: Sequence[socket.socket],
    environ: Mapping[str, str],
    *,
    log: Path | None,
    grace: float,
    report: Callable[[str], None],
    barrier: StartupBarrier | None = None,
) -> list[Service]:
    """Create one API service per socket, which its process inherits.

    Args:
        log: Where they write; None for our own output.
        grace: Seconds they may take for what they were asked before they stop.
        report: Takes a line when one had to be started again.
        barrier: What they wait for once they are ready to serve; None where they may serve at once.
    """

    def launch(number: int) -> Child:
        argv = [sys.executable, "-m", "pt2hub.server.serve", "--fd", str(number)]
        if barrier is None:
            return spawn(argv, log=log, environ=environ, keep_open=[number], signals_held=True)
        argv += ["--barrier", str(barrier.reader)]
        child = spawn(argv, log=log, environ=environ, keep_open=[number, barrier.reader], signals_held=True)
        barrier.count_launch()
        return child

    return [
        Service("API", partial(launch, listener.fileno()), patience=grace + _KILLED_AFTER, report=report)
        for listener in listeners
    ]


def worker_service(
    environ: Mapping[str, str], *, log: Path | None, drain: float, report: Callable[[str], None]
) -> Service:
    """Create a worker service for this machine's target.

    Args:
        log: Where it writes; None for our own output.
        drain: Seconds it may go on with what it builds.
        report: Takes a line when it had to be started again.
    """

    def launch() -> Child:
        return spawn([sys.executable, "-m", "pt2hub_workers"], log=log, environ=environ, signals_held=True)

    patience = drain + HAND_BACK_SECONDS + _KILLED_AFTER
    return Service("worker", launch, patience=patience, report=report)


def await_service(
    service: Service, look: Callable[[], T | None], seconds: float, interrupts: Interrupts
) -> T:
    """Poll until a value is truthy and return it.

    Raises:
        InternalError: The service ended meanwhile, or its time is over.
        Interrupted: A signal has come.
    """
    deadline = time.monotonic() + seconds
    while not (found := interrupts.call(look)):
        service.require_running()
        if time.monotonic() > deadline:
            raise service.failure(f"was not ready within {seconds:g} s")
        interrupts.pause(TICK_SECONDS)
    return found
