"""Waits when the server limits the rate of requests, and says so."""

from __future__ import annotations

import time
import warnings
from http import HTTPStatus
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from urllib3 import BaseHTTPResponse

MAX_WAIT_S = 120.0
"""How long one request waits altogether: two windows of the server's limits."""


class RateLimitWarning(UserWarning):
    """The server limits the rate of requests with this token, and the client waits."""


def wait_for_turn(response: BaseHTTPResponse, waited: float) -> float | None:
    """Wait as long as a refused request's response says.

    Args:
        waited: Seconds that the request has waited already.

    Returns:
        Seconds that it has waited now, to be sent again; None if it was not refused for its rate, or waited enough.
    """
    seconds = _retry_after(response)
    if seconds is None or waited + seconds > MAX_WAIT_S:
        return None
    warnings.warn(
        f"the server limits the rate of requests: waiting {seconds:g} s", RateLimitWarning, stacklevel=2
    )
    response.drain_conn()
    response.release_conn()
    time.sleep(seconds)
    return waited + seconds


def _retry_after(response: BaseHTTPResponse) -> float | None:
    """Return the seconds after which a request may be sent again; limits that do not pass by themselves name none."""
    if response.status != HTTPStatus.TOO_MANY_REQUESTS:
        return None
    text = response.headers.get("Retry-After", "")
    return float(text) if text.isascii() and text.isdigit() else None
