"""Texts that people write for people: what may be in them."""

from __future__ import annotations

import unicodedata

from pt2hub.errors import InvalidInput

_TURNING = frozenset({"LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"})
"""Unicode's classes of characters that make text be shown in another order than it is written."""


def plain(text: str, *, what: str, where: str) -> str:
    """A text as it is kept: without blanks around it, its lines ended by a line feed, whatever a browser's form sends.

    Args:
        text: As it was written.
        what: What it is, as the subject of a sentence.
        where: The field that holds it.

    Raises:
        InvalidInput: It holds a character that steers a terminal, and so could show its reader something else.
    """
    kept = text.replace("\r\n", "\n").replace("\r", "\n").strip()
    for number, line in enumerate(kept.split("\n"), 1):
        if unfit := next(filter(_steers, line), None):
            raise InvalidInput(
                f"{what} holds the character {unfit!a} in line {number}",
                where=where,
                hint="Remove it; where it cannot be seen, type the words around it anew.",
            )
    return kept


def _steers(char: str) -> bool:
    """Whether it is a control character, or turns the direction of the text around it."""
    return unicodedata.category(char) in {"Cc", "Cs"} or unicodedata.bidirectional(char) in _TURNING
