"""`Expect: 100-continue` under gunicorn: the body is requested only when the application reads it.

So clients can be rejected for a length, a token or a full disk before they send anything. gunicorn alone sends "continue"
before the application sees the request.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from gunicorn.http.errors import ParseException

from pt2hub.server.api.connections.minimum_rate import ClientTooSlow, request_timeout
from pt2hub.server.api.connections.request_intake import CONTINUE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from socket import socket
    from wsgiref.types import InputStream, StartResponse, WSGIApplication, WSGIEnvironment

_FIRST_WITH_EXPECT = "HTTP/1.1"
_request: ContextVar[Any] = ContextVar("request")
"""gunicorn's current request; its hook and the application run in the same thread."""


def hold(_worker: object, request: Any) -> None:
    """Keep gunicorn from answering `Expect: 100-continue` before the application reads."""
    request._expected_100_continue = False  # noqa: SLF001  # gunicorn has no setting for this
    _request.set(request)


def expect_body(application: WSGIApplication) -> WSGIApplication:
    """Wrap a WSGI application so that a body is requested only when it is read.

    Args:
        application: The application that reads it.
    """

    def wrapped(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        body = _ExpectedBody(environ["wsgi.input"], _who_waits(environ))
        environ["wsgi.input"] = body

        def start(*answer: Any) -> Callable[[bytes], object]:
            if body.waits:  # else the client's next request would be read as the withheld body
                _request.get().force_close()
            return start_response(*answer)

        return application(environ, start)

    return wrapped


def _who_waits(environ: WSGIEnvironment) -> socket | None:
    """Return the connection of a client that waits for "continue"; HTTP/1.0 clients never do."""
    expects = environ.get("HTTP_EXPECT", "").lower() == "100-continue"
    waits = expects and environ.get("SERVER_PROTOCOL") == _FIRST_WITH_EXPECT
    return environ.get("gunicorn.socket") if waits else None


class _ExpectedBody:
    """A body that is requested on the first read.

    An interruption raises an OSError, as for a broken connection, and a client that is too slow a `RequestTimeout`;
    gunicorn's own exceptions for malformed chunks are translated.
    """

    def __init__(self, body: InputStream, connection: socket | None) -> None:
        self._body = body
        self._connection = connection

    @property
    def waits(self) -> bool:
        """Whether the client still waits for "continue"."""
        return self._connection is not None

    def read(self, size: int = -1) -> bytes:
        return self._read(self._body.read, size)

    def readline(self, size: int = -1) -> bytes:
        return self._read(self._body.readline, size)

    def readlines(self, _hint: int = -1) -> list[bytes]:
        return list(self)

    def __iter__(self) -> Iterator[bytes]:
        return iter(self.readline, b"")

    def _read(self, how: Callable[[int], bytes], size: int) -> bytes:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.sendall(CONTINUE)
        try:
            return how(size)
        except ClientTooSlow as exc:
            _request.get().force_close()
            raise request_timeout() from exc
        except ParseException as exc:
            raise OSError(str(exc)) from exc
