"""Following of builds and logs, by event streams and by polling."""

from __future__ import annotations

import json
import math
import time
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from itertools import takewhile
from typing import TYPE_CHECKING, TypeVar

from pt2hub.client.builds import event_stream
from pt2hub.client.builds.events import changes, over
from pt2hub.client.http.paths import build_path, model_path
from pt2hub.domain.builds import BuildState
from pt2hub.domain.codec import decode
from pt2hub.errors import BadResponse, BuildActive, InvalidInput, Pt2hubError, TransientError
from pt2hub.rendering.sheets import build_title
from pt2hub.wire.responses import BuildView, LogPage, LogView, VersionView

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
    from typing import TypeAlias

    from pt2hub.client.builds.events import OnEvent
    from pt2hub.client.http.transport import Transport

    Left: TypeAlias = "Callable[[], float]"

T = TypeVar("T")
_MIN_POLL_S = 0.1
_MAX_POLL_S = 1.0
_POLL_GROWTH = 1.3
_OUTAGE_TIMEOUT_S = 60.0
"""Longest outage of the server that following survives."""
_AWAY = (HTTPStatus.BAD_GATEWAY, HTTPStatus.SERVICE_UNAVAILABLE, HTTPStatus.GATEWAY_TIMEOUT)
_STREAM_RETRY_S = 3.0
"""Pause before a failed stream is requested again."""
_KINDS: dict[str, type[BuildView | LogView]] = {"build": BuildView, "log": LogView}
_MIN_STREAM_S = 1.0
"""A shorter stream counts as failed, so that streams are not requested in a tight loop."""
_OPEN = ("waiting", "measuring")
"""States of a measurement with a pending job."""
_STREAM_MARGIN_S = 6.0
"""No stream is open this long before the deadline, because a stream may be silent for five seconds."""


class PollInterval:
    """The interval between polls: short while builds change, longer while they do not."""

    def __init__(self) -> None:
        self._pause = _MIN_POLL_S

    def pause(self, *, moved: bool) -> float:
        """Return the seconds to wait after a poll."""
        longer = min(self._pause * _POLL_GROWTH, _MAX_POLL_S)
        self._pause = _MIN_POLL_S if moved else longer
        return self._pause


@dataclass(slots=True)
class _StreamCursor:
    """The position of a log's reader: attempt and line. The attempt is None at first, and 0 if none had started."""

    attempt: int | None = None
    seq: int = 0

    def __str__(self) -> str:
        return "" if self.attempt is None else f"{self.attempt}.{self.seq}"

    def move(self, event_id: str) -> None:
        attempt, _, seq = event_id.partition(".")
        if attempt.isdecimal() and seq.isdecimal():
            self.attempt, self.seq = int(attempt), int(seq)


class Follower:
    """Follows builds and their logs over one transport."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self._shut_until = 0.0

    def version(
        self,
        version: VersionView,
        callbacks: Sequence[OnEvent] = (),
        *,
        left: Left,
        measured: bool = False,
    ) -> VersionView:
        """Wait until every build of a version is final; see `Versions.follow`.

        Args:
            measured: Also wait for the measuring jobs of its artifacts, unless a build did not succeed.
        """
        path = f"{model_path(version.model)}/versions/{version.number}"

        def look() -> VersionView:
            return _retry_outages(lambda: self._transport.fetch(VersionView, path))

        current = self._watch(look, lambda seen: seen.builds, callbacks, left, f"{path}/events")
        while measured and (jobs := _open_jobs(current)):
            self.builds(jobs, callbacks, left=left)
            current = look()
        return current

    def builds(
        self, build_ids: Sequence[str], callbacks: Sequence[OnEvent] = (), *, left: Left
    ) -> list[BuildView]:
        """Wait until builds or measuring jobs have ended; see `Builds.follow`."""
        ended: dict[str, BuildView] = {}

        def fetch(build_id: str) -> BuildView:
            if build_id not in ended:
                path = build_path(build_id)
                build = _retry_outages(lambda: self._transport.fetch(BuildView, path))
                if not over(build):
                    return build
                ended[build_id] = build
            return ended[build_id]

        return self._watch(lambda: [fetch(one) for one in build_ids], lambda seen: seen, callbacks, left)

    def _watch(
        self,
        look: Callable[[], T],
        builds_of: Callable[[T], Sequence[BuildView]],
        callbacks: Sequence[OnEvent],
        left: Left,
        stream: str | None = None,
    ) -> T:
        """Poll until every build has ended.

        Args:
            look: Requests the current state.
            callbacks: Called for every change, in order.
            left: Returns the seconds left to wait.
            stream: Path of an event stream to read between polls; None for polling only.

        Raises:
            BuildActive: The timeout expired before every build ended; nothing is cancelled.
        """
        seen: dict[str, BuildView] = {}
        pace = PollInterval()

        def report(builds: Iterable[BuildView]) -> bool:
            """Call the callbacks; return whether something changed."""
            changed = False
            for build in builds:
                for event in changes(seen.get(build.id), build):
                    changed = True
                    for callback in callbacks:
                        callback(event)
                seen[build.id] = build
            return changed

        while True:
            report(self._streamed_builds(stream, left))
            current = look()
            moved = report(builds_of(current))
            waiting = [build for build in builds_of(current) if not over(build)]
            if not waiting:
                return current
            seconds = left()
            if seconds <= 0:
                raise _still_active(waiting)
            if not stream or not self._streams or seconds <= _STREAM_MARGIN_S:
                time.sleep(min(seconds, pace.pause(moved=moved)))

    def log(
        self,
        build_id: str,
        *,
        summary: bool = False,
        on_build: Callable[[BuildView], object] | None = None,
    ) -> Iterator[LogView]:
        """Yield the lines of a build's log as they arrive, across attempts, until the build ends."""
        path = build_path(build_id)
        cursor, pace = _StreamCursor(), PollInterval()
        while True:
            yield from self._streamed_lines(path, cursor, summary=summary, on_build=on_build)
            build = _retry_outages(lambda: self._transport.fetch(BuildView, path))
            before = str(cursor)
            yield from self._polled_lines(build_id, cursor, build.attempt, summary=summary)
            if on_build:
                on_build(build)
            if over(build):
                return
            if not self._streams:
                time.sleep(pace.pause(moved=str(cursor) != before))

    def lines(
        self, build_id: str, *, after: int = 0, attempt: int | None = None, summary: bool = False
    ) -> Iterator[LogView]:
        """Yield the present lines after a position, page by page; see `Builds.logs`."""
        while True:
            page = self._page(build_id, after=after, attempt=attempt, summary=summary)
            if not page.lines:
                return
            yield from page.lines
            after = page.lines[-1].seq
            attempt = attempt or page.attempt  # a new attempt may start meanwhile

    def _page(self, build_id: str, *, after: int, attempt: int | None, summary: bool) -> LogPage:
        query: dict[str, str | int] = {"after": after}
        query |= {"attempt": attempt} if attempt else {}
        query |= {"summary": "true"} if summary else {}
        return self._transport.fetch(LogPage, f"{build_path(build_id)}/logs", query)

    @property
    def _streams(self) -> bool:
        """Whether to request a stream."""
        return time.monotonic() >= self._shut_until

    def _streamed_builds(self, path: str | None, left: Left) -> Iterator[BuildView]:
        if path is None:
            return
        with closing(self._stream_events(path, left=left)) as events:
            yield from (said for _, said in events if isinstance(said, BuildView))

    def _streamed_lines(
        self,
        path: str,
        cursor: _StreamCursor,
        *,
        summary: bool,
        on_build: Callable[[BuildView], object] | None,
    ) -> Iterator[LogView]:
        query = "?summary=true" if summary else ""
        with closing(self._stream_events(f"{path}/events{query}", last=str(cursor))) as events:
            for event_id, said in events:
                if isinstance(said, LogView):
                    yield said
                elif on_build:
                    on_build(said)
                cursor.move(event_id)

    def _polled_lines(
        self, build_id: str, cursor: _StreamCursor, latest: int, *, summary: bool
    ) -> Iterator[LogView]:
        """Yield the present lines after the cursor: the rest of its attempt, and all later attempts."""
        first = latest if cursor.attempt is None else max(cursor.attempt, min(latest, 1))
        for attempt in range(first, latest + 1):
            if attempt != cursor.attempt:
                cursor.attempt, cursor.seq = attempt, 0
            wanted = attempt if attempt < latest else None
            while True:
                look = partial(self._page, build_id, after=cursor.seq, attempt=wanted, summary=summary)
                page = _retry_outages(look)
                if not page.lines or page.attempt not in (None, attempt) or (wanted and not page.attempt):
                    break  # the end, or a server that serves only the latest attempt, which follows
                for line in page.lines:
                    yield line
                    cursor.seq = line.seq

    def _stream_events(
        self, path: str, last: str = "", *, left: Left = lambda: math.inf
    ) -> Generator[tuple[str, BuildView | LogView], None, None]:
        """Yield the ids and values of a stream's events; nothing if there is no stream, so that the caller polls.

        Args:
            left: Returns the seconds left to wait; the stream is closed a little before.
        """
        if not self._streams or left() <= _STREAM_MARGIN_S:
            return
        began = time.monotonic()
        pieces = self._transport.events(path, last=last)
        try:
            for event in event_stream.parse(takewhile(lambda _: left() > _STREAM_MARGIN_S, pieces)):
                if event.name in _KINDS:
                    yield event.id, decode(_KINDS[event.name], json.loads(event.data))
        except ValueError:  # not JSON: something on the way changes the stream
            self._shut_until = math.inf
        except Pt2hubError as error:
            self._shut_until = time.monotonic() + _STREAM_RETRY_S if _is_outage(error) else math.inf
        else:
            if time.monotonic() < began + _MIN_STREAM_S:
                self._shut_until = time.monotonic() + _STREAM_RETRY_S


def time_left(timeout: float | None) -> Left:
    """Return a function that returns the seconds left; infinity without a timeout.

    Raises:
        InvalidInput: The timeout is not a number.
    """
    number = isinstance(timeout, int | float) and not isinstance(timeout, bool) and not math.isnan(timeout)
    if timeout is not None and not number:
        raise InvalidInput(
            f"timeout must be a number of seconds or None, got {timeout!r:.80}",
            where="timeout",
            hint="None waits without a limit.",
        )
    until = math.inf if timeout is None else time.monotonic() + timeout
    return lambda: until - time.monotonic()


def _open_jobs(version: VersionView) -> list[str]:
    """Return the ids of a version's pending measuring jobs; none if a build did not succeed."""
    if any(build.state != BuildState.SUCCEEDED for build in version.builds):
        return []
    found = [build.measurement for build in version.builds if build.measurement]
    return [status.job for status in found if status.job and status.state in _OPEN]


def _still_active(waiting: Sequence[BuildView]) -> BuildActive:
    states = "; ".join(f"{build_title(build)} is {build.state}" for build in waiting)
    return BuildActive(
        f"Timeout expired: {states}",
        where=f"{waiting[0].model}@{waiting[0].number}",
        hint="Nothing was cancelled. Wait again, or follow the log: "
        + "; ".join(f"pt2hub logs -f {build.id}" for build in waiting),
        context={"builds": [build.id for build in waiting]},
    )


def _retry_outages(look: Callable[[], T]) -> T:
    """Call a function, again while its errors look like a restart of the server."""
    deadline = time.monotonic() + _OUTAGE_TIMEOUT_S
    while True:
        try:
            return look()
        except (TransientError, BadResponse) as exc:
            if time.monotonic() > deadline or not _is_outage(exc):
                raise
            time.sleep(1)


def _is_outage(error: Pt2hubError) -> bool:
    """Return whether an error may come from a restart, including a proxy's answers."""
    return isinstance(error, TransientError) or error.context.get("status") in _AWAY
