"""Where moving text goes: a terminal, a notebook, or nowhere because nobody watches."""

from __future__ import annotations

import io
import sys
import threading
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager
    from typing import TypeAlias

    from rich.console import Console, RenderableType

    Frame: TypeAlias = "Callable[[], RenderableType]"

_TICK_SECONDS = 0.5
_NOTEBOOK_WIDTH = 120
_HTML = '<pre style="white-space:pre;overflow-x:auto;line-height:normal;font-family:monospace">{code}</pre>'


def stderr() -> Console:
    """Where progress goes; wide and without wrapping where it is no terminal."""
    from pt2hub.client.consoles import console

    return console(stderr=True)


def watched() -> bool:
    """Whether somebody watches: stderr is a terminal, or this is a notebook."""
    if sys.stderr is not None and sys.stderr.isatty():
        return True
    return "IPython" in sys.modules and stderr().is_jupyter


def announce(text: str, wanted: bool | None) -> bool:
    """Says what takes a while where nothing can count it.

    Args:
        text: What it is.
        wanted: Whether it is said; None where somebody watches.

    Returns:
        Whether it was said.
    """
    said = watched() if wanted is None else wanted
    if said:
        stderr().print(text, markup=False)
    return said


def moves(out: Console) -> bool:
    """Whether text can move there. FORCE_COLOR makes a pipe a terminal to rich, but nothing moves in a file."""
    return out.is_jupyter or (out.is_terminal and out.file.isatty() and not out.is_dumb_terminal)


def live(out: Console, frame: Frame) -> AbstractContextManager[object]:
    """Shows a frame again and again while it is entered.

    Args:
        out: A place where text moves.
        frame: Makes the frame of this moment.
    """
    if out.is_jupyter:
        return Redrawn(frame, notebook_output)
    from rich.live import Live

    return Live(console=out, get_renderable=frame, refresh_per_second=10)


class Redrawn:
    """A frame replaced in place as HTML. rich's own way shows nothing in notebooks without ipywidgets."""

    def __init__(self, frame: Frame, output: Callable[[], Callable[[str], None]]) -> None:
        """Prepares the display.

        Args:
            frame: Makes the frame of this moment.
            output: Opens a place for HTML and gives what replaces its content.
        """
        self._frame = frame
        self._output = output
        self._over = threading.Event()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        show = self._output()

        def redraw() -> None:
            while not self._over.wait(_TICK_SECONDS):
                show(as_html(self._frame()))
            show(as_html(self._frame()))

        self._thread = threading.Thread(target=redraw, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._over.set()
        if self._thread:
            self._thread.join()


def as_html(frame: RenderableType) -> str:
    """A frame as HTML, everything in it escaped."""
    from pt2hub.client.consoles import PlainConsole

    page = PlainConsole(
        file=io.StringIO(),
        record=True,
        force_terminal=True,
        force_jupyter=False,
        color_system="truecolor",
        width=_NOTEBOOK_WIDTH,
    )
    page.print(frame)
    return page.export_html(inline_styles=True, code_format=_HTML)


def notebook_output() -> Callable[[str], None]:
    """A place below the running cell; what it returns replaces the HTML there."""
    from IPython.display import HTML, display  # a notebook has it, and only there is this called

    handle = display(HTML(""), display_id=True)

    def show(html: str) -> None:
        handle.update(HTML(html))

    return show
