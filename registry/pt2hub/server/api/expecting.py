"""`Expect: 100-continue`, answered when the application begins to read and not before.

A client that waits with its body asks for exactly this: to be refused for a length, a token or a full disk
before it has sent anything. gunicorn by itself says "continue" before the application sees the request.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from socket import socket
    from wsgiref.types import InputStream, StartResponse, WSGIApplication, WSGIEnvironment

_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"


def hold(_worker: object, request: Any) -> None:  # noqa: ANN401  # gunicorn publishes no types
    """What gunicorn calls before each request: takes the answer out of its hands."""
    request._expected_100_continue = False  # noqa: SLF001  # it has no setting for this; 23 ignores it, and says it twice


def answered(application: WSGIApplication) -> WSGIApplication:
    """An application under gunicorn whose clients are asked for their body when it is read.

    Args:
        application: What reads it.
    """

    def wrapped(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        connection = environ.get("gunicorn.socket")
        if environ.get("HTTP_EXPECT", "").lower() == "100-continue" and connection is not None:
            environ["wsgi.input"] = _Awaited(environ["wsgi.input"], connection)
        return application(environ, start_response)

    return wrapped


class _Awaited:
    """A body that is asked for when its first byte is wanted."""

    def __init__(self, body: InputStream, connection: socket) -> None:
        self._body = body
        self._connection: socket | None = connection

    def read(self, size: int = -1) -> bytes:
        self._ask()
        return self._body.read(size)

    def readline(self, size: int = -1) -> bytes:
        self._ask()
        return self._body.readline(size)

    def readlines(self, hint: int = -1) -> list[bytes]:
        self._ask()
        return self._body.readlines(hint)

    def __iter__(self) -> Iterator[bytes]:
        self._ask()
        return iter(self._body)

    def _ask(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.sendall(_CONTINUE)
