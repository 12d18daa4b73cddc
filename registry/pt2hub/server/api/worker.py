"""gunicorn's worker, where it falls short: refusals that are no problem documents, and clients that stop all others."""

from __future__ import annotations

import contextlib
import errno
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

import structlog
from gunicorn.http import errors as parsing
from gunicorn.workers.gthread import _DEFER, ThreadWorker

from pt2hub import __version__
from pt2hub.errors import UsageError
from pt2hub.server.api import streams
from pt2hub.server.api.problems import LONGEST_ADDRESS, problem
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


class Worker(ThreadWorker):  # type: ignore[misc]  # gunicorn publishes no types
    """Threads that answer requests, and one that accepts connections and must not wait for anybody."""

    def handle(self, conn: Any) -> Any:  # noqa: ANN401  # gunicorn's
        """As gunicorn's, but no thread waits five seconds for a connection on which nothing was asked yet."""
        patience = 0 if self.alive else _LAST_WORDS_SECONDS  # who stops cannot ask again later
        if not (conn.initialized or conn.data_ready or conn.wait_for_data(patience)):
            return _DEFER
        return super().handle(conn)

    def handle_request(self, req: Any, conn: Any) -> Any:  # noqa: ANN401  # gunicorn's
        """As gunicorn's, but a reader that stalled is one that hung up, and no failure to be logged as one."""
        try:
            return super().handle_request(req, conn)
        except TimeoutError as exc:
            raise ConnectionResetError(errno.ECONNRESET, "the reader stalled") from exc

    def set_accept_enabled(self, enabled: bool) -> None:
        """As gunicorn's, but a worker that stops answers who connected before, and refuses who comes later."""
        stopping = not (enabled or self.alive)
        if stopping and self._accepting:
            for listener in self.sockets:
                self._accept_waiting(listener)
        super().set_accept_enabled(enabled)
        if stopping:
            for listener in self.sockets:
                listener.close()

    def _accept_waiting(self, listener: Any) -> None:  # noqa: ANN401  # gunicorn's
        """Takes the connections that the kernel has accepted for us already: closing would cut them."""
        before = -1
        while before < self.nr_conns < self.worker_connections:
            before = self.nr_conns
            self.accept(listener)

    def _cap_keepalive(self, deadline: float) -> None:
        """As gunicorn's, also for connections on which nothing was ever asked."""
        super()._cap_keepalive(deadline)
        for conn in self.pending_conns:
            conn.timeout = min(conn.timeout, deadline)

    def handle_exit(self, sig: Any, frame: Any) -> None:  # noqa: ANN401  # gunicorn's
        """As gunicorn's, and ends the streams, whose readers then ask another process or later."""
        streams.closing.set()
        super().handle_exit(sig, frame)

    def finish_request(self, conn: Any, *rest: Any) -> None:  # noqa: ANN401  # gunicorn's
        """As gunicorn's, but waits in a thread of the pool for the client to hang up: two seconds at most."""
        if hasattr(conn, "close") and "close" not in vars(conn):
            conn.close = partial(_close, conn.close, self.tpool)
        super().finish_request(conn, *rest)

    def handle_error(self, req: Any, client: socket, addr: Any, exc: Exception) -> None:  # noqa: ANN401  # gunicorn's
        """Answers what is no HTTP by a problem document, as every other error."""
        if not isinstance(exc, parsing.ParseException):
            super().handle_error(req, client, addr, exc)
            return
        status = next((_STATUS[cls] for cls in type(exc).__mro__ if cls in _STATUS), HTTPStatus.BAD_REQUEST)
        _log.info("request not understood", status=int(status), error=str(exc)[:200])
        hint = f"A proxy in between may have changed it; an address may have {LONGEST_ADDRESS} bytes, a header 8190."
        answer = problem(UsageError(f"The request cannot be read: {exc!s:.200}", hint=hint), status=status)
        with contextlib.suppress(OSError):
            client.sendall(_as_bytes(answer))


def _close(close: Any, pool: Executor, *, graceful: bool = False) -> None:  # noqa: ANN401  # gunicorn's
    try:
        pool.submit(close, graceful=graceful)
    except RuntimeError:  # the pool was shut down: the worker stops
        close()


def _as_bytes(answer: Response) -> bytes:
    fixed = {VERSION_HEADER: __version__, "Connection": "close"}
    lines = [
        f"HTTP/1.1 {answer.status}",
        *(f"{name}: {value}" for name, value in (*answer.headers.items(), *fixed.items())),
    ]
    return "\r\n".join([*lines, "", ""]).encode() + answer.get_data()
