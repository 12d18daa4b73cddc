"""Shared configuration and patterns of the parts of a spec."""

from __future__ import annotations

from pydantic import ConfigDict

STRICT = ConfigDict(extra="forbid", frozen=True)
"""Every part of a spec rejects unknown fields."""


def whole(pattern: str) -> str:
    """Anchor a pattern so that it must match the whole text."""
    return f"^(?:{pattern})$"  # pydantic searches instead of matching the whole text
