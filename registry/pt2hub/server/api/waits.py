"""Long polls: requests that are answered at a change, or after a while, and hold no thread until then.

A waiting request is suspended, and after each pause it is asked anew from its beginning: its token may have been revoked, and
what it is about may be gone. Servers without suspension, such as those of tests, wait in the request's thread.
"""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from flask import Response, current_app, g, request

from pt2hub.server.api.client_address import client_address
from pt2hub.server.api.connections.suspension import SUSPENSION
from pt2hub.server.api.context import container, context, render
from pt2hub.server.waiters import Waiters

if TYPE_CHECKING:
    from collections.abc import Callable

    from flask import Flask

    from pt2hub.server.api.connections.suspension import Suspension
    from pt2hub.server.waiters import Pause, Waiter

T = TypeVar("T")
closing = threading.Event()
"""Set when this process stops: waits are answered at once, streams end, and their clients ask another process."""
_KEY = "pt2hub.waiters"
_TICK_SECONDS = 0.25
_ETAG_CHARS = 32


@dataclass(frozen=True, slots=True)
class Look:
    """What a waiting request sees.

    Attributes:
        answer: The response to it.
        is_news: Whether that is what the client waits for.
        topics: What to watch for changes, see `Waiter.watch`.
    """

    answer: Response
    is_news: bool
    topics: Sequence[str]


def answer_at_change(look: Callable[[], Look], seconds: float) -> Response:
    """Return the answer to a look with news, or to the last look when the time is over or the process stops.

    Args:
        seconds: How long to wait; 0 for one look.

    Raises:
        Busy: There is no news, and too many requests wait in this process.
        QuotaExceeded: There is no news, and too many of the sender's requests wait.
    """
    suspension = _suspension()
    waiter = suspension.waiter if suspension else None
    ends = waiter.ends if waiter else time.monotonic() + seconds
    try:
        while True:
            if waiter:
                waiter.wake.clear()
            seen = look()
            if seen.is_news or time.monotonic() >= ends or closing.is_set():
                return seen.answer
            waiter = waiter or open_waiter(seconds)
            if waiter.watch(seen.topics):
                continue  # it may have changed before it was watched
            pause = waiter.pause(until=ends)
            if suspension:
                suspension.pause = pause
                return Response(status=204)  # never sent
            wait_here(pause)
    finally:
        if waiter and not suspension:
            waiter.close()


def answer_if_changed(
    view: Callable[[], T], topics: Callable[[T], Sequence[str]], *, seconds: float
) -> Response:
    """Return a view with its ETag; to a client that has the same one, a change of it, or 304 when the time is over."""

    def look() -> Look:
        found = view()
        answer = render(found)
        etag = hashlib.sha256(answer.get_data()).hexdigest()[:_ETAG_CHARS]
        is_news = not request.if_none_match.contains_weak(etag)
        if not is_news:
            answer = Response(status=304)
        answer.set_etag(etag, weak=True)  # compressed or not
        return Look(answer, is_news, topics(found))

    return answer_at_change(look, seconds)


def open_waiter(seconds: float) -> Waiter:
    """Admit the current request among the waiters; it is closed with the response if the server suspends responses.

    Raises:
        Busy: Too many requests wait in this process.
        QuotaExceeded: Too many of the sender's requests wait.
    """
    opened = waiters().open(_sender(), seconds=seconds)
    if suspension := _suspension():
        suspension.waiter = opened
    return opened


def waiters() -> Waiters:
    """Return the current application's waiters."""
    known = current_app.extensions
    if _KEY not in known:  # two threads may both create one; the first is kept, and nothing is open yet
        limit = context().config.limits.waits_per_token
        known.setdefault(_KEY, Waiters(container().database_url, most_per_sender=limit))
    found: Waiters = known[_KEY]
    return found


def stop(app: Flask) -> None:
    """Close an application's waiters; not needed when the process ends."""
    found: Waiters | None = app.extensions.pop(_KEY, None)
    if found:
        found.close()


def is_asked_anew() -> bool:
    """Return whether the current request was suspended before, and is one request for those who count."""
    suspension = _suspension()
    return suspension is not None and suspension.waiter is not None


def permission_check() -> Callable[[], None]:
    """Return a function that raises if the current request were refused now; for responses that take a while."""
    app: Any = current_app
    app, environ = app._get_current_object(), request.environ  # noqa: SLF001  # Flask's way to pass it to another thread

    def check() -> None:
        with app.request_context(dict(environ)):
            app.preprocess_request()

    return check


def wait_here(pause: Pause) -> None:
    """Wait in this thread until a pause is over or the process stops."""
    while not closing.is_set() and (left := pause.latest - time.monotonic()) > 0:
        if pause.wake.wait(min(left, _TICK_SECONDS)):
            time.sleep(max(0.0, pause.earliest - time.monotonic()))
            return


def _suspension() -> Suspension | None:
    found: Suspension | None = request.environ.get(SUSPENSION)
    return found


def _sender() -> str:
    """Return whose requests count together: those of a token that was verified, else those of an address."""
    header = request.headers.get("Authorization", "")
    if header and "actor" in g:
        return hashlib.sha256(header.encode()).hexdigest()
    return client_address()
