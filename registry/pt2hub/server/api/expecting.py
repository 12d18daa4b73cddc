"""Bodies of requests under gunicorn: asked for when the application begins to read, and never misread.

A client that sends `Expect: 100-continue` asks for exactly this: to be refused for a length, a token or a full
disk before it has sent anything. gunicorn by itself says "continue" before the application sees the request.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from gunicorn.http.errors import ParseException

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from socket import socket
    from wsgiref.types import InputStream, StartResponse, WSGIApplication, WSGIEnvironment

_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
_FIRST_WITH_EXPECT = "HTTP/1.1"
_request: ContextVar[Any] = ContextVar("request")
"""gunicorn's request; its hook and the application run in the same thread, one after the other."""


def hold(_worker: object, request: Any) -> None:  # noqa: ANN401  # gunicorn publishes no types
    """What gunicorn calls before each request: takes the answer out of its hands."""
    request._expected_100_continue = False  # noqa: SLF001  # it has no setting for this
    _request.set(request)


def answered(application: WSGIApplication) -> WSGIApplication:
    """An application under gunicorn whose clients are asked for their body when it is read.

    Args:
        application: What reads it.
    """

    def wrapped(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        body = _Body(environ["wsgi.input"], _who_waits(environ))
        environ["wsgi.input"] = body

        def start(*answer: Any) -> Callable[[bytes], object]:  # noqa: ANN401  # WSGI's own arguments
            if body.waits:  # else the client's next request would be taken for the body that it keeps back
                _request.get().force_close()
            return start_response(*answer)

        return application(environ, start)

    return wrapped


def _who_waits(environ: WSGIEnvironment) -> socket | None:
    """The connection of a client that waits to be asked; who speaks HTTP/1.0 does not."""
    expects = environ.get("HTTP_EXPECT", "").lower() == "100-continue"
    waits = expects and environ.get("SERVER_PROTOCOL") == _FIRST_WITH_EXPECT
    return environ.get("gunicorn.socket") if waits else None


class _Body:
    """A body that is asked for when its first byte is wanted.

    Whatever breaks it off is an OSError, as for a connection that is cut: gunicorn has exceptions of its own for
    chunks that are malformed, which nobody else knows.
    """

    def __init__(self, body: InputStream, connection: socket | None) -> None:
        self._body = body
        self._connection = connection

    @property
    def waits(self) -> bool:
        """Whether the client still waits to be asked."""
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
            connection.sendall(_CONTINUE)
        try:
            return how(size)
        except ParseException as exc:
            raise OSError(str(exc)) from exc
