"""Whole numbers in URLs and forms."""

from __future__ import annotations

from flask import request

from pt2hub.domain.builds import HIGHEST_PRIORITY, LOWEST_PRIORITY
from pt2hub.errors import InvalidInput

MAX_VERSION = 999_999_999
"""The largest version number: references have at most nine digits."""
MAX_ID = 2**63 - 1
"""The largest number that the database gives to a row."""
_MAX_DIGITS = 19
_MAX_SHOWN = 80


def parse_whole_number(
    text: str, where: str, low: int, high: int, *, what: str = "whole number", hint: str
) -> int:
    """Parse a whole number.

    Args:
        what: What the number is, for the error message.

    Raises:
        InvalidInput: The text is not a whole number from `low` to `high`.
    """
    digits = text.removeprefix("-")
    good = digits.isascii() and digits.isdigit() and len(digits) <= _MAX_DIGITS
    if not good or not low <= int(text) <= high:
        raise InvalidInput(f"Invalid {what} {text[:_MAX_SHOWN]!a}", where=where, hint=hint)
    return int(text)


def query_number(where: str, low: int, high: int, *, what: str = "whole number", hint: str) -> int | None:
    """Parse a whole number from the current request's query, None if absent. Arguments and errors as in `parse_whole_number`."""
    text = request.args.get(where, "").strip()
    return parse_whole_number(text, where, low, high, what=what, hint=hint) if text else None


def parse_priority(text: str) -> int:
    """Parse a build priority.

    Raises:
        InvalidInput: The text is not a priority.
    """
    hint = f"Enter a whole number from {LOWEST_PRIORITY} to {HIGHEST_PRIORITY}; higher runs first, the default is 0."
    return parse_whole_number(text, "priority", LOWEST_PRIORITY, HIGHEST_PRIORITY, what="priority", hint=hint)
