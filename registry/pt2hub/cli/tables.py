"""Tables: in colour and as wide as the terminal; in a pipe plain aligned columns with every value whole."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from pt2hub.cli.words import NOTHING, one_line

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

Cell: TypeAlias = "str | Sequence[str]"
"""A text, or several: one a line on a terminal, separated by commas in a pipe."""
_GAP = 2
_LONG = 20
"""Characters above which a cell of several words may be wrapped; times and durations are shorter."""
_COLOURS = {
    "green": ("succeeded", "ready", "idle", "better"),
    "yellow": ("running", "partial", "pending", "busy", "draining", "not comparable"),
    "red": ("failed", "cancelled", "revoked", "lost", "worse"),
}


def print_table(out: Console, headings: Sequence[str], rows: Sequence[Sequence[Cell]]) -> None:
    """Prints a table.

    Args:
        out: Where to.
        headings: One per column.
        rows: One cell per column each.
    """
    texts = [[" ".join(_parts(cell)) for cell in column] for column in zip(headings, *rows, strict=True)]
    wraps = [any(" " in text and len(text) > _LONG for text in column) for column in texts]
    if out.is_terminal and _narrowest(texts, wraps) <= out.width:
        out.print(_table(headings, rows, wraps), soft_wrap=False)
        return
    # In a pipe every value stays on its line; so it does on a terminal that would have to break words.
    lines = [list(headings), *([_joined(cell) for cell in row] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        text = "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True))
        out.print(in_colour(text.rstrip()), soft_wrap=True)


def print_fields(out: Console, fields: Sequence[tuple[str, str]], *, indent: str = "  ") -> None:
    """Prints names and values below each other; values that are empty are left out."""
    shown = [(name, value) for name, value in fields if value]
    width = max((len(name) for name, _ in shown), default=0)
    for name, value in shown:
        out.print(f"{indent}{name.ljust(width)}  {value}", markup=False)


def in_colour(text: str) -> Text:
    """A text with the states in it in their colours."""
    from rich.text import Text

    made = Text(text)
    for colour, states in _COLOURS.items():
        made.highlight_regex(rf"\b({'|'.join(states)})\b", colour)
    return made


def _table(headings: Sequence[str], rows: Sequence[Sequence[Cell]], wraps: Sequence[bool]) -> Table:
    from rich.table import Table

    table = Table(box=None, pad_edge=False, padding=(0, _GAP, 0, 0), header_style="bold")
    for heading, wrap in zip(headings, wraps, strict=True):
        table.add_column(heading, no_wrap=not wrap)
    for row in rows:
        table.add_row(*(in_colour("\n".join(_parts(cell)) or NOTHING) for cell in row))
    return table


def _narrowest(columns: Sequence[Sequence[str]], wraps: Sequence[bool]) -> int:
    """The width below which words would have to be broken."""
    whole = [
        max(len(part) for text in texts for part in (text.split() if wrap else [text]))
        for texts, wrap in zip(columns, wraps, strict=True)
    ]
    return sum(whole) + _GAP * (len(whole) - 1)


def _joined(cell: Cell) -> str:
    return ", ".join(_parts(cell)) or NOTHING


def _parts(cell: Cell) -> list[str]:
    return [one_line(part) for part in ([cell] if isinstance(cell, str) else cell)]
