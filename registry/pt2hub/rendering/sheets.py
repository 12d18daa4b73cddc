"""Sheets as text and as HTML.

Names, log lines and errors come from elsewhere and may hold markup or escape sequences: both are taken out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pt2hub.errors import UNSEEN

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pt2hub.printed import Sheet


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
    return str(text).replace("\n", " ").translate(UNSEEN)
