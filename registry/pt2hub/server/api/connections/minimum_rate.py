"""Minimum rate of a request's body: a client below it is cut off instead of holding a thread."""

from __future__ import annotations

import errno
import time
from typing import TYPE_CHECKING

from gunicorn.http.unreader import SocketUnreader

from pt2hub.errors import RequestTimeout

if TYPE_CHECKING:
    from socket import socket

MIN_BYTES_PER_S = 4096
"""Rate below which a body uses up its allowance of waiting time; a twentieth of a poor line."""


class ClientTooSlow(ConnectionResetError):
    """The client sent less than the minimum rate for too long; gunicorn takes it for a lost connection."""

    def __init__(self) -> None:
        super().__init__(errno.ECONNRESET, "the client sends too slowly")


def request_timeout() -> RequestTimeout:
    """Return the error for a client that sends too slowly."""
    return RequestTimeout(
        "The request arrived too slowly.",
        hint=f"Send it again at {MIN_BYTES_PER_S} bytes per second or more. If this repeats, look at the connection, "
        "or for a proxy that holds requests back.",
    )


class PacedUnreader(SocketUnreader):  # type: ignore[misc]  # gunicorn publishes no types
    """gunicorn's reader of a connection, with an allowance of waiting time that received bytes earn back.

    Only waiting for the client counts, not the time in which the server stores what came.

    Args:
        connection: The client's.
        allowance: Seconds, also the longest that a client may stall.
    """

    def __init__(self, connection: socket, allowance: float) -> None:
        super().__init__(connection)
        self._most = self._left = allowance

    def renew(self) -> None:
        """Grant the whole allowance, for the next request."""
        self._left = self._most

    def limit(self, seconds: float) -> None:
        """Leave at most so many seconds of waiting."""
        self._left = min(self._left, seconds)

    def chunk(self, size_hint: int | None = None) -> bytes:
        """Return the next bytes.

        Raises:
            ClientTooSlow: The client sent less than the minimum rate for too long.
        """
        if self._left <= 0:
            raise ClientTooSlow
        began = time.monotonic()
        self.sock.settimeout(self._left)
        try:
            data: bytes = super().chunk(size_hint)
        except TimeoutError as error:
            self._left = 0.0
            raise ClientTooSlow from error
        finally:
            self.sock.settimeout(None)
        earned = len(data) / MIN_BYTES_PER_S - (time.monotonic() - began)
        self._left = min(self._most, self._left + earned)
        return data
