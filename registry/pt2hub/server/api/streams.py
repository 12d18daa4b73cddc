"""Build logs, and streams of build events (server-sent events).

A stream occupies a thread, so their number is limited and each ends after a while; browsers reconnect by themselves.
An idle stream waits for a notification without a database connection.
"""

from __future__ import annotations

import select
import threading
import time
from typing import TYPE_CHECKING, Any

import structlog
from flask import Response, current_app, request
from flask_openapi3.blueprint import APIBlueprint
from pydantic import RootModel

from pt2hub.errors import Pt2hubError, TransientError
from pt2hub.server.api.build_events import (
    BuildChanges,
    event,
)
from pt2hub.server.api.context import container, render
from pt2hub.server.api.request_shapes import (
    EVENTS,
    MODELS,
    TEXT,
    BuildPath,
    LogQuery,
    LogsQuery,
)
from pt2hub.server.build_followers import Followers
from pt2hub.wire.responses import LogPage

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from flask import Flask

EVENT_TYPE = "text/event-stream"
PAGE = 1000
"""Maximum number of log lines per response."""
MAX_FOLLOWERS = 8
"""Half of a process's threads (`gunicorn_server.THREADS`); the others serve requests."""
STREAM_SECONDS = 30.0
KEEP_ALIVE_SECONDS = 5.0
SAFETY_SECONDS = 2.0
"""Maximum time between polls without a notification."""
GAP_SECONDS = 0.1
"""Minimum time between polls."""
STALLED_SECONDS = 10.0
"""Write timeout of a stream, so that a stalled reader (stopped with Ctrl-Z) frees its thread."""
_TICK_SECONDS = 0.25
_KEY = "pt2hub.followers"
_HANG_UP = select.POLLHUP | select.POLLERR | select.POLLRDHUP
_log = structlog.get_logger(__name__)

closing = threading.Event()
"""Set when this process stops: all streams end, and their readers reconnect to another process."""

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
    return _stream(BuildChanges(services, path.id), path.id)


def followers() -> Followers:
    """Return the current application's followers."""
    known = current_app.extensions
    if _KEY not in known:  # two threads may both create one; the first is kept, and nothing is open yet
        known.setdefault(_KEY, Followers(container().database_url, most=MAX_FOLLOWERS))
    found: Followers = known[_KEY]
    return found


def stop(app: Flask) -> None:
    """Close an application's followers; not needed when the process ends."""
    found: Followers | None = app.extensions.pop(_KEY, None)
    if found:
        found.close()


def _stream(looks: BuildChanges, build_id: str) -> Response:
    all_of_them = followers()
    give_back = all_of_them.acquire()
    connection = request.environ.get("gunicorn.socket") or request.environ.get("werkzeug.socket")

    def chunks() -> Iterator[bytes]:
        if connection is not None:
            connection.settimeout(STALLED_SECONDS)  # the server sets it anew for the next request
        try:
            with all_of_them.following(build_id) as wake:
                yield from _poll(looks, wake, lambda: _gone(connection))
        except TransientError as error:  # the reader resumes and gets the error then
            _log.warning("a stream ended early", build=build_id, error=str(error))
        except Pt2hubError as error:
            _log.error("a stream failed", build=build_id, code=error.code, exc_info=error)

    response = Response(chunks(), content_type=EVENT_TYPE)
    response.call_on_close(give_back)  # also called if the first chunk was never requested
    response.headers["Cache-Control"] = "no-store"
    response.headers["X-Accel-Buffering"] = "no"  # nginx would buffer events
    return response


def _poll(looks: BuildChanges, wake: threading.Event, gone: Callable[[], bool]) -> Iterator[bytes]:
    """Poll on notifications and periodically until the end or the time limit."""
    ends = time.monotonic() + STREAM_SECONDS
    spoke = time.monotonic()
    yield b"retry: 1000\n\n"
    while True:
        wake.clear()
        if (yield from looks.look()):
            yield event("end", {})
            return
        looked, due = time.monotonic(), False
        while not due:
            due = _due(wake, looked)
            now = time.monotonic()
            if closing.is_set() or now > ends or gone():  # also for builds that change all the time
                return
            if now > spoke + KEEP_ALIVE_SECONDS:
                yield b": still here\n\n"
                spoke = now


def _due(wake: threading.Event, looked: float) -> bool:
    """Wait briefly; return whether the next poll is due."""
    if wake.wait(_TICK_SECONDS):
        time.sleep(max(0.0, looked + GAP_SECONDS - time.monotonic()))
        return True
    return time.monotonic() > looked + SAFETY_SECONDS


def _gone(connection: Any) -> bool:
    """Return whether the reader disconnected; otherwise the thread would be held until two writes fail."""
    if connection is None:
        return False
    poll = select.poll()
    try:
        poll.register(connection, _HANG_UP)
        return bool(poll.poll(0))
    except (OSError, ValueError):  # closed by the server
        return True
