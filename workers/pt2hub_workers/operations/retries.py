"""Retries of database and storage calls through outages of up to a minute."""

from __future__ import annotations

from itertools import chain, repeat
from typing import TYPE_CHECKING, TypeVar

import structlog

from pt2hub.errors import DatabaseUnavailable, StorageUnavailable
from pt2hub.retry import generate_pauses, retry

if TYPE_CHECKING:
    from collections.abc import Callable

    from pt2hub_workers.operations.cancellation import CancellationToken

OUTAGE_SECONDS = 60.0
"""Longest outage to wait for, enough for a restart or a fail-over; after that the build is queued again."""
_FIRST_PAUSE = 0.1
_LONGEST_PAUSE = 2.0
T = TypeVar("T")
_log = structlog.get_logger()


def retry_outage(call: Callable[[], T], token: CancellationToken, *, seconds: float = OUTAGE_SECONDS) -> T:
    """Call a function, retrying while the database or the storage is unavailable.

    Raises:
        DatabaseUnavailable: The outage lasted too long.
        StorageUnavailable: The outage lasted too long.
    """
    log = chain([_log.warning], repeat(_log.debug))

    def attempt() -> T:
        token.check()
        return call()

    return retry(
        attempt,
        (DatabaseUnavailable, StorageUnavailable),
        generate_pauses(_FIRST_PAUSE, longest=_LONGEST_PAUSE, total=seconds),
        wait=token.wait,
        on_error=lambda error: next(log)("waiting for the end of an outage", error=error.message),
    )
