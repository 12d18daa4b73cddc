"""Retries while the server is away, and the warning that they go on."""

from __future__ import annotations

import time
import warnings
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Self, TypeVar

import urllib3

from pt2hub.errors import BadResponse, Pt2hubError, ServerUnreachable
from pt2hub.retry import generate_pauses, retry

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import TracebackType

    from urllib3.connectionpool import ConnectionPool

T = TypeVar("T")
_QUIET_S = 1.5
"""How long failures are retried without a word."""
_RETRY_S = 15.0
"""How long a request that is safe to repeat is retried: longer than a server takes to restart."""
_FIRST_PAUSE_S = 0.3
_MAX_PAUSE_S = 2.4


class ServerAwayWarning(UserWarning):
    """The server does not answer, and the client tries again."""


class Outage:
    """The failed tries of one call, which are announced once.

    Args:
        url: The server's address.
        lasts_s: How long the call goes on trying; None for as many tries as urllib3 allows.
    """

    def __init__(self, url: str, lasts_s: float | None = None) -> None:
        self._url = url
        self._until = None if lasts_s is None else time.time() + lasts_s
        self._since: float | None = None
        self._is_announced = False

    def report(self, error: Pt2hubError) -> None:
        """Note the error of a try that another one follows."""
        status = error.context.get("status") if isinstance(error, BadResponse) else None  # of a proxy
        answer = f"HTTP {status}" if status else error.message.rstrip(".")
        self.note(None if isinstance(error, ServerUnreachable) else answer)

    def note(self, answer: str | None, *, has_timed_out: bool = False, tries: int = 0) -> None:
        """Note a failed try, and warn if failures last.

        Args:
            answer: What the server answered; None for no answer.
            has_timed_out: Whether this try took long by itself.
            tries: How many follow at most; for a call without a set time.
        """
        self._since = self._since or time.monotonic()
        if self._is_announced or not (has_timed_out or time.monotonic() - self._since >= _QUIET_S):
            return
        self._is_announced = True
        failure = f"{self._url} answers: {answer}" if answer else f"no server answers at {self._url}"
        warnings.warn(
            f"{failure}; trying again {self._limit(tries)} (Ctrl-C stops)", ServerAwayWarning, stacklevel=2
        )

    def _limit(self, tries: int) -> str:
        """Return until when it is tried again."""
        if self._until:
            return time.strftime("until %H:%M:%S", time.localtime(self._until))
        return "once" if tries == 1 else f"at most {tries} times"


_OUTAGE: ContextVar[Outage | None] = ContextVar("outage", default=None)


@contextmanager
def announced_outage(url: str, lasts_s: float | None = None) -> Iterator[Outage]:
    """Yield the outage that failures within the block belong to: that of the enclosing block, if there is one."""
    outage = _OUTAGE.get() or Outage(url, lasts_s)
    token = _OUTAGE.set(outage)
    try:
        yield outage
    finally:
        _OUTAGE.reset(token)


def retry_request(
    ask: Callable[[], T], url: str, errors: type[Pt2hubError] | tuple[type[Pt2hubError], ...]
) -> T:
    """Send a request that is safe to repeat, again for a while where it fails.

    Args:
        url: The server's address.
        errors: What another try may cure.
    """
    pauses = generate_pauses(_FIRST_PAUSE_S, longest=_MAX_PAUSE_S, total=_RETRY_S)
    with announced_outage(url, _RETRY_S) as outage:
        return retry(ask, errors, pauses, on_error=outage.report)


class AnnouncedRetry(urllib3.Retry):
    """urllib3's retries, noted in the outage of the call that they belong to."""

    def increment(
        self,
        method: str | None = None,
        url: str | None = None,
        response: urllib3.BaseHTTPResponse | None = None,
        error: Exception | None = None,
        _pool: ConnectionPool | None = None,
        _stacktrace: TracebackType | None = None,
    ) -> Self:
        """Return the retries that are left after a failure or a redirect."""
        left = super().increment(method, url, response, error, _pool, _stacktrace)
        outage = _OUTAGE.get()
        if outage and not (response and response.get_redirect_location()):
            is_refusal = isinstance(error, urllib3.exceptions.NewConnectionError)
            outage.note(
                f"HTTP {response.status}" if response else None,
                has_timed_out=isinstance(error, urllib3.exceptions.TimeoutError) and not is_refusal,
                tries=int(left.total or 0) + 1,
            )
        return left
