"""Status lines of `pt2hub logs -f`: the state of the build before, between and after the log's lines."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pt2hub.cli.output import note
from pt2hub.client.builds.events import changes, over
from pt2hub.rendering.sheets import circumstances, state_text

if TYPE_CHECKING:
    from pt2hub.client.builds.events import BuildEvent
    from pt2hub.wire.responses import BuildView


class BuildStatusLine:
    """Prints the state of a build on stderr whenever it changes."""

    def __init__(self) -> None:
        self._seen: BuildView | None = None
        self._printed = ""

    def __call__(self, build: BuildView) -> None:
        """Print what changed since the last call."""
        for event in changes(self._seen, build):
            line = _line(event)
            if line and line != self._printed:
                note(f"-- {line}")
                self._printed = line
        self._seen = build


def _line(event: BuildEvent) -> str:
    build, step = event.build, event.step
    if step is not None:
        return f"{step.name} started" if step.state == "running" else ""
    status = ": ".join(filter(None, (state_text(build), circumstances(build))))
    if over(build) and build.state != "succeeded":
        return f"{status}; to queue it again: pt2hub retry {build.id}"
    return status
