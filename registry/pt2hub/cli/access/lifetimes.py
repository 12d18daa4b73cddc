"""Lifetimes of tokens, as options name them."""

from __future__ import annotations

from datetime import timedelta

_LONGEST_S = 10**9
"""Longer than any token lives, and short enough for Python to say."""


def parse_lifetime(text: str, option: str) -> timedelta:
    """Return a duration such as `90d`; what is longer than any token lives is left to the server to refuse.

    Args:
        option: Its name, for the error.

    Raises:
        BadConfiguration: The text has another form.
    """
    from pt2hub.client.availability import parse_duration

    return timedelta(seconds=min(parse_duration(text, option), _LONGEST_S))
