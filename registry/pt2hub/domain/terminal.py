r"""Reader for terminal output (ANSI escape sequences), for display elsewhere.

Of the escape sequences only colours are interpreted; others (cursor moves, titles, links) are dropped. Invisible and
bidirectional characters are shown by name. Of text overwritten with `\r` the last version is kept, as on a terminal.

The output comes from untrusted models, so parsing a line takes time proportional to its length. (The decoder of rich
searches the whole line for the end of each unfinished link and fails on long numbers.)
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any

from pt2hub.errors import INVISIBLE_CHARACTERS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_MAX_CODES = 32
"""Codes per sequence; real ones have at most six."""
_MAX_CODES_CHARS = 256
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
"""xterm's sixteen colours; others map to the nearest of them, since pages have sixteen readable colours."""
_SEQUENCE = re.compile(
    r"""
      (?: \x1b\[ | \x9b ) (?P<codes> [0-9:;]* ) m                                     # colours
    | (?: \x1b\[ | \x9b ) [\x30-\x3f]* [\x20-\x2f]* [\x40-\x7e]                       # moves and the like
    | (?: \x1b\] | \x9d ) [^\x07\x1b\x80-\x9f]* (?: \x07 | \x1b\\ | \x9c )            # titles, links
    | (?: \x1b[PX^_] | [\x90\x98\x9e\x9f] ) [^\x1b\x80-\x9f]* (?: \x1b\\ | \x9c )     # device control strings
    | \x1b [\x20-\x2f]* [\x30-\x7e]?                                                  # the rest
    """,
    re.VERBOSE,
)
"""No alternative crosses the start of another sequence, so unterminated sequences cost only their own length."""


@dataclass(frozen=True, slots=True)
class TextStyle:
    """Style of text.

    Attributes:
        ink: Text colour from 0 to 15; None for the default.
        ground: Background colour from 0 to 15; None for the default.
        bold: Whether it is bold.
        faint: Whether it is faint.
        italic: Whether it is italic.
        underlined: Whether it is underlined.
        struck: Whether it is struck through.
        swapped: Whether text and background colours are swapped.
    """

    ink: int | None = None
    ground: int | None = None
    bold: bool = False
    faint: bool = False
    italic: bool = False
    underlined: bool = False
    struck: bool = False
    swapped: bool = False


PLAIN = TextStyle()
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
"""Style changes by code. Blinking is ignored, and concealed text is shown."""


@dataclass(frozen=True, slots=True)
class StyledRun:
    """A run of text with one style.

    Attributes:
        text: The text, with visible characters only.
        look: The style.
    """

    text: str
    look: TextStyle


def runs(line: str) -> list[StyledRun]:
    """Split a line of output into styled runs.

    Args:
        line: The raw line; each line starts without style, since output of several programs may be interleaved.
    """
    if not _ODD.search(line):
        return [StyledRun(line, PLAIN)]
    if "\r" in line:
        line = "\n".join(part.rstrip("\r").rpartition("\r")[2] for part in line.split("\n"))
    return list(_runs(line))


def plain(line: str) -> str:
    """Return the visible text of a line of output."""
    return "".join(run.text for run in runs(line))


def search_pattern(text: str) -> re.Pattern[str]:
    """Return a case-insensitive pattern that finds a text in the visible text of a line."""
    return re.compile(re.escape(text), re.IGNORECASE)


def _runs(line: str) -> Iterator[StyledRun]:
    look, at = PLAIN, 0
    for sequence in _SEQUENCE.finditer(line):
        if sequence.start() > at:
            yield StyledRun(line[at : sequence.start()].translate(_NAMES), look)
        at = sequence.end()
        codes = sequence["codes"]
        if codes is not None:
            look = _apply_codes(look, codes[:_MAX_CODES_CHARS])
    if at < len(line):
        yield StyledRun(line[at:].translate(_NAMES), look)


@lru_cache(1024)
def _apply_codes(look: TextStyle, codes: str) -> TextStyle:
    """Apply the codes of a sequence to a style."""
    given = iter(codes.split(";")[:_MAX_CODES])
    for item in given:
        first, *parts = map(_number, item.split(":"))
        if first == 0:
            look = PLAIN
        elif first in (_FORE, _BACK):
            colour = _colour(parts or _following(given))
            look = replace(look, ink=colour) if first == _FORE else replace(look, ground=colour)
        elif parts == [0]:  # 4:0 turns underlining off
            look = replace(look, **_CODES.get(20 + first, {}))
        else:
            look = replace(look, **_CODES.get(first, {}))
    return look


def _number(text: str) -> int:
    return int(text[:4] or 0)


def _following(given: Iterator[str]) -> list[int]:
    """Return the parameters of a colour given as separate codes."""
    kind = _number(next(given, "0").partition(":")[0])
    count = {_INDEXED: 1, _DIRECT: 3}.get(kind, 0)
    return [kind, *(_number(next(given, "0").partition(":")[0]) for _ in range(count))]


def _colour(parts: Sequence[int]) -> int | None:
    """Return the nearest of the sixteen colours; None for invalid parameters."""
    kind, *values = (min(part, 255) for part in parts)
    if kind == _INDEXED and values:
        return values[0] if values[0] < _BASIC else _nearest(*_of_index(values[0]))
    if kind == _DIRECT and len(values) >= 3:  # noqa: PLR2004  # red, green and blue after the colour space
        red, green, blue = values[-3:]
        return _nearest(red, green, blue)
    return None


@cache
def _of_index(index: int) -> tuple[int, int, int]:
    """Return red, green and blue of one of the 256 colours."""
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
    """Return the visible name of an invisible character: its Unicode control picture or its code point."""
    if code < _PICTURED:
        return chr(0x2400 + code)
    return f"[U+{code:04X}]"


_NAMES = {code: _name(code) for code in (*INVISIBLE_CHARACTERS, 0x2028, 0x2029, *range(0xD800, 0xE000))}
_ODD = re.compile(f"[{''.join(map(re.escape, map(chr, _NAMES)))}]")
