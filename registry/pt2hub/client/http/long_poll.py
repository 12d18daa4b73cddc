"""Long polls: requests that the server answers when something changes."""

from __future__ import annotations

import time
from http import HTTPStatus
from typing import TYPE_CHECKING, Generic, TypeVar

from pt2hub.client.http.server_away import announced_outage
from pt2hub.errors import BadResponse, Busy, Pt2hubError, QuotaExceeded, TransientError

if TYPE_CHECKING:
    from collections.abc import Callable

    from pt2hub.client.http.transport import Transport

T = TypeVar("T")
MAX_WAIT_S = 25.0
"""How long one request waits; proxies often give up after 30 s."""
_OUTAGE_TIMEOUT_S = 60.0
"""Longest outage of the server that waiting survives."""
_AWAY = (HTTPStatus.BAD_GATEWAY, HTTPStatus.SERVICE_UNAVAILABLE, HTTPStatus.GATEWAY_TIMEOUT)
_BUSY_PAUSE_S = 2.0


class LongPoll(Generic[T]):
    """Reads a document again and again, each time when it has changed.

    Args:
        cls: Class of the document.
        path: Its address.
    """

    def __init__(self, transport: Transport, cls: type[T], path: str) -> None:
        self._transport, self._cls, self._path = transport, cls, path
        self._etag: str | None = None
        self._known: T | None = None

    def read(self) -> T:
        """Return the present document."""
        return self._poll(0.0)

    def next(self, *, at_most: float, pause: float) -> T:
        """Return the document when it has changed, or after a while.

        Args:
            at_most: Seconds to wait.
            pause: Seconds to sleep before asking a server that does not wait.
        """
        if self._etag is None:
            time.sleep(min(at_most, pause))
            return self._poll(0.0)
        return self._poll(min(at_most, MAX_WAIT_S))

    def _poll(self, wait_s: float) -> T:
        def ask() -> tuple[T | None, str | None]:
            return self._transport.poll(self._cls, self._path, self._etag, wait_s=wait_s)

        found, self._etag = retry_outages(ask, self._transport.url)
        self._known = self._known if found is None else found
        if self._known is None:
            raise BadResponse("The server sent no document", where=self._path)
        return self._known


def retry_outages(ask: Callable[[], T], url: str) -> T:
    """Call a function, again while its errors look like a restart of the server, or too many requests wait there.

    Args:
        url: The server's address.
    """
    deadline = time.monotonic() + _OUTAGE_TIMEOUT_S
    with announced_outage(url, _OUTAGE_TIMEOUT_S) as outage:
        while True:
            try:
                return ask()
            except (Busy, QuotaExceeded):  # it looked before it refused to wait: asking again is polling
                time.sleep(_BUSY_PAUSE_S)
            except (TransientError, BadResponse) as exc:
                if time.monotonic() > deadline or not _is_outage(exc):
                    raise
                outage.report(exc)
                time.sleep(1)


def _is_outage(error: Pt2hubError) -> bool:
    """Return whether an error may come from a restart, including a proxy's answers."""
    return isinstance(error, TransientError) or error.context.get("status") in _AWAY
