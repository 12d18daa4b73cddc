"""Tables: coloured and fitted to a terminal; in a pipe, plain aligned columns with unshortened values."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from pt2hub.cli.output import one_line
from pt2hub.rendering.states import STATE_COLOURS
from pt2hub.rendering.times import NOTHING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

Cell: TypeAlias = "str | Sequence[str]"
"""One text, or several: one per line on a terminal, separated by commas in a pipe."""
_GAP = 2
_LONG = 20
"""Longer cells of several words may wrap; times and durations are shorter."""


def print_table(
    out: Console,
    headings: Sequence[str],
    rows: Sequence[Sequence[Cell]],
    *,
    empty: str = "",
    more: bool = False,
) -> None:
    """Print a table.

    Args:
        empty: Printed in place of a table without rows.
        more: Whether the list was cut at its limit.
    """
    if empty and not rows:
        out.print(empty)
        return
    _print(out, headings, rows)
    if more:
        out.print("There are more; raise --limit to see them.")


def _print(out: Console, headings: Sequence[str], rows: Sequence[Sequence[Cell]]) -> None:
    texts = [[" ".join(_parts(cell)) for cell in column] for column in zip(headings, *rows, strict=True)]
    wraps = [any(" " in text and len(text) > _LONG for text in column) for column in texts]
    if out.is_terminal and _narrowest(texts, wraps) <= out.width:
        out.print(_table(headings, rows, wraps), soft_wrap=False)
        return
    # In a pipe, and on a terminal too narrow for whole words, every row stays on one line.
    lines = [list(headings), *([_join_lines(cell) for cell in row] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        text = "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True))
        out.print(in_colour(text.rstrip()), soft_wrap=True)


def print_fields(out: Console, fields: Sequence[tuple[str, str]], *, indent: str = "  ") -> None:
    """Print a list of names and values, without the empty ones."""
    shown = [(name, value) for name, value in fields if value]
    width = max((len(name) for name, _ in shown), default=0)
    for name, value in shown:
        out.print(f"{indent}{name.ljust(width)}  {value}")


def in_colour(text: str) -> Text:
    """Return a text with the states in it coloured."""
    from rich.text import Text

    made = Text(text)
    for colour, states in STATE_COLOURS.items():
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
    """Return the smallest width that fits every word."""
    whole = [
        max(len(part) for text in texts for part in (text.split() if wrap else [text]))
        for texts, wrap in zip(columns, wraps, strict=True)
    ]
    return sum(whole) + _GAP * (len(whole) - 1)


def _join_lines(cell: Cell) -> str:
    return ", ".join(_parts(cell)).replace("., ", ". ") or NOTHING  # sentences end by themselves


def _parts(cell: Cell) -> list[str]:
    return [one_line(part) for part in ([cell] if isinstance(cell, str) else cell)]
