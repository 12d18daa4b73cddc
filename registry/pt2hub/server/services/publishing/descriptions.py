"""Validation of free text: descriptions and reasons."""

from __future__ import annotations

from pt2hub.domain.plain_text import find_control
from pt2hub.errors import InvalidInput

_CONTROLS = r"\x00-\x09\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069"
TEXT_PATTERN = rf"[^{_CONTROLS}]*"
"""What `plain` takes, for the OpenAPI document: no characters that `find_control` finds, but line ends."""
_MARK = rf"[^\s{_CONTROLS}]"
LINE_PATTERN = rf"{_MARK}(?:[^{_CONTROLS}\n\r\u2028\u2029]*{_MARK})?"
"""One line of such a text, without spaces around it."""
REASON_PATTERN = rf"{TEXT_PATTERN}[^\s{_CONTROLS}]{TEXT_PATTERN}"
"""Such a text that is not blank."""


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
