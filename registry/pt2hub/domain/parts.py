"""What the parts of a spec have in common."""

from __future__ import annotations

from pydantic import ConfigDict

STRICT = ConfigDict(extra="forbid", frozen=True)
"""Every part of a spec refuses fields it does not know."""


def whole(pattern: str) -> str:
    """A pattern that matches the whole text and not a part of it."""
    return f"^(?:{pattern})$"  # pydantic searches; every pattern here means the whole text
