"""Consoles that make untrusted text harmless. Imports rich, so import this module where you print."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.segment import Segment

from pt2hub.errors import INVISIBLE_CHARACTERS
from pt2hub.rendering.quantities import fit_encoding

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import ConsoleOptions, RenderableType

_WIDTH = 200


class PlainConsole(Console):
    """A console that removes escape sequences from texts, and takes brackets as text instead of markup."""

    def __init__(self, **options: Any) -> None:
        super().__init__(markup=False, **options)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterator[Segment]:
        """Render as rich does, with every text made harmless."""
        for text, style, control in super().render(renderable, options):
            yield Segment(text if control else self._harmless(text), style, control)

    def _harmless(self, text: str) -> str:
        return fit_encoding(text.translate(INVISIBLE_CHARACTERS), self.encoding)


def console(*, stderr: bool = False) -> Console:
    """Return a console; off a terminal it is wide, without colours, wrapping or movement."""
    given: dict[str, Any] = {"stderr": stderr, "highlight": False, "soft_wrap": True}
    made = PlainConsole(**given)
    return made if made.is_terminal else PlainConsole(**given, width=_WIDTH)
