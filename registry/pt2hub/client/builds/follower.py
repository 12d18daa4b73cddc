"""Following of builds by long polls, and of logs by polling."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Protocol, TypeVar

from pt2hub.client.builds.events import changes, over
from pt2hub.client.http.long_poll import LongPoll, retry_outages
from pt2hub.client.http.paths import build_path, model_path
from pt2hub.domain.builds import BuildState
from pt2hub.errors import BuildActive, InvalidInput
from pt2hub.rendering.sheets import build_title
from pt2hub.wire.responses import BuildView, LogPage, LogView, VersionView

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
    from typing import TypeAlias

    from pt2hub.client.builds.events import OnEvent
    from pt2hub.client.http.transport import Transport

    Left: TypeAlias = "Callable[[], float]"

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
_MIN_POLL_S = 0.2
"""Workers write log lines this often."""
_MAX_POLL_S = 1.0
_POLL_GROWTH = 1.3
_LAST_LINES_S = 3.0
"""Longest wait for the end of the log after a build has ended; its worker sends the last lines a moment later."""
_OPEN = ("waiting", "measuring")
"""States of a measurement with a pending job."""


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
class _LogCursor:
    """The position of a log's reader: attempt and line. The attempt is None at first, and 0 if none had started."""

    attempt: int | None = None
    seq: int = 0


class Polls(Protocol[T_co]):
    """What is read again and again, see `LongPoll`."""

    def read(self) -> T_co:
        """Return the present state."""
        ...

    def next(self, *, at_most: float, pause: float) -> T_co:
        """Return the state after a change, or after a while."""
        ...


class _Builds:
    """Several builds, each read until it has ended; the server waits for the last one only."""

    def __init__(self, polls: Sequence[LongPoll[BuildView]]) -> None:
        self._polls = polls
        self._seen: list[BuildView] = []

    def read(self) -> list[BuildView]:
        self._seen = [poll.read() for poll in self._polls]
        return self._seen

    def next(self, *, at_most: float, pause: float) -> list[BuildView]:
        pending = [index for index, build in enumerate(self._seen) if not over(build)]
        if len(pending) == 1:
            self._seen[pending[0]] = self._polls[pending[0]].next(at_most=at_most, pause=pause)
            return self._seen
        time.sleep(min(at_most, pause))
        for index in pending:
            self._seen[index] = self._polls[index].read()
        return self._seen


class Follower:
    """Follows builds and their logs over one transport."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

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
        poll = LongPoll(self._transport, VersionView, path)
        current = self._watch(poll, lambda seen: seen.builds, callbacks, left)
        while measured and (jobs := _open_jobs(current)):
            self.builds(jobs, callbacks, left=left)
            current = poll.read()
        return current

    def builds(
        self, build_ids: Sequence[str], callbacks: Sequence[OnEvent] = (), *, left: Left
    ) -> list[BuildView]:
        """Wait until builds or measuring jobs have ended; see `Builds.follow`."""
        builds = _Builds([LongPoll(self._transport, BuildView, build_path(each)) for each in build_ids])
        return self._watch(builds, lambda seen: seen, callbacks, left)

    def _watch(
        self,
        poll: Polls[T],
        builds_of: Callable[[T], Sequence[BuildView]],
        callbacks: Sequence[OnEvent],
        left: Left,
    ) -> T:
        """Poll until every build has ended.

        Args:
            callbacks: Called for every change, in order.
            left: Returns the seconds left to wait.

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

        current = poll.read()
        while True:
            moved = report(builds_of(current))
            waiting = [build for build in builds_of(current) if not over(build)]
            if not waiting:
                return current
            if left() <= 0:
                raise _still_active(waiting)
            time.sleep(min(left(), _MIN_POLL_S))  # what changes within this time is one answer
            current = poll.next(at_most=max(0.0, left()), pause=pace.pause(moved=moved) - _MIN_POLL_S)

    def log(
        self,
        build_id: str,
        *,
        summary: bool = False,
        on_build: Callable[[BuildView], object] | None = None,
    ) -> Iterator[LogView]:
        """Yield the lines of a build's log as they arrive, across attempts, until the build ends."""
        path, cursor, pace = build_path(build_id), _LogCursor(), PollInterval()
        give_up = math.inf
        while True:
            build = retry_outages(lambda: self._transport.fetch(BuildView, path), self._transport.url)
            before = replace(cursor)
            complete = yield from self._new_lines(build_id, cursor, build.attempt, summary=summary)
            if on_build:
                on_build(build)
            if over(build):
                give_up = min(give_up, time.monotonic() + _LAST_LINES_S)
                if complete or time.monotonic() >= give_up:
                    return
            time.sleep(pace.pause(moved=cursor != before))

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

    def _new_lines(
        self, build_id: str, cursor: _LogCursor, latest: int, *, summary: bool
    ) -> Generator[LogView, None, bool]:
        """Yield the present lines after the cursor: the rest of its attempt, and all later attempts.

        Returns:
            Whether the log of the latest attempt is complete; true if the server does not tell.
        """
        first = latest if cursor.attempt is None else max(cursor.attempt, min(latest, 1))
        complete = True
        for attempt in range(first, latest + 1):
            if attempt != cursor.attempt:
                cursor.attempt, cursor.seq = attempt, 0
            wanted = attempt if attempt < latest else None
            while True:
                look = partial(self._page, build_id, after=cursor.seq, attempt=wanted, summary=summary)
                page = retry_outages(look, self._transport.url)
                complete = page.complete is not False
                if not page.lines or page.attempt not in (None, attempt) or (wanted and not page.attempt):
                    break  # the end, or a server that serves only the latest attempt, which follows
                for line in page.lines:
                    yield line
                    cursor.seq = line.seq
        return complete


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
