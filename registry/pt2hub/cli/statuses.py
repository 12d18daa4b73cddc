"""What `pt2hub logs -f` says beside the log: where a build stands before, between and after its lines."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pt2hub.cli.output import note
from pt2hub.client.events import changes, over
from pt2hub.rendering.printing import circumstances, standing

if TYPE_CHECKING:
    from pt2hub.client.events import BuildEvent
    from pt2hub.wire.shapes import BuildView


class Statuses:
    """Tells on stderr how a build stands, once for each change."""

    def __init__(self) -> None:
        """Has told nothing yet."""
        self._seen: BuildView | None = None
        self._told = ""

    def __call__(self, build: BuildView) -> None:
        """Tells what changed since the build was seen last."""
        for event in changes(self._seen, build):
            line = _line(event)
            if line and line != self._told:
                note(f"-- {line}")
                self._told = line
        self._seen = build


def _line(event: BuildEvent) -> str:
    build, step = event.build, event.step
    if step is not None:
        return f"{step.name} begins" if step.state == "running" else ""
    said = ": ".join(filter(None, (standing(build), circumstances(build))))
    if over(build) and build.state != "succeeded":
        return f"{said}; try again with pt2hub retry {build.id}"
    return said
