"""Lists and small numbers in sentences."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

_BOTH = 2
_NUMBERS = [
    "no",
    "one",
    "two",
    "three",
    "four",
    "five",
    "six",
    "seven",
    "eight",
    "nine",
    "ten",
    "eleven",
    "twelve",
]


def join_words(words: Iterable[str]) -> str:
    """Join words as a list in a sentence: `a, b and c`."""
    *first, last = [*words] or [""]
    return f"{', '.join(first)} and {last}" if first else last


def count_word(number: int) -> str:
    """Return a small number as a word, a larger one in digits."""
    return _NUMBERS[number] if 0 <= number < len(_NUMBERS) else f"{number:,}"


def all_targets(count: int) -> str:
    """Return all of so many targets, in words."""
    return "both targets" if count == _BOTH else f"all {count_word(count)} targets"
