"""Snapshots of builds and versions, whose changes become server-sent events."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from pt2hub.domain.builds import BuildState
from pt2hub.domain.codec import encode
from pt2hub.server.db.stores.builds.logs import NOISE

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from pt2hub.server.container import Container
    from pt2hub.wire.responses import BuildView

LAST_WORDS_SECONDS = 3.0
"""How long a stream waits for the end of the log after a build has ended."""
PAGE = 1000
"""Number of log lines per query."""


@dataclass(frozen=True, slots=True)
class StreamCursor:
    """A reader's position in an attempt's log.

    Attributes:
        attempt: Number of the attempt, 0 before the first.
        seq: The last line that the reader has.
    """

    attempt: int
    seq: int

    @classmethod
    def parse(cls, text: str) -> StreamCursor | None:
        """Parse an event id; None if it is malformed."""
        attempt, dot, seq = text.partition(".")
        known = dot and all(part.isascii() and part.isdigit() and len(part) < 10 for part in (attempt, seq))  # noqa: PLR2004  # fits every integer
        return cls(int(attempt), int(seq)) if known else None

    def __str__(self) -> str:
        return f"{self.attempt}.{self.seq}"


class Snapshots(Protocol):
    """A source of events that is polled."""

    def look(self) -> Generator[bytes, None, bool]:
        """Yield the events since the last call; return whether there will be no more."""


class BuildSnapshots:
    """A build and its log."""

    def __init__(
        self, services: Container, build_id: str, place: StreamCursor | None, *, summary: bool
    ) -> None:
        """Look at nothing yet.

        Args:
            services: The process's.
            build_id: The build.
            place: Where its reader is; None for the beginning of the latest attempt.
            summary: Leave the compiler's noise out.
        """
        self._services = services
        self._build_id = build_id
        self._place = place
        self._summary = summary
        self._shown: BuildView | None = None
        self._ending = _EndCondition(services)

    def look(self) -> Generator[bytes, None, bool]:
        """Yield new lines, then the build if it changed, so that its end follows its last lines."""
        view = self._services.builds.view(self._build_id)
        if self._place is None or self._place.attempt > view.attempt:
            self._place = StreamCursor(view.attempt, 0)
        over = self._ending.is_reached(view)  # checked before reading lines, so that none is missed
        if self._shown is None:
            yield event("build", view, self._place)
        yield from self._lines(view.attempt)
        if self._shown not in (None, view):
            yield event("build", view, self._place)
        self._shown = view
        return over

    def _lines(self, latest: int) -> Iterator[bytes]:
        """Yield the lines after the reader's position; remaining lines of an earlier attempt come first."""
        place = self._place or StreamCursor(0, 0)
        if latest and not place.attempt:  # no attempt had started at the last call
            place = StreamCursor(1, 0)
        while place.attempt:
            _, lines = self._services.logs.lines(
                self._build_id, attempt=place.attempt, after=place.seq, limit=PAGE
            )
            for line in lines:
                place = StreamCursor(place.attempt, line.seq)
                if not (self._summary and line.level == NOISE):
                    yield event("log", line, place)
            self._place = place
            if len(lines) < PAGE:
                if place.attempt == latest:
                    return
                self._place = place = StreamCursor(place.attempt + 1, 0)


class BuildChanges:
    """A build and the length of its log, without the lines."""

    def __init__(self, services: Container, build_id: str) -> None:
        """Look at nothing yet.

        Args:
            services: The process's.
            build_id: The build.
        """
        self._services = services
        self._build_id = build_id
        self._shown: tuple[BuildView | None, StreamCursor] = None, StreamCursor(0, 0)
        self._ending = _EndCondition(services)

    def look(self) -> Generator[bytes, None, bool]:
        """Yield the length of the log, then the build, if changed."""
        view = self._services.builds.view(self._build_id)
        over = self._ending.is_reached(view)
        place = StreamCursor(view.attempt, self._services.log_windows.last(self._build_id, view.attempt))
        build, before = self._shown
        if place != before:
            yield event("lines", place)
        if view != build:
            yield event("build", view)
        self._shown = view, place
        return over


class _EndCondition:
    """Detects the end of a build and its log; workers send the last lines after the end."""

    def __init__(self, services: Container) -> None:
        self._services = services
        self._since: float | None = None

    def is_reached(self, view: BuildView) -> bool:
        if not BuildState(view.state).final:
            self._since = None
            return False
        self._since = self._since or time.monotonic()
        late = time.monotonic() > self._since + LAST_WORDS_SECONDS
        return late or self._services.logs.complete(view.id, view.attempt)


class VersionSnapshots:
    """The builds of a version."""

    def __init__(self, services: Container, model: str, number: int) -> None:
        """Look at nothing yet.

        Args:
            services: The process's.
            model: The model's name.
            number: The version's number.
        """
        self._services = services
        self._model = model
        self._number = number
        self._shown: dict[str, BuildView] = {}

    def look(self) -> Generator[bytes, None, bool]:
        """Yield each changed build."""
        builds = self._services.publish.version(self._model, self._number).builds
        for build in builds:
            if self._shown.get(build.id) != build:
                yield event("build", build)
        self._shown = {build.id: build for build in builds}
        return all(BuildState(build.state).final for build in builds)


def event(name: str, value: Any, place: StreamCursor | None = None) -> bytes:
    """Format a server-sent event.

    Args:
        name: Event type.
        value: Event data.
        place: The reader's position after it.
    """
    known = f"id: {place}\n" if place else ""
    return f"event: {name}\n{known}data: {json.dumps(encode(value))}\n\n".encode()
