"""Consoles whose text cannot do more than be read, whoever wrote it. Imports rich: import it where you print."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.segment import Segment

from pt2hub.errors import UNSEEN
from pt2hub.rendering.quantities import spelled

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import ConsoleOptions, RenderableType

_WIDTH = 200


class PlainConsole(Console):
    """A console that takes escape sequences out of texts; rich's own movements and colours are no part of them."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterator[Segment]:
        """Renders as rich does, every text made harmless."""
        for text, style, control in super().render(renderable, options):
            yield Segment(text if control else self._harmless(text), style, control)

    def _harmless(self, text: str) -> str:
        return spelled(text.translate(UNSEEN), self.encoding)


def console(*, stderr: bool = False) -> Console:
    """Where text goes; wide, without colours, wrapping or movement where it is no terminal."""
    given: dict[str, Any] = {"stderr": stderr, "highlight": False, "soft_wrap": True}
    made = PlainConsole(**given)
    return made if made.is_terminal else PlainConsole(**given, width=_WIDTH)
