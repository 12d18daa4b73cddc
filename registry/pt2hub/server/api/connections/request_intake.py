"""Reads a request in the event loop until it is worth a thread."""

from __future__ import annotations

import contextlib
import re
import sys
from enum import Enum, auto
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from socket import socket

MAX_HEAD_BYTES = 1 << 17
"""Bytes of a request line and headers that are read; gunicorn then refuses less with a more exact error."""
BUFFERED_BODY_BYTES = 1 << 16
"""Bodies up to this size are received whole before a thread is taken, larger ones to this size."""
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
_PIECE = 1 << 16
_HEAD_END = b"\r\n\r\n"
_LENGTH = re.compile(rb"\r\ncontent-length[ \t]*:[ \t]*(\d{1,18})[ \t]*(?=\r\n)", re.IGNORECASE)
_CHUNKED = re.compile(rb"\r\ntransfer-encoding[ \t]*:", re.IGNORECASE)
_EXPECTS = re.compile(rb"\r\nexpect[ \t]*:", re.IGNORECASE)
_LAST_CHUNK = re.compile(rb"(?:\r\n)0+(?:;[^\r\n]*)?\r\n(?:[^\r\n]+\r\n)*\r\n\Z")


class Progress(Enum):
    """How much of a request has arrived."""

    NOTHING = auto()
    PARTIAL = auto()
    """A thread would wait for the client."""
    HEAD = auto()
    """The head of a request with a body that is larger than what is buffered, or that the client holds back."""
    STREAMING = auto()
    """Likewise, and as much of the body as is buffered: a thread reads the rest."""
    COMPLETE = auto()
    TOO_LONG = auto()
    """The head has no end within the limit."""
    CLOSED = auto()


_UNFINISHED = frozenset({Progress.NOTHING, Progress.PARTIAL, Progress.HEAD})


class RequestIntake:
    """The bytes of one request on a connection, until they are handed to a thread.

    What they mean is decided by gunicorn's parser; here they are only read for how much is still to come.

    Args:
        received: Bytes that came together with the request before.
    """

    def __init__(self, received: bytes = b"") -> None:
        self._received = bytearray(received)
        self._body_at = -1
        self._expected = 0
        self._is_chunked = self._is_held_back = False

    @property
    def received(self) -> bytes:
        """The bytes so far."""
        return bytes(self._received)

    @property
    def is_liveness_probe(self) -> bool:
        """Whether it only asks whether this process lives."""
        return self._received.startswith((b"GET /healthz ", b"HEAD /healthz "))

    @property
    def is_held_back(self) -> bool:
        """Whether the client waits for "100 Continue" before it sends the body."""
        return self._is_held_back

    def receive(self, connection: socket) -> Progress:
        """Read what has arrived, without waiting."""
        progress = self._progress() if self._received else Progress.NOTHING
        while progress in _UNFINISHED:
            try:
                piece = connection.recv(_PIECE)
            except BlockingIOError:
                return progress
            except OSError:
                return Progress.CLOSED
            if not piece:  # gunicorn answers what is malformed or cut off, and need not wait for anything
                return Progress.COMPLETE if self._received else Progress.CLOSED
            self._received += piece
            progress = self._progress()
        return progress

    def request_body(self, connection: socket) -> None:
        """Tell a client that waits for it to send the body."""
        self._is_held_back = False
        with contextlib.suppress(OSError):  # the next read finds out
            connection.send(CONTINUE)

    def _progress(self) -> Progress:
        if self._body_at < 0 and not self._find_body():
            return Progress.TOO_LONG if len(self._received) > MAX_HEAD_BYTES else Progress.PARTIAL
        arrived = len(self._received) - self._body_at
        if arrived >= self._expected:
            return Progress.COMPLETE
        if arrived >= BUFFERED_BODY_BYTES or self._has_last_chunk():
            return Progress.STREAMING
        is_large = self._is_chunked or self._expected > BUFFERED_BODY_BYTES
        return Progress.HEAD if is_large or self._is_held_back else Progress.PARTIAL

    def _has_last_chunk(self) -> bool:
        return self._is_chunked and _LAST_CHUNK.search(self._received, self._body_at) is not None

    def _find_body(self) -> bool:
        """Find the end of the head; one empty line before it is allowed."""
        start = 2 if self._received.startswith(b"\r\n") else 0
        end = self._received.find(_HEAD_END, start)
        if end < 0:
            return False
        head = bytes(self._received[start : end + 2])
        length = _LENGTH.search(head)
        self._body_at = end + len(_HEAD_END)
        self._is_chunked = _CHUNKED.search(head) is not None
        self._expected = sys.maxsize if self._is_chunked else int(length[1]) if length else 0
        self._is_held_back = _EXPECTS.search(head) is not None
        return True
