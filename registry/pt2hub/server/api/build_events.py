"""Changes of a build as server-sent events."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pt2hub.domain.builds import BuildState
from pt2hub.domain.codec import encode

if TYPE_CHECKING:
    from collections.abc import Generator

    from pt2hub.server.container import Container
    from pt2hub.wire.responses import BuildView

LAST_WORDS_SECONDS = 3.0
"""How long a stream waits for the end of the log after a build has ended."""


@dataclass(frozen=True, slots=True)
class _LogEnd:
    """The end of a build's log: its latest attempt, 0 before the first, and the last line."""

    attempt: int
    seq: int


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
        self._shown: tuple[BuildView | None, _LogEnd] = None, _LogEnd(0, 0)
        self._ending = _EndCondition(services)

    @property
    def is_ending(self) -> bool:
        """Whether the build had ended at the last look, and its log had not."""
        return self._ending.has_begun

    def look(self) -> Generator[bytes, None, bool]:
        """Yield the end of the log, then the build, if changed; return whether nothing will change any more."""
        view = self._services.builds.view(self._build_id)
        over = self._ending.is_reached(view)
        log_end = _LogEnd(view.attempt, self._services.log_windows.last(self._build_id, view.attempt))
        build, before = self._shown
        if log_end != before:
            yield event("lines", log_end)
        if view != build:
            yield event("build", view)
        self._shown = view, log_end
        return over


class _EndCondition:
    """Detects the end of a build and its log; workers send the last lines after the end."""

    def __init__(self, services: Container) -> None:
        self._services = services
        self._since: float | None = None

    @property
    def has_begun(self) -> bool:
        return self._since is not None

    def is_reached(self, view: BuildView) -> bool:
        if not BuildState(view.state).final:
            self._since = None
            return False
        self._since = self._since or time.monotonic()
        late = time.monotonic() > self._since + LAST_WORDS_SECONDS
        return late or self._services.logs.complete(view.id, view.attempt)


def event(name: str, value: Any) -> bytes:
    """Format a server-sent event."""
    return f"event: {name}\ndata: {json.dumps(encode(value))}\n\n".encode()
