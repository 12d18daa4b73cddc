"""Validation of free text: descriptions and reasons."""

from __future__ import annotations

from pt2hub.domain.plain_text import find_control
from pt2hub.errors import InvalidInput


def plain(text: str, *, what: str, where: str) -> str:
    """Return a text stripped, with its line ends normalized to line feeds.

    Raises:
        InvalidInput: It contains a control character, which could make a terminal show something else.
    """
    kept = text.replace("\r\n", "\n").replace("\r", "\n").strip()
    for number, line in enumerate(kept.split("\n"), 1):
        if control := find_control(line):
            raise InvalidInput(
                f"{what} contains the control character {control!a} in line {number}",
                where=where,
                hint="Remove it; if it is invisible, retype the words around it.",
            )
    return kept
