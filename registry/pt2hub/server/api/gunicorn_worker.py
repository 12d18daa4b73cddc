"""gunicorn worker in which slow clients hold no thread, with problem documents for malformed requests.

A request is read in the event loop until it is complete, or until enough of its body has arrived to read the rest in one
of a bounded number of threads. A response leaves its thread while its client takes no more of it, and while it waits for a
change.
"""

from __future__ import annotations

import contextlib
import selectors
import socket
import struct
import sys
import time
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

import structlog
from gunicorn.http import errors as parsing
from gunicorn.workers.gthread import ThreadWorker

from pt2hub.errors import UsageError
from pt2hub.server.api import waits
from pt2hub.server.api.connections.minimum_rate import PacedUnreader, request_timeout
from pt2hub.server.api.connections.ongoing_response import OngoingResponse
from pt2hub.server.api.connections.request_intake import MAX_HEAD_BYTES, Progress, RequestIntake
from pt2hub.server.api.connections.suspension import SuspendedResponses
from pt2hub.server.api.problems import MAX_URL_BYTES, problem
from pt2hub.version import __version__
from pt2hub.wire.compatibility import VERSION_HEADER

if TYPE_CHECKING:
    from flask import Response

    from pt2hub.errors import Pt2hubError

BODY_THREADS = 48
"""Threads for bodies that do not arrive with their head, such as uploads; all others wait in the event loop."""
_EARLY_BODY_THREADS = BODY_THREADS // 4
"""How many of them may be held by requests with little of their body so far, whose refusal may spare the client the rest."""
_MAX_RESUMED = 4
"""Suspended responses that go on at the same time: when all wait for one change, others still find threads."""
_SWITCH_SECONDS = 0.001
"""How long a thread computes while others wait; with Python's five milliseconds the event loop falls behind in a rush."""
_UNSENT_BYTES = 1 << 19
"""Bytes of a response that the kernel keeps for a client that does not read."""
_LINGER_SECONDS = 2.0
"""How long a client may still send after the last response; closing at once could reset what it has not read."""
_LINGER_BYTES = 1 << 16
_DRAIN_SECONDS = 1.0
_log = structlog.get_logger(__name__)
_STATUS: dict[type[Exception], HTTPStatus] = {
    parsing.LimitRequestLine: HTTPStatus.REQUEST_URI_TOO_LONG,
    parsing.LimitRequestHeaders: HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE,
    parsing.ExpectationFailed: HTTPStatus.EXPECTATION_FAILED,
    parsing.UnsupportedTransferCoding: HTTPStatus.NOT_IMPLEMENTED,
}


class GunicornWorker(ThreadWorker):  # type: ignore[misc]  # gunicorn publishes no types
    """Threaded worker whose threads never wait for a client, except those for large bodies."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._body_pool = ThreadPoolExecutor(BODY_THREADS, thread_name_prefix="body")
        self._ready: list[tuple[Any, ThreadPoolExecutor]] = []
        self._body_requests = 0
        self._responses: dict[Any, OngoingResponse] = {}
        """Responses whose clients take no more for now, by connection."""
        self._suspended = SuspendedResponses(self.method_queue.defer)
        self._resumed = 0
        self._lingering: dict[Any, float] = {}

    def init_process(self) -> None:
        """Start the process like gunicorn."""
        sys.setswitchinterval(_SWITCH_SECONDS)
        super().init_process()

    # Requests: read in the event loop until one is worth a thread.

    def wait_for_and_dispatch_events(self, timeout: float) -> None:
        """Handle events like gunicorn, and start threads only afterwards: they would keep the event loop waiting."""
        if self._resumed < _MAX_RESUMED:
            timeout = max(0.0, min(timeout, self._suspended.seconds_left()))
        super().wait_for_and_dispatch_events(timeout)
        ready, self._ready = self._ready, []
        for conn, pool in ready:
            self._submit(conn, pool)
        self._resume_suspended()

    def accept(self, listener: Any) -> None:
        """Accept all connections that wait."""
        before = -1
        while before < self.nr_conns < self.worker_connections:
            before = self.nr_conns
            super().accept(listener)

    def enqueue_req(self, conn: Any) -> None:
        """Read what has arrived, and take a thread once that suffices."""
        if getattr(conn, "intake", None) is None:
            self._begin_request(conn)
        progress = conn.intake.receive(conn.sock)
        if progress is Progress.COMPLETE:
            if conn.intake.is_liveness_probe:
                self._answer_here(conn)
            else:
                self._ready.append((conn, self.tpool))
        elif progress is Progress.STREAMING or (
            progress is Progress.HEAD and self._body_requests < _EARLY_BODY_THREADS
        ):
            self._body_requests += 1
            conn.reads_body = True
            self._ready.append((conn, self._body_pool))
        elif progress is Progress.CLOSED:
            self.nr_conns -= 1
            conn.close()
        elif progress is Progress.TOO_LONG:
            self._refuse(
                conn,
                UsageError(
                    f"The request's head has more than {MAX_HEAD_BYTES} bytes.",
                    hint=f"URLs may have at most {MAX_URL_BYTES} bytes, headers 8190.",
                ),
                HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE,
            )
        else:
            self._await_more(conn, progress)

    def _begin_request(self, conn: Any) -> None:
        conn.sock.setblocking(False)
        conn.reads_body = False
        conn.timeout = time.monotonic() + self.cfg.keepalive
        conn.began = None
        if conn.parser is None:
            conn.patience = _patience(conn.sock)
            conn.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, _UNSENT_BYTES)
        conn.intake = RequestIntake(conn.parser.unreader.take_buffered() if conn.parser else b"")

    def _await_more(self, conn: Any, progress: Progress) -> None:
        if progress is Progress.HEAD and conn.intake.is_held_back:
            conn.intake.request_body(conn.sock)
        if progress is not Progress.NOTHING and conn.began is None:
            conn.began = time.monotonic()
            conn.timeout = conn.began + conn.patience
        self.pending_conns.append(conn)
        self.poller.register(conn.sock, selectors.EVENT_READ, partial(self.on_pending_socket_readable, conn))

    def _answer_here(self, conn: Any) -> None:
        """Answer in the event loop what needs neither database nor storage, and must not queue behind what does."""
        self._hand_over(conn)
        done: Future[Any] = Future()
        done.set_result(self.handle(conn))
        self.method_queue.defer(self.finish_request, conn, done)

    def _submit(self, conn: Any, pool: ThreadPoolExecutor) -> None:
        self._hand_over(conn)
        self._run(conn, pool.submit(self.handle, conn))

    def _hand_over(self, conn: Any) -> None:
        """Give gunicorn's parser what has arrived."""
        conn.init()
        if not isinstance(conn.parser.unreader, PacedUnreader):
            conn.parser.unreader = PacedUnreader(conn.sock, conn.patience)
        conn.parser.unreader.renew()
        if not conn.reads_body:
            conn.parser.unreader.limit(_DRAIN_SECONDS)
        conn.parser.unreader.unread(conn.intake.received)
        conn.intake = None

    def _run(self, conn: Any, future: Future[Any]) -> None:
        future.add_done_callback(lambda done: self.method_queue.defer(self.finish_request, conn, done))

    def murder_pending(self) -> None:
        """Refuse requests that did not arrive in time; close connections that stalled, or asked nothing."""
        now = time.monotonic()
        for conn in [conn for conn in self.pending_conns if conn.timeout <= now]:
            self.pending_conns.remove(conn)
            self.poller.unregister(conn.sock)
            if conn.intake.received:
                self._refuse(conn, request_timeout(), HTTPStatus.REQUEST_TIMEOUT)
            else:
                self.nr_conns -= 1
                conn.close()
        for conn in [conn for conn, ends in self._lingering.items() if ends <= now]:
            self._end_lingering(conn)
        for conn, response in list(self._responses.items()):
            if response.expires <= now and response.is_stalled():
                del self._responses[conn]
                self.poller.unregister(conn.sock)
                self._run(conn, self.tpool.submit(self._abandon, response))

    def _refuse(self, conn: Any, error: Pt2hubError, status: HTTPStatus) -> None:
        """Answer a request that no thread has seen, and close its connection."""
        _log.info("request not understood", status=int(status), error=error.message)
        with contextlib.suppress(OSError):
            conn.sock.send(_as_bytes(problem(error, status=status)))
        self._linger(conn)

    # Responses: written as far as the client reads.

    def handle_request(self, req: Any, conn: Any) -> Any:
        """Handle a request like gunicorn; return the response if the client does not take it all at once."""
        self.cfg.pre_request(self, req)
        self.nr += 1
        return self._advance(OngoingResponse(self, req, conn))

    def _advance(self, response: OngoingResponse) -> bool | OngoingResponse:
        return response if response.advance() else response.keeps_connection

    def _keepalive_after(self, conn: Any, keepalive: bool | OngoingResponse) -> bool | OngoingResponse:
        """Return whether the connection can be reused, or the response that is not over."""
        if isinstance(keepalive, OngoingResponse):
            return keepalive
        conn.parser.unreader.limit(_DRAIN_SECONDS)
        kept: bool = super()._keepalive_after(conn, keepalive)
        return kept

    def _resume(self, conn: Any, response: OngoingResponse) -> bool | OngoingResponse:
        """Write on, in a thread."""
        try:
            return self._keepalive_after(conn, self._advance(response))
        except (OSError, StopIteration):  # the client is gone, or the response broke off
            return False

    def _abandon(self, response: OngoingResponse) -> bool:
        response.close()
        return False

    def _on_writable(self, conn: Any, _client: object) -> None:
        self.poller.unregister(conn.sock)
        self._run(conn, self.tpool.submit(self._resume, conn, self._responses.pop(conn)))

    def finish_request(self, conn: Any, fs: Future[Any]) -> None:
        """Finish a request like gunicorn, or wait until its client takes more of the response, or for a change."""
        if getattr(conn, "reads_body", False):
            self._body_requests -= 1
            conn.reads_body = False
        if getattr(conn, "is_resumed", False):
            self._resumed -= 1
            conn.is_resumed = False
        if not (fs.cancelled() or fs.exception()) and isinstance(response := fs.result(), OngoingResponse):
            if response.pause:
                self._suspended.add(conn, response, response.pause)
                self.poller.register(conn.sock, selectors.EVENT_READ, partial(self._on_hang_up, conn))
                return
            self._responses[conn] = response
            self.poller.register(conn.sock, selectors.EVENT_WRITE, partial(self._on_writable, conn))
            return
        if "close" not in vars(conn):
            conn.close = partial(self._close, conn, conn.close)
        super().finish_request(conn, fs)

    # Responses that wait for a change.

    def _resume_suspended(self) -> None:
        while self._resumed < _MAX_RESUMED and (due := self._suspended.take_due()):
            conn, response = due
            self._forget(conn)
            self._resumed += 1
            conn.is_resumed = True
            self._run(conn, self.tpool.submit(self._resume, conn, response))

    def _on_hang_up(self, conn: Any, _client: object) -> None:
        """Abandon a suspended response whose client is gone; a further request waits until this one is answered."""
        self._forget(conn)
        try:
            is_gone = not conn.sock.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
        except OSError:
            is_gone = True
        if is_gone:
            self._run(conn, self.tpool.submit(self._abandon, self._suspended.remove(conn)))

    def _forget(self, conn: Any) -> None:
        with contextlib.suppress(KeyError):  # it sent a further request, see `_on_hang_up`
            self.poller.unregister(conn.sock)

    # Connections: closed without resetting what the client has not read yet, and without a thread.

    def _close(self, conn: Any, close: Any, *, graceful: bool = False) -> None:
        if graceful:
            self.nr_conns += 1  # it is counted until it is closed
            self._linger(conn)
        else:
            close()

    def _linger(self, conn: Any) -> None:
        conn.lingering_bytes = 0
        self._lingering[conn] = time.monotonic() + _LINGER_SECONDS
        try:
            conn.sock.setblocking(False)
            conn.sock.shutdown(socket.SHUT_WR)
            self.poller.register(conn.sock, selectors.EVENT_READ, partial(self._on_lingering, conn))
        except (OSError, ValueError):
            self._end_lingering(conn)

    def _on_lingering(self, conn: Any, _client: object) -> None:
        """Discard what a client still sends, until it hangs up."""
        try:
            received = len(conn.sock.recv(_LINGER_BYTES))
        except BlockingIOError:
            return
        except OSError:
            received = 0
        conn.lingering_bytes += received
        if not received or conn.lingering_bytes >= _LINGER_BYTES:
            self._end_lingering(conn)

    def _end_lingering(self, conn: Any) -> None:
        del self._lingering[conn]
        with contextlib.suppress(OSError, KeyError, ValueError):
            self.poller.unregister(conn.sock)
        self.nr_conns -= 1
        conn.sock.close()

    # The end of the process.

    def set_accept_enabled(self, enabled: bool) -> None:
        """Enable or disable accepting; a stopping worker still answers pending connections and refuses later ones."""
        stopping = not (enabled or self.alive)
        if stopping and self._accepting:
            for listener in self.sockets:  # closing it would reset those that wait
                self.accept(listener)
        super().set_accept_enabled(enabled)
        if stopping:
            for listener in self.sockets:
                listener.close()

    def _cap_keepalive(self, deadline: float) -> None:
        """Limit keep-alive like gunicorn, also for connections without any request."""
        super()._cap_keepalive(deadline)
        for conn in self.pending_conns:
            conn.timeout = min(conn.timeout, deadline)

    def handle_exit(self, sig: Any, frame: Any) -> None:
        """Exit like gunicorn, and end all waits and streams, whose clients then ask another process."""
        waits.closing.set()
        super().handle_exit(sig, frame)
        self.method_queue.defer(self._suspended.wake_all)

    def handle_error(self, req: Any, client: socket.socket, addr: Any, exc: Exception) -> None:
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


def _patience(connection: socket.socket) -> float:
    """Return how long the client may stall: `server.up.port` sets it on the listening socket."""
    given = connection.getsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.calcsize("@ll"))
    return float(struct.unpack("@ll", given)[0])


def _as_bytes(answer: Response) -> bytes:
    fixed = {VERSION_HEADER: __version__, "Connection": "close"}
    lines = [
        f"HTTP/1.1 {answer.status}",
        *(f"{name}: {value}" for name, value in (*answer.headers.items(), *fixed.items())),
    ]
    return "\r\n".join([*lines, "", ""]).encode() + answer.get_data()
