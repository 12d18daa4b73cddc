"""Logs of builds, and builds as they change: pages for who asks, server-sent events for who follows.

A follower holds a thread, so there are only so many, each stream ends after a while, and who wants more resumes by
`Last-Event-ID`. While nothing happens a stream waits for a notification and holds no connection of the database.
"""

from __future__ import annotations

import select
import threading
import time
from typing import TYPE_CHECKING, Any

import structlog
from flask import Response, current_app, request
from flask_openapi3.blueprint import APIBlueprint

from pt2hub.errors import Pt2hubError, TransientError
from pt2hub.server.api.context import container, render
from pt2hub.server.api.looks import PAGE, BuildLooks, BuildNews, Place, VersionLooks, event
from pt2hub.server.api.shapes import (
    EVENTS,
    MODELS,
    TEXT,
    BuildPath,
    EventsQuery,
    Lines,
    LogQuery,
    LogsQuery,
    VersionPath,
)
from pt2hub.server.followers import Followers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from flask import Flask

    from pt2hub.server.api.looks import Looks

EVENT_TYPE = "text/event-stream"
MAX_FOLLOWERS = 8
"""Half of the threads of a process (`serve.THREADS`): the others answer requests."""
STREAM_SECONDS = 30.0
KEEP_ALIVE_SECONDS = 5.0
SAFETY_SECONDS = 2.0
"""How long a follower believes that no notification means no change."""
GAP_SECONDS = 0.1
"""Between two looks, however often a build changes."""
STALLED_SECONDS = 10.0
"""How long a reader may take nothing, as one that Ctrl-Z stopped: longer and it would hold its place for ever."""
_TICK_SECONDS = 0.25
_KEY = "pt2hub.followers"
_HANG_UP = select.POLLHUP | select.POLLERR | select.POLLRDHUP
_log = structlog.get_logger(__name__)

closing = threading.Event()
"""Set when this process stops: every stream ends, and its reader asks another process."""

routes = APIBlueprint("streams", __name__, url_prefix="/api/v1", abp_tags=[MODELS])


@routes.get("/builds/<id>/logs", responses={200: Lines})
def logs(path: BuildPath, query: LogsQuery) -> Response:
    """Lines of an attempt's log, the latest one's where none is named; at most a thousand."""
    attempt, lines = container().logs.lines(
        path.id, attempt=query.attempt, after=query.after, limit=PAGE, summary=query.summary
    )
    return render({"attempt": attempt, "lines": lines})


@routes.get("/builds/<id>/log", responses={200: {"content": TEXT}})
def log(path: BuildPath, query: LogQuery) -> Response:
    """The whole log of an attempt as text, to be read or kept."""
    text = container().logs.text(path.id, query.attempt)
    return Response(text, content_type="text/plain; charset=utf-8")


@routes.get("/builds/<id>/events", responses={200: {"content": EVENTS}})
def build_events(path: BuildPath, query: EventsQuery) -> Response:
    """Follows a build: `build` at each change, `log` for each line, `end` when it is over and every line was sent.

    The id of an event resumes after it, as `Last-Event-ID`. A stream ends after 30 seconds; then resume.
    For who reads the log elsewhere, `lines=false` sends `lines`, with the attempt and its last line, for all of them.
    """
    services = container()
    services.builds.view(path.id)  # what does not exist is answered as such, before anything is sent
    place = Place.parse(request.headers.get("Last-Event-ID", ""))
    looks = BuildLooks(services, path.id, place, summary=query.summary)
    return _stream(looks if query.lines else BuildNews(services, path.id), [path.id])


@routes.get("/models/<team>/<name>/versions/<number>/events", responses={200: {"content": EVENTS}})
def version_events(path: VersionPath) -> Response:
    """Follows the builds of a version: `build` at each change, `end` when all are over; no lines of logs.

    A stream ends after 30 seconds; the next one begins with every build as it is then.
    """
    services = container()
    model = f"{path.team}/{path.name}"
    version = services.publish.version(model, path.number)
    looks = VersionLooks(services, model, path.number)
    return _stream(looks, [build.id for build in version.builds])


def followers() -> Followers:
    """The current application's followers."""
    known = current_app.extensions
    if _KEY not in known:  # two threads may both make one: the first stays, nothing is open yet
        known.setdefault(_KEY, Followers(container().database_url, most=MAX_FOLLOWERS))
    found: Followers = known[_KEY]
    return found


def stop(app: Flask) -> None:
    """Ends an application's listener; a process that ends needs no such thing."""
    found: Followers | None = app.extensions.pop(_KEY, None)
    if found:
        found.close()


def _stream(looks: Looks, build_ids: list[str]) -> Response:
    all_of_them = followers()
    give_back = all_of_them.take_place()
    connection = request.environ.get("gunicorn.socket") or request.environ.get("werkzeug.socket")

    def chunks() -> Iterator[bytes]:
        if connection is not None:
            connection.settimeout(STALLED_SECONDS)  # the server sets it anew for the next request
        try:
            with all_of_them.following(build_ids) as wake:
                yield from _paced(looks, wake, lambda: _gone(connection))
        except TransientError as error:  # the reader resumes, and is told then
            _log.warning("a stream ended early", builds=build_ids, error=str(error))
        except Pt2hubError as error:
            _log.error("a stream failed", builds=build_ids, code=error.code, exc_info=error)

    response = Response(chunks(), content_type=EVENT_TYPE)
    response.call_on_close(give_back)  # also where nobody ever asked for the first chunk
    response.headers["Cache-Control"] = "no-store"
    response.headers["X-Accel-Buffering"] = "no"  # nginx would keep events back until they fill a buffer
    return response


def _paced(looks: Looks, wake: threading.Event, gone: Callable[[], bool]) -> Iterator[bytes]:
    """Looks when woken, and now and then by itself, until there is nothing more to see or the time is over."""
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
            if closing.is_set() or now > ends or gone():  # also where a build is busy all the time
                return
            if now > spoke + KEEP_ALIVE_SECONDS:
                yield b": still here\n\n"
                spoke = now


def _due(wake: threading.Event, looked: float) -> bool:
    """Waits a moment; returns whether it is time for the next look."""
    if wake.wait(_TICK_SECONDS):
        time.sleep(max(0.0, looked + GAP_SECONDS - time.monotonic()))
        return True
    return time.monotonic() > looked + SAFETY_SECONDS


def _gone(connection: Any) -> bool:  # noqa: ANN401  # a socket, as the server has it
    """Whether the reader hung up: else its thread is held until two writes have failed."""
    if connection is None:
        return False
    poll = select.poll()
    try:
        poll.register(connection, _HANG_UP)
        return bool(poll.poll(0))
    except (OSError, ValueError):  # closed by the server
        return True
