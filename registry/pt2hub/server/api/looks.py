"""What a stream shows: a build or a version is looked at again and again, and what changed becomes events."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from pt2hub.domain.builds import BuildState
from pt2hub.domain.codec import encode
from pt2hub.server.db.stores.logs import NOISE

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from pt2hub.server.container import Container
    from pt2hub.wire.shapes import BuildView

LAST_WORDS_SECONDS = 3.0
"""How long a stream waits for the end of the log of a build that is over."""
PAGE = 1000
"""Lines of a log that are read at once."""


@dataclass(frozen=True, slots=True)
class Place:
    """How far a reader is: behind a line of an attempt's log.

    Attributes:
        attempt: Number of the attempt, 0 before the first.
        seq: The last line it knows.
    """

    attempt: int
    seq: int

    @classmethod
    def parse(cls, text: str) -> Place | None:
        """The place that an event's id names, or None."""
        attempt, dot, seq = text.partition(".")
        known = dot and all(part.isascii() and part.isdigit() and len(part) < 10 for part in (attempt, seq))  # noqa: PLR2004  # fits every integer
        return cls(int(attempt), int(seq)) if known else None

    def __str__(self) -> str:
        return f"{self.attempt}.{self.seq}"


class Looks(Protocol):
    """Something that is looked at again and again."""

    def look(self) -> Generator[bytes, None, bool]:
        """Yields the events since the last look; returns whether there will be no more."""


class BuildLooks:
    """A build and its log."""

    def __init__(self, services: Container, build_id: str, place: Place | None, *, summary: bool) -> None:
        """Looks at nothing yet.

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
        self._ending = _Ending(services)

    def look(self) -> Generator[bytes, None, bool]:
        """Yields lines, then the build where it changed: what it says of the end comes after its last lines."""
        view = self._services.builds.view(self._build_id)
        if self._place is None or self._place.attempt > view.attempt:
            self._place = Place(view.attempt, 0)
        over = self._ending.reached(view)  # asked before the lines are read: none comes after the last
        if self._shown is None:
            yield event("build", view, self._place)
        yield from self._lines(view.attempt)
        if self._shown not in (None, view):
            yield event("build", view, self._place)
        self._shown = view
        return over

    def _lines(self, latest: int) -> Iterator[bytes]:
        """Lines behind the reader's place; those that an earlier attempt still has come before the next one's."""
        place = self._place or Place(0, 0)
        if latest and not place.attempt:  # none had begun at the last look
            place = Place(1, 0)
        while place.attempt:
            _, lines = self._services.logs.lines(
                self._build_id, attempt=place.attempt, after=place.seq, limit=PAGE
            )
            for line in lines:
                place = Place(place.attempt, line.seq)
                if not (self._summary and line.level == NOISE):
                    yield event("log", line, place)
            self._place = place
            if len(lines) < PAGE:
                if place.attempt == latest:
                    return
                self._place = place = Place(place.attempt + 1, 0)


class BuildNews:
    """A build and how far its log goes, for who reads its lines elsewhere."""

    def __init__(self, services: Container, build_id: str) -> None:
        """Looks at nothing yet.

        Args:
            services: The process's.
            build_id: The build.
        """
        self._services = services
        self._build_id = build_id
        self._shown: tuple[BuildView | None, Place] = None, Place(0, 0)
        self._ending = _Ending(services)

    def look(self) -> Generator[bytes, None, bool]:
        """Yields how far the log goes, then the build, each where it changed."""
        view = self._services.builds.view(self._build_id)
        over = self._ending.reached(view)
        place = Place(view.attempt, self._services.log_windows.last(self._build_id, view.attempt))
        build, before = self._shown
        if place != before:
            yield event("lines", place)
        if view != build:
            yield event("build", view)
        self._shown = view, place
        return over


class _Ending:
    """Whether a build is over and so is its log: its worker sends the last lines after the deed."""

    def __init__(self, services: Container) -> None:
        self._services = services
        self._since: float | None = None

    def reached(self, view: BuildView) -> bool:
        if not BuildState(view.state).final:
            self._since = None
            return False
        self._since = self._since or time.monotonic()
        late = time.monotonic() > self._since + LAST_WORDS_SECONDS
        return late or self._services.logs.complete(view.id, view.attempt)


class VersionLooks:
    """The builds of a version."""

    def __init__(self, services: Container, model: str, number: int) -> None:
        """Looks at nothing yet.

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
        """Yields each build that changed."""
        builds = self._services.publish.version(self._model, self._number).builds
        for build in builds:
            if self._shown.get(build.id) != build:
                yield event("build", build)
        self._shown = {build.id: build for build in builds}
        return all(BuildState(build.state).final for build in builds)


def event(name: str, value: Any, place: Place | None = None) -> bytes:  # noqa: ANN401  # any dataclass or JSON value
    """An event as it is sent.

    Args:
        name: Its type.
        value: What it says.
        place: Where a reader is after it.
    """
    known = f"id: {place}\n" if place else ""
    return f"event: {name}\n{known}data: {json.dumps(encode(value))}\n\n".encode()
