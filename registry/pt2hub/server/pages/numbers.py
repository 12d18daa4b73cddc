"""Whole numbers that people write, in addresses and forms."""

from __future__ import annotations

from flask import request

from pt2hub.domain.builds import HIGHEST_PRIORITY, LOWEST_PRIORITY
from pt2hub.errors import InvalidInput

MOST_VERSION = 999_999_999
"""Of a version: as many digits as references have."""
_MOST_DIGITS = 19
_SHOWN = 80


def whole(text: str, where: str, least: int, most: int, *, what: str = "whole number", hint: str) -> int:
    """A whole number.

    Args:
        text: As somebody wrote it.
        where: The field that holds it.
        least: The smallest that it may be.
        most: The largest.
        what: What it is, for the error.
        hint: What to write instead.

    Raises:
        InvalidInput: It is none, or out of its range.
    """
    digits = text.removeprefix("-")
    good = digits.isascii() and digits.isdigit() and len(digits) <= _MOST_DIGITS
    if not good or not least <= int(text) <= most:
        raise InvalidInput(f"{text[:_SHOWN]!a} is no {what}", where=where, hint=hint)
    return int(text)


def in_address(where: str, least: int, most: int, *, what: str = "whole number", hint: str) -> int | None:
    """A whole number in the current request's address, None where none is given; arguments and errors as of `whole`."""
    text = request.args.get(where, "").strip()
    return whole(text, where, least, most, what=what, hint=hint) if text else None


def priority(text: str) -> int:
    """A priority of builds.

    Raises:
        InvalidInput: It is none.
    """
    hint = (
        f"Give a whole number from {LOWEST_PRIORITY} to {HIGHEST_PRIORITY}; 0 is usual, higher comes first."
    )
    return whole(text, "priority", LOWEST_PRIORITY, HIGHEST_PRIORITY, what="priority", hint=hint)
