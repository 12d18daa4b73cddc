"""Build logs, and streams of build events (server-sent events).

A stream is suspended between changes and holds neither a thread nor a database connection. Each ends after a while; browsers
reconnect by themselves.
"""

from __future__ import annotations

import select
import time
from typing import TYPE_CHECKING

import structlog
from flask import Response, request
from flask_openapi3.blueprint import APIBlueprint
from pydantic import RootModel

from pt2hub.errors import Pt2hubError, TransientError, UsageError
from pt2hub.server.api import waits
from pt2hub.server.api.build_events import (
    BuildChanges,
    event,
)
from pt2hub.server.api.connections.suspension import SUSPENSION
from pt2hub.server.api.context import container, render
from pt2hub.server.api.request_shapes import (
    EVENTS,
    MODELS,
    TEXT,
    BuildPath,
    LogQuery,
    LogsQuery,
)
from pt2hub.wire.responses import LogPage

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pt2hub.server.api.connections.suspension import Suspension
    from pt2hub.server.waiters import Waiter

EVENT_TYPE = "text/event-stream"
PAGE = 1000
"""Maximum number of log lines per response."""
STREAM_SECONDS = 30.0
KEEP_ALIVE_SECONDS = 5.0
STALLED_SECONDS = 10.0
"""Write timeout of a stream, so that a stalled reader (stopped with Ctrl-Z) does not keep its place."""
_ENDING_SECONDS = 0.5
"""Longest pause after a build has ended, while the end of its log is awaited."""
_HANG_UP = select.POLLHUP | select.POLLERR | select.POLLRDHUP
_log = structlog.get_logger(__name__)

routes = APIBlueprint("streams", __name__, url_prefix="/api/v1", abp_tags=[MODELS])


@routes.get("/builds/<id>/logs", responses={200: RootModel[LogPage]})
def logs(path: BuildPath, query: LogsQuery) -> Response:
    """Return lines of an attempt's log, by default of the latest attempt; at most a thousand."""
    log = container().logs
    attempt, lines = log.lines(
        path.id, attempt=query.attempt, after=query.after, limit=PAGE, summary=query.summary
    )
    complete = not lines and log.complete(path.id, attempt)
    return render({"attempt": attempt, "lines": lines, "complete": complete})


@routes.get("/builds/<id>/log", responses={200: {"content": TEXT}})
def log(path: BuildPath, query: LogQuery) -> Response:
    """Return the complete log of an attempt as text."""
    text = container().logs.text(path.id, query.attempt)
    return Response(text, content_type="text/plain; charset=utf-8")


@routes.get("/builds/<id>/events", responses={200: {"content": EVENTS}})
def build_events(path: BuildPath) -> Response:
    """Stream a build's events: `build` for each change, `lines` with the attempt and its last line when the log grew, `end` when the build and its log have ended.

    A stream ends after 30 seconds; the next one starts with the current state.
    """
    services = container()
    services.builds.view(path.id)  # raises NotFound before anything is sent
    stream = _Stream(BuildChanges(services, path.id), path.id)
    response = Response(stream.pieces(), content_type=EVENT_TYPE)
    response.call_on_close(stream.waiter.close)  # also called if the first piece was never requested
    response.headers["Cache-Control"] = "no-store"
    response.headers["X-Accel-Buffering"] = "no"  # nginx would buffer events
    return response


class _Stream:
    """A response to the current request that goes on after it.

    Attributes:
        waiter: The request's.
    """

    def __init__(self, looks: BuildChanges, build_id: str) -> None:
        self.waiter: Waiter = waits.open_waiter(STREAM_SECONDS)
        self._looks, self._build_id = looks, build_id
        self._suspension: Suspension | None = request.environ.get(SUSPENSION)
        self._connection = request.environ.get("gunicorn.socket") or request.environ.get("werkzeug.socket")
        self._check_permission = waits.permission_check()

    def pieces(self) -> Iterator[bytes]:
        """Yield the stream."""
        if self._connection is not None:
            self._connection.settimeout(STALLED_SECONDS)  # the server sets it anew for the next request
        try:
            yield from self._follow()
        except TransientError as error:  # the reader resumes and gets the error then
            _log.warning("a stream ended early", build=self._build_id, error=str(error))
        except UsageError as error:  # likewise: the token was revoked, for example
            _log.info("a stream ended early", build=self._build_id, error=str(error))
        except Pt2hubError as error:
            _log.error("a stream failed", build=self._build_id, code=error.code, exc_info=error)

    def _follow(self) -> Iterator[bytes]:
        """Look after notifications and periodically until the end or the time limit."""
        wake, spoke = self.waiter.wake, time.monotonic()
        self.waiter.watch([self._build_id])
        yield b"retry: 1000\n\n"
        while True:
            wake.clear()
            if (yield from self._looks.look()):
                yield event("end", {})
                return
            recheck = self.waiter.pause(until=self.waiter.ends).latest
            if self._looks.is_ending:
                recheck = min(recheck, time.monotonic() + _ENDING_SECONDS)
            is_due = False
            while not is_due:
                yield from self._pause(min(recheck, spoke + KEEP_ALIVE_SECONDS))
                now = time.monotonic()
                if waits.closing.is_set() or now >= self.waiter.ends or self._is_gone():
                    return
                if now >= spoke + KEEP_ALIVE_SECONDS:  # also for builds that change all the time
                    yield b": still here\n\n"
                    spoke = now
                is_due = wake.is_set() or now >= recheck
            self._check_permission()

    def _pause(self, until: float) -> Iterator[bytes]:
        pause = self.waiter.pause(until=until)
        if self._suspension:
            self._suspension.pause = pause
            yield b""
        else:
            waits.wait_here(pause)

    def _is_gone(self) -> bool:
        """Return whether the reader disconnected; otherwise a thread would be held until two writes fail."""
        if self._connection is None or self._suspension:
            return False
        poll = select.poll()
        try:
            poll.register(self._connection, _HANG_UP)
            return bool(poll.poll(0))
        except (OSError, ValueError):  # closed by the server
            return True
