"""Characters that have no place in text that people read."""

from __future__ import annotations

import unicodedata

_CONTROL_CATEGORIES = frozenset({"Cc", "Cs"})
_BIDI_CONTROLS = frozenset({"LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"})
"""Unicode's bidirectional classes that display text in another order than it is written."""


def find_control(line: str) -> str | None:
    """Return the first character of a line that is a control character or changes the direction of text."""
    return next(filter(_is_control, line), None)


def _is_control(char: str) -> bool:
    return (
        unicodedata.category(char) in _CONTROL_CATEGORIES or unicodedata.bidirectional(char) in _BIDI_CONTROLS
    )
