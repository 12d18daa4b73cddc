"""Progress output: in place on a terminal or in a notebook, as lines or not at all elsewhere."""

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
    """Return the console for progress, on stderr."""
    from pt2hub.client.consoles import console

    return console(stderr=True)


def is_watched() -> bool:
    """Return whether stderr is a terminal, or this is a notebook."""
    if sys.stderr is not None and sys.stderr.isatty():
        return True
    return "IPython" in sys.modules and stderr().is_jupyter


def announce(text: str, wanted: bool | None) -> bool:
    """Announce a long operation without a progress bar; return whether it was announced.

    Args:
        wanted: Whether to print it; None for only on a terminal or in a notebook.
    """
    shown = is_watched() if wanted is None else wanted
    if shown:
        stderr().print(text)
    return shown


def moves(out: Console) -> bool:
    """Return whether a console can redraw text. With FORCE_COLOR rich takes a pipe for a terminal, but a file cannot redraw."""
    return out.is_jupyter or (out.is_terminal and out.file.isatty() and not out.is_dumb_terminal)


def live(out: Console, frame: Frame) -> AbstractContextManager[object]:
    """Return a context manager that redraws a frame while it is entered.

    Args:
        out: A console that can redraw text.
    """
    if out.is_jupyter:
        return LiveDisplay(frame, notebook_output)
    from rich.live import Live

    return Live(console=out, get_renderable=frame, refresh_per_second=10)


class LiveDisplay:
    """A frame redrawn in place as HTML. rich's own display shows nothing in notebooks without ipywidgets."""

    def __init__(self, frame: Frame, output: Callable[[], Callable[[str], None]]) -> None:
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
    """Return a frame as escaped HTML."""
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
    """Return a function that replaces the HTML below the running cell."""
    from IPython.display import HTML, display  # a notebook has it, and only there is this called

    handle = display(HTML(""), display_id=True)

    def show(html: str) -> None:
        handle.update(HTML(html))

    return show
