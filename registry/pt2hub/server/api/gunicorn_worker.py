"""gunicorn worker with problem documents for malformed requests, and protection against slow clients."""

from __future__ import annotations

import contextlib
import errno
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

import structlog
from gunicorn.http import errors as parsing
from gunicorn.workers.gthread import _DEFER, ThreadWorker

from pt2hub.errors import UsageError
from pt2hub.server.api import streams
from pt2hub.server.api.problems import MAX_URL_BYTES, problem
from pt2hub.version import __version__
from pt2hub.wire.compatibility import VERSION_HEADER

if TYPE_CHECKING:
    from concurrent.futures import Executor
    from socket import socket

    from flask import Response

_LAST_WORDS_SECONDS = 1.0
_log = structlog.get_logger(__name__)
_STATUS: dict[type[Exception], HTTPStatus] = {
    parsing.LimitRequestLine: HTTPStatus.REQUEST_URI_TOO_LONG,
    parsing.LimitRequestHeaders: HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE,
    parsing.ExpectationFailed: HTTPStatus.EXPECTATION_FAILED,
    parsing.UnsupportedTransferCoding: HTTPStatus.NOT_IMPLEMENTED,
}


class GunicornWorker(ThreadWorker):  # type: ignore[misc]  # gunicorn publishes no types
    """Threaded worker whose accepting thread never blocks on a client."""

    def handle(self, conn: Any) -> Any:
        """Handle a connection like gunicorn, but without waiting five seconds for the first request on it."""
        patience = (
            0 if self.alive else _LAST_WORDS_SECONDS
        )  # a stopping worker cannot poll the connection again
        if not (conn.initialized or conn.data_ready or conn.wait_for_data(patience)):
            return _DEFER
        return super().handle(conn)

    def handle_request(self, req: Any, conn: Any) -> Any:
        """Handle a request like gunicorn, but treat a stalled reader as disconnected instead of logging an error."""
        try:
            return super().handle_request(req, conn)
        except TimeoutError as exc:
            raise ConnectionResetError(errno.ECONNRESET, "the reader stalled") from exc

    def set_accept_enabled(self, enabled: bool) -> None:
        """Enable or disable accepting; a stopping worker still answers pending connections and refuses later ones."""
        stopping = not (enabled or self.alive)
        if stopping and self._accepting:
            for listener in self.sockets:
                self._accept_waiting(listener)
        super().set_accept_enabled(enabled)
        if stopping:
            for listener in self.sockets:
                listener.close()

    def _accept_waiting(self, listener: Any) -> None:
        """Accept connections in the kernel's backlog, which closing the socket would reset."""
        before = -1
        while before < self.nr_conns < self.worker_connections:
            before = self.nr_conns
            self.accept(listener)

    def _cap_keepalive(self, deadline: float) -> None:
        """Limit keep-alive like gunicorn, also for connections without any request."""
        super()._cap_keepalive(deadline)
        for conn in self.pending_conns:
            conn.timeout = min(conn.timeout, deadline)

    def handle_exit(self, sig: Any, frame: Any) -> None:
        """Exit like gunicorn, and end all streams, whose readers then reconnect."""
        streams.closing.set()
        super().handle_exit(sig, frame)

    def finish_request(self, conn: Any, *rest: Any) -> None:
        """Finish a request like gunicorn, but wait up to two seconds in a pool thread for the client to disconnect."""
        if hasattr(conn, "close") and "close" not in vars(conn):
            conn.close = partial(_close, conn.close, self.tpool)
        super().finish_request(conn, *rest)

    def handle_error(self, req: Any, client: socket, addr: Any, exc: Exception) -> None:
        """Answer malformed requests with a problem document."""
        if not isinstance(exc, parsing.ParseException):
            super().handle_error(req, client, addr, exc)
            return
        status = next((_STATUS[cls] for cls in type(exc).__mro__ if cls in _STATUS), HTTPStatus.BAD_REQUEST)
        _log.info("request not understood", status=int(status), error=str(exc)[:200])
        hint = f"A proxy may have changed it; URLs may have at most {MAX_URL_BYTES} bytes, headers 8190."
        answer = problem(UsageError(f"The request cannot be read: {exc!s:.200}", hint=hint), status=status)
        with contextlib.suppress(OSError):
            client.sendall(_as_bytes(answer))


def _close(close: Any, pool: Executor, *, graceful: bool = False) -> None:
    try:
        pool.submit(close, graceful=graceful)
    except RuntimeError:  # the pool was shut down because the worker stops
        close()


def _as_bytes(answer: Response) -> bytes:
    fixed = {VERSION_HEADER: __version__, "Connection": "close"}
    lines = [
        f"HTTP/1.1 {answer.status}",
        *(f"{name}: {value}" for name, value in (*answer.headers.items(), *fixed.items())),
    ]
    return "\r\n".join([*lines, "", ""]).encode() + answer.get_data()
