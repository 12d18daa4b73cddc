"""How an attempt bears a database or a storage that is away for a while: it waits, and loses nothing."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, TypeVar

import structlog

from pt2hub.errors import DatabaseUnavailable, StorageUnavailable

if TYPE_CHECKING:
    from collections.abc import Callable

    from pt2hub_workers.halting import Halt

OUTAGE_SECONDS = 60.0
"""A restart or a fail-over is over by then; what takes longer goes back to the queue."""
_FIRST_PAUSE = 0.1
_LONGEST_PAUSE = 2.0
T = TypeVar("T")
_log = structlog.get_logger()


def persisting(call: Callable[[], T], halt: Halt, *, seconds: float = OUTAGE_SECONDS) -> T:
    """Calls again and again while database or storage do not answer.

    Args:
        call: May be done twice: the answer to the first may have been lost.
        halt: Ends the wait.
        seconds: How long to bear an outage.

    Raises:
        Halted: The attempt was told to stop.
        DatabaseUnavailable: The outage lasted too long.
        StorageUnavailable: Likewise.
        Pt2hubError: What the call raised otherwise, at once.
    """
    deadline = time.monotonic() + seconds
    pause = _FIRST_PAUSE
    while True:
        halt.check()
        try:
            return call()
        except (DatabaseUnavailable, StorageUnavailable) as error:
            if time.monotonic() + pause > deadline:
                raise
            if pause == _FIRST_PAUSE:
                _log.warning("an outage is waited for", error=error.message)
        halt.wait(pause)
        pause = min(2 * pause, _LONGEST_PAUSE)
