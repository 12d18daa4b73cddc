"""Following builds: by the server's streams, and by asking again and again where it has none to give."""

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
from urllib.parse import quote

from pt2hub.client import streaming
from pt2hub.client.events import changes, over
from pt2hub.domain.codec import decode
from pt2hub.domain.names import parse_model_name
from pt2hub.errors import BadResponse, BuildActive, Pt2hubError, TransientError
from pt2hub.wire.shapes import BuildView, LogView, VersionView

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator

    from pt2hub.client.events import OnEvent
    from pt2hub.client.transport import Transport

T = TypeVar("T")
_POLL_SECONDS = 0.1
_LONGEST_POLL_SECONDS = 1.0
_POLL_GROWTH = 1.3
_PATIENCE_SECONDS = 60.0
"""How long a server may be away while builds are followed; they go on without us."""
_AWAY = (HTTPStatus.BAD_GATEWAY, HTTPStatus.SERVICE_UNAVAILABLE, HTTPStatus.GATEWAY_TIMEOUT)
_SHUT_SECONDS = 3.0
"""How long a stream that could not be had is not asked for again."""
_KINDS: dict[str, type[BuildView | LogView]] = {"build": BuildView, "log": LogView}
_SHORTEST_SECONDS = 1.0
"""A stream that ends earlier is of no use: asking at once for the next one would never end."""
_LAST_SECONDS = 6.0
"""Before a deadline nothing is streamed: a stream may be silent for five seconds."""


class Pace:
    """How long to wait between two looks: short while something moves, longer while nothing does."""

    def __init__(self) -> None:
        """Begins with short pauses."""
        self._pause = _POLL_SECONDS

    def pause(self, *, moved: bool) -> float:
        """Seconds to wait after a look that saw something move, or did not."""
        longer = min(self._pause * _POLL_GROWTH, _LONGEST_POLL_SECONDS)
        self._pause = _POLL_SECONDS if moved else longer
        return self._pause


@dataclass(frozen=True, slots=True)
class Lines:
    """A page of a log.

    Attributes:
        lines: In order.
        attempt: Of which attempt; None from a server that does not say.
    """

    lines: tuple[LogView, ...]
    attempt: int | None = None


@dataclass(slots=True)
class _Place:
    """Behind which line of which attempt's log a reader is; in none at first, and in 0 where none had begun."""

    attempt: int | None = None
    seq: int = 0

    def __str__(self) -> str:
        return "" if self.attempt is None else f"{self.attempt}.{self.seq}"

    def move(self, event_id: str) -> None:
        attempt, _, seq = event_id.partition(".")
        if attempt.isdecimal() and seq.isdecimal():
            self.attempt, self.seq = int(attempt), int(seq)


class Follower:
    """Follows one thing over one transport."""

    def __init__(self, transport: Transport) -> None:
        """Uses a server."""
        self._transport = transport
        self._shut_until = 0.0

    def version(
        self, version: VersionView, on_event: OnEvent | None = None, *, timeout: float | None = None
    ) -> VersionView:
        """Waits until every build of a version is final.

        Args:
            version: As it was submitted.
            on_event: Called for every change seen, in order.
            timeout: Seconds after which it waits no longer; None waits as long as they take.

        Raises:
            BuildActive: The time is over and a build is not; nothing is cancelled.
        """
        until = math.inf if timeout is None else time.monotonic() + timeout
        path = f"/api/v1/models/{parse_model_name(version.model)}/versions/{version.number}"
        seen: dict[str, BuildView] = {}
        pace = Pace()

        def tell(build: BuildView) -> bool:
            events = list(changes(seen.get(build.id), build))
            seen[build.id] = build
            if on_event:
                for event in events:
                    on_event(event)
            return bool(events)

        while True:
            with closing(self._streamed(f"{path}/events", until=until)) as events:
                for _, said in events:
                    if isinstance(said, BuildView):
                        tell(said)
            current = patiently(lambda: self._transport.fetch(VersionView, path))
            moved = [tell(build) for build in current.builds]
            if all(over(build) for build in current.builds):
                return current
            left = until - time.monotonic()
            if left <= 0:
                raise _unfinished(current, timeout)
            if not self._streams or left <= _LAST_SECONDS:
                time.sleep(min(left, pace.pause(moved=any(moved))))

    def log(
        self,
        build_id: str,
        *,
        summary: bool = False,
        on_build: Callable[[BuildView], object] | None = None,
    ) -> Iterator[LogView]:
        """The lines of a build's log as they come, from attempt to attempt, until the build is final.

        Args:
            build_id: The build.
            summary: Leave the compiler's noise out.
            on_build: Called with the build at first and at each change, between the lines.
        """
        path = build_path(build_id)
        place, pace = _Place(), Pace()
        while True:
            yield from self._streamed_lines(path, place, summary=summary, on_build=on_build)
            build = patiently(lambda: self._transport.fetch(BuildView, path))
            before = str(place)
            yield from self._polled_lines(build_id, place, build.attempt, summary=summary)
            if on_build:
                on_build(build)
            if over(build):
                return
            if not self._streams:
                time.sleep(pace.pause(moved=str(place) != before))

    def page(self, build_id: str, *, after: int, attempt: int | None = None, summary: bool = False) -> Lines:
        """Lines of a log behind a position; see `Publisher.logs`."""
        query: dict[str, str | int] = {"after": after}
        query |= {"attempt": attempt} if attempt else {}
        query |= {"summary": "true"} if summary else {}
        return self._transport.fetch(Lines, f"{build_path(build_id)}/logs", query)

    @property
    def _streams(self) -> bool:
        """Whether a stream is worth asking for."""
        return time.monotonic() >= self._shut_until

    def _streamed_lines(
        self, path: str, place: _Place, *, summary: bool, on_build: Callable[[BuildView], object] | None
    ) -> Iterator[LogView]:
        query = "?summary=true" if summary else ""
        with closing(self._streamed(f"{path}/events{query}", last=str(place))) as events:
            for event_id, said in events:
                if isinstance(said, LogView):
                    yield said
                elif on_build:
                    on_build(said)
                place.move(event_id)

    def _polled_lines(self, build_id: str, place: _Place, latest: int, *, summary: bool) -> Iterator[LogView]:
        """What the log has beyond a place now: the rest of that attempt's, and the whole of those after it."""
        first = latest if place.attempt is None else max(place.attempt, min(latest, 1))
        for attempt in range(first, latest + 1):
            if attempt != place.attempt:
                place.attempt, place.seq = attempt, 0
            wanted = attempt if attempt < latest else None
            while True:
                look = partial(self.page, build_id, after=place.seq, attempt=wanted, summary=summary)
                page = patiently(look)
                if not page.lines or page.attempt not in (None, attempt) or (wanted and not page.attempt):
                    break  # the end, or the server answers only of the latest attempt, which comes in a moment
                for line in page.lines:
                    yield line
                    place.seq = line.seq

    def _streamed(
        self, path: str, last: str = "", *, until: float = math.inf
    ) -> Generator[tuple[str, BuildView | LogView], None, None]:
        """The events of one stream; none where there is none to be had. Whoever asks then looks by itself.

        Args:
            path: Below the server's address.
            last: Id of the last event known.
            until: When whoever asks must stop, by the monotonic clock; the stream is left a little before.

        Returns:
            The id of each event, and what it says.
        """
        began, leave = time.monotonic(), until - _LAST_SECONDS
        if not self._streams or began >= leave:
            return
        pieces = self._transport.events(path, last=last)
        try:
            for event in streaming.parse(takewhile(lambda _: time.monotonic() < leave, pieces)):
                if event.name in _KINDS:
                    yield event.id, decode(_KINDS[event.name], json.loads(event.data))
        except ValueError:  # no JSON: something between changes what the server sends
            self._shut_until = math.inf
        except Pt2hubError as error:
            self._shut_until = time.monotonic() + _SHUT_SECONDS if _passing(error) else math.inf
        else:
            if time.monotonic() < began + _SHORTEST_SECONDS:
                self._shut_until = time.monotonic() + _SHUT_SECONDS


def _unfinished(version: VersionView, timeout: float | None) -> BuildActive:
    waiting = [build for build in version.builds if not over(build)]
    states = ", ".join(f"{build.target} {build.state}" for build in waiting)
    return BuildActive(
        f"Not all builds ended within {timeout:g} seconds: {states}",
        where=f"{version.model}@{version.number}",
        hint="They go on. Wait again, or read what one does with: "
        + "; ".join(f"pt2hub logs -f {build.id}" for build in waiting),
        context={"builds": [build.id for build in waiting]},
    )


def build_path(build_id: str) -> str:
    """Where a build is answered."""
    return f"/api/v1/builds/{quote(build_id, safe='')}"


def patiently(look: Callable[[], T]) -> T:
    """What a look at the server gives, tried again while a restart explains that it fails."""
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while True:
        try:
            return look()
        except (TransientError, BadResponse) as exc:
            if time.monotonic() > deadline or not _passing(exc):
                raise
            time.sleep(1)


def _passing(error: Pt2hubError) -> bool:
    """Whether a restart explains the error: a proxy says so in its own words."""
    return isinstance(error, TransientError) or error.context.get("status") in _AWAY
