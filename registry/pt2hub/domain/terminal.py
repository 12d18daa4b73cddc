r"""What programs print for terminals, to be shown elsewhere: the text that is read of it, and in which colours.

Nothing of it is carried out: of all escape sequences only those of colours count, the others (cursor moves, titles,
links) are left out. Characters that cannot be seen, or that turn text around, are shown by their names. Of what a
program wrote over itself with `\r`, the last is kept, as on a terminal.

The output comes from models of others, so every line takes time in proportion to its length. (The decoder of rich,
which we have, looks for the end of each unfinished link through the whole line, and fails on a long number.)
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any

from pt2hub.errors import UNSEEN

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_MOST_CODES = 32
"""Of one sequence; real ones have at most six."""
_LONGEST_CODES = 256
_FORE, _BACK = 38, 48
_INDEXED, _DIRECT = 5, 2
_BASIC = 16
_CUBE_END = 232
_PICTURED = 0x20
_LEVELS = (0, 95, 135, 175, 215, 255)
_PALETTE = (
    (0, 0, 0),
    (205, 0, 0),
    (0, 205, 0),
    (205, 205, 0),
    (0, 0, 238),
    (205, 0, 205),
    (0, 205, 205),
    (229, 229, 229),
    (127, 127, 127),
    (255, 0, 0),
    (0, 255, 0),
    (255, 255, 0),
    (92, 92, 255),
    (255, 0, 255),
    (0, 255, 255),
    (255, 255, 255),
)
"""xterm's sixteen, by which others find the nearest one: pages have sixteen colours that can be read on their ground."""
_SEQUENCE = re.compile(
    r"""
      (?: \x1b\[ | \x9b ) (?P<codes> [0-9:;]* ) m                                     # colours
    | (?: \x1b\[ | \x9b ) [\x30-\x3f]* [\x20-\x2f]* [\x40-\x7e]                       # moves and the like
    | (?: \x1b\] | \x9d ) [^\x07\x1b\x80-\x9f]* (?: \x07 | \x1b\\ | \x9c )            # titles, links
    | (?: \x1b[PX^_] | [\x90\x98\x9e\x9f] ) [^\x1b\x80-\x9f]* (?: \x1b\\ | \x9c )     # what devices are told
    | \x1b [\x20-\x2f]* [\x30-\x7e]?                                                  # the rest
    """,
    re.VERBOSE,
)
"""No part of it passes another sequence's beginning, so that what has no end costs no more than its own length."""


@dataclass(frozen=True, slots=True)
class Look:
    """How text looks.

    Attributes:
        ink: One of the sixteen colours, 0 to 15; None for that of the page.
        ground: Likewise, behind the text.
        bold: Whether it is bold.
        faint: Whether it is faint.
        italic: Whether it is italic.
        underlined: Whether it is underlined.
        struck: Whether it is struck through.
        swapped: Whether ink and ground change places.
    """

    ink: int | None = None
    ground: int | None = None
    bold: bool = False
    faint: bool = False
    italic: bool = False
    underlined: bool = False
    struck: bool = False
    swapped: bool = False


PLAIN = Look()
_CODES: dict[int, dict[str, Any]] = {
    1: {"bold": True},
    2: {"faint": True},
    3: {"italic": True},
    4: {"underlined": True},
    7: {"swapped": True},
    9: {"struck": True},
    21: {"underlined": True},
    22: {"bold": False, "faint": False},
    23: {"italic": False},
    24: {"underlined": False},
    27: {"swapped": False},
    29: {"struck": False},
    39: {"ink": None},
    49: {"ground": None},
    **{30 + colour: {"ink": colour} for colour in range(8)},
    **{90 + colour: {"ink": 8 + colour} for colour in range(8)},
    **{40 + colour: {"ground": colour} for colour in range(8)},
    **{100 + colour: {"ground": 8 + colour} for colour in range(8)},
}
"""What codes change. Blinking stays still, and concealed text is shown."""


@dataclass(frozen=True, slots=True)
class Run:
    """Text of one look.

    Attributes:
        text: What is read; every character of it can be seen.
        look: How it looks.
    """

    text: str
    look: Look


def runs(line: str) -> list[Run]:
    """A line of output as it is to be shown.

    Args:
        line: As the program printed it; each begins without colours, since others may have written before it.
    """
    if not _ODD.search(line):
        return [Run(line, PLAIN)]
    if "\r" in line:
        line = "\n".join(part.rstrip("\r").rpartition("\r")[2] for part in line.split("\n"))
    return list(_runs(line))


def plain(line: str) -> str:
    """What is read of a line of output."""
    return "".join(run.text for run in runs(line))


def sought(text: str) -> re.Pattern[str]:
    """Finds a text in what is read of a line, in any letters' case."""
    return re.compile(re.escape(text), re.IGNORECASE)


def _runs(line: str) -> Iterator[Run]:
    look, at = PLAIN, 0
    for sequence in _SEQUENCE.finditer(line):
        if sequence.start() > at:
            yield Run(line[at : sequence.start()].translate(_NAMES), look)
        at = sequence.end()
        codes = sequence["codes"]
        if codes is not None:
            look = _changed(look, codes[:_LONGEST_CODES])
    if at < len(line):
        yield Run(line[at:].translate(_NAMES), look)


@lru_cache(1024)
def _changed(look: Look, codes: str) -> Look:
    """A look after a sequence of colours."""
    given = iter(codes.split(";")[:_MOST_CODES])
    for item in given:
        first, *parts = map(_number, item.split(":"))
        if first == 0:
            look = PLAIN
        elif first in (_FORE, _BACK):
            colour = _colour(parts or _following(given))
            look = replace(look, ink=colour) if first == _FORE else replace(look, ground=colour)
        elif parts == [0]:  # 4:0 is no underline
            look = replace(look, **_CODES.get(20 + first, {}))
        else:
            look = replace(look, **_CODES.get(first, {}))
    return look


def _number(text: str) -> int:
    return int(text[:4] or 0)


def _following(given: Iterator[str]) -> list[int]:
    """The numbers of a colour that stand behind its code as codes of their own."""
    kind = _number(next(given, "0").partition(":")[0])
    count = {_INDEXED: 1, _DIRECT: 3}.get(kind, 0)
    return [kind, *(_number(next(given, "0").partition(":")[0]) for _ in range(count))]


def _colour(parts: Sequence[int]) -> int | None:
    """The colour that numbers name, as one of the sixteen; None where they name none."""
    kind, *values = (min(part, 255) for part in parts)
    if kind == _INDEXED and values:
        return values[0] if values[0] < _BASIC else _nearest(*_of_index(values[0]))
    if kind == _DIRECT and len(values) >= 3:  # noqa: PLR2004  # red, green and blue, behind the space they are of
        red, green, blue = values[-3:]
        return _nearest(red, green, blue)
    return None


@cache
def _of_index(index: int) -> tuple[int, int, int]:
    """Red, green and blue of one of the 256 colours."""
    if index >= _CUBE_END:
        grey = 8 + 10 * (index - _CUBE_END)
        return grey, grey, grey
    place = index - _BASIC
    return _LEVELS[place // 36], _LEVELS[place // 6 % 6], _LEVELS[place % 6]


@lru_cache(4096)
def _nearest(*wanted: int) -> int:
    def distance(index: int) -> int:
        return sum((a - b) ** 2 for a, b in zip(_PALETTE[index], wanted, strict=True))

    return min(range(_BASIC), key=distance)


def _name(code: int) -> str:
    """A character that cannot be seen: the picture that Unicode has of it, or its number."""
    if code < _PICTURED:
        return chr(0x2400 + code)
    return f"[U+{code:04X}]"


_NAMES = {code: _name(code) for code in (*UNSEEN, 0x2028, 0x2029, *range(0xD800, 0xE000))}
_ODD = re.compile(f"[{''.join(map(re.escape, map(chr, _NAMES)))}]")
