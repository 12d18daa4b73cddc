"""Base class of values with readable output at Python prompts and in notebooks.

What a shape of the API says of itself is rendered two layers above, in `pt2hub.rendering`, which the client names here and
imports when somebody looks: loading a model in a fresh process is a matter of milliseconds, and prints nothing. Names, log
lines and errors come from elsewhere and may hold markup or escape sequences: both are taken out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pt2hub.errors import INVISIBLE_CHARACTERS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


@dataclass(frozen=True, slots=True)
class Sheet:
    """Description of a value: title, table and notes."""

    title: str
    rows: tuple[tuple[str, ...], ...] = ()
    notes: tuple[str, ...] = ()


_describe: Callable[[object], Sheet] = lambda value: Sheet(type(value).__name__)  # noqa: E731  # where nothing renders


def render_with(describe: Callable[[object], Sheet]) -> None:
    """Set the function that describes values as sheets."""
    global _describe  # noqa: PLW0603
    _describe = describe


class Renderable:
    """A value that prints well: `repr` is one line, `str` a few, a notebook shows a table."""

    __slots__ = ()

    def _sheet(self) -> Sheet:
        """Describe the value."""
        return _describe(self)

    def __str__(self) -> str:
        return as_text(self._sheet())

    def __repr__(self) -> str:
        return f"<{type(self).__name__.removesuffix('View')} {as_line(self._sheet())}>"

    def _repr_html_(self) -> str:
        return as_html(self._sheet())


def as_line(sheet: Sheet) -> str:
    """Return a sheet's title as one line."""
    return _plain(sheet.title)


def as_text(sheet: Sheet) -> str:
    """Return a sheet as lines of text, the table's columns aligned."""
    rows = [[_plain(cell) for cell in row] for row in sheet.rows]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    table = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    ]
    notes = [_plain(line) for note in sheet.notes for line in note.splitlines()]
    return "\n".join([_plain(sheet.title), *(f"  {line}" for line in (*table, *notes))])


def as_html(sheet: Sheet) -> str:
    """Return a sheet as HTML, everything in it escaped."""
    from html import escape

    def cells(row: Iterable[str]) -> str:
        return "".join(f'<td style="text-align:left">{escape(_plain(cell))}</td>' for cell in row)

    table = "".join(f"<tr>{cells(row)}</tr>" for row in sheet.rows)
    notes = "\n".join(escape(_plain(line)) for note in sheet.notes for line in note.splitlines())
    return (
        f"<div><b>{escape(_plain(sheet.title))}</b>"
        + (f"<table>{table}</table>" if table else "")
        + (f'<pre style="margin:0">{notes}</pre>' if notes else "")
        + "</div>"
    )


def _plain(text: str) -> str:
    return str(text).replace("\n", " ").translate(INVISIBLE_CHARACTERS)
