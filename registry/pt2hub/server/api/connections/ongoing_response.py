"""Responses that leave their thread while the client does not read, or while there is nothing to say yet."""

from __future__ import annotations

import errno
import fcntl
import struct
import termios
import time
from datetime import datetime
from socket import MSG_DONTWAIT
from typing import TYPE_CHECKING, Any

import structlog
from gunicorn.http import wsgi

from pt2hub.server.api.connections.suspension import SUSPENSION, Suspension

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Iterator
    from socket import socket

    from gunicorn.workers.gthread import ThreadWorker

    from pt2hub.server.waiters import Pause

STALLED_SECONDS = 60.0
"""How long a client may read nothing before its connection is closed."""
_log = structlog.get_logger(__name__)


class Outbox:
    """A client's connection as gunicorn writes to it; what the client does not take yet is kept.

    Args:
        connection: The client's.
    """

    def __init__(self, connection: socket) -> None:
        self._connection = connection
        self._kept = memoryview(b"")
        self.stalled_seconds = STALLED_SECONDS

    @property
    def is_full(self) -> bool:
        """Whether bytes are kept."""
        return bool(self._kept)

    def settimeout(self, seconds: float) -> None:
        """Limit how long the client may read nothing."""
        self.stalled_seconds = seconds

    def fileno(self) -> int:
        """Return the connection's file descriptor."""
        return self._connection.fileno()

    def send(self, data: bytes) -> None:
        """Send like `sendall`."""
        self.sendall(data)

    def sendall(self, data: bytes) -> None:
        """Send what the client takes without waiting, and keep the rest."""
        if self._kept:
            self._kept = memoryview(bytes(self._kept) + data)
        else:
            self._kept = memoryview(data)
            self.flush()

    def flush(self) -> None:
        """Send what was kept, as far as the client takes it."""
        while self._kept:
            try:
                self._kept = self._kept[self._connection.send(self._kept, MSG_DONTWAIT) :]
            except BlockingIOError:
                return

    def unread_bytes(self) -> int:
        """Return how many sent bytes the client has not acknowledged."""
        found = fcntl.ioctl(self._connection, termios.TIOCOUTQ, struct.pack("i", 0))
        return int(struct.unpack("i", found)[0])


class OngoingResponse:
    """A response, written as far as the client reads it, and suspended while the application waits for a change.

    Args:
        worker: gunicorn's worker.
        request: gunicorn's request.
        connection: gunicorn's connection.
    """

    def __init__(self, worker: ThreadWorker, request: Any, connection: Any) -> None:
        self.outbox = Outbox(connection.sock)
        self._worker, self._request, self._connection = worker, request, connection
        self._suspension = Suspension()
        self._create()
        self._steps = self._write()
        self._began = datetime.now()  # noqa: DTZ005  # as gunicorn's access log takes it
        self._unread = 0
        self.expires = 0.0

    @property
    def pause(self) -> Pause | None:
        """Until when the response is suspended; None if it waits for its client."""
        return self._suspension.pause

    def advance(self) -> bool:
        """Write on until the client takes no more, or the response is suspended.

        Returns:
            Whether that happened; otherwise the response is complete.

        Raises:
            ConnectionResetError: The client is gone.
            StopIteration: The response failed after its beginning was sent.
        """
        try:
            if next(self._steps, None) is None:
                return False
        except OSError:
            raise
        except Exception as error:
            if not self._answer.headers_sent:
                raise
            _log.exception("a response broke off", path=self._environ.get("PATH_INFO"), exc_info=error)
            raise ConnectionResetError(errno.ECONNRESET, "the response broke off") from error
        if self.pause is None:
            self._unread = self.outbox.unread_bytes()
            self.expires = time.monotonic() + self.outbox.stalled_seconds
        return True

    @property
    def keeps_connection(self) -> bool:
        """Whether the connection can be used for another request."""
        return not self._answer.should_close()

    def is_stalled(self) -> bool:
        """Whether the client has read nothing for a while; called when the response expires."""
        unread = self.outbox.unread_bytes()
        if unread >= self._unread:
            return True
        self._unread, self.expires = unread, time.monotonic() + self.outbox.stalled_seconds
        return False

    def close(self) -> None:
        """Abandon the response."""
        self._steps.close()

    def _create(self) -> None:
        connection, worker = self._connection, self._worker
        self._answer, self._environ = wsgi.create(
            self._request, self.outbox, connection.client, connection.server, worker.cfg
        )
        self._environ |= {"wsgi.multithread": True, SUSPENSION: self._suspension}
        if not worker.alive or len(worker.keepalived_conns) >= worker.max_keepalived:
            self._answer.force_close()

    def _write(self) -> Generator[Outbox, None, None]:
        """Write the response; yield whenever the client takes no more, and during pauses."""
        items: Iterable[bytes] = ()
        try:
            items = self._worker.wsgi(self._environ, self._answer.start_response)
            while self.pause:  # before the response has begun
                _close(items)
                yield from self._suspended()
                self._create()
                items = self._worker.wsgi(self._environ, self._answer.start_response)
            for item in items:
                self._answer.write(item)
                yield from self._emptied()
                yield from self._suspended()
            self._answer.close()
            yield from self._emptied()
        finally:
            self._worker.log.access(
                self._answer,
                self._request,
                self._environ,
                datetime.now() - self._began,  # noqa: DTZ005
            )
            _close(items)
            self._suspension.close()

    def _suspended(self) -> Iterator[Outbox]:
        if self.pause:
            yield self.outbox
            self._suspension.pause = None

    def _emptied(self) -> Iterator[Outbox]:
        while self.outbox.is_full:
            yield self.outbox
            self.outbox.flush()


def _close(items: Iterable[bytes]) -> None:
    if hasattr(items, "close"):
        items.close()
