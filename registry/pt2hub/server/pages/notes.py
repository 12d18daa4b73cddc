"""What services note of builds, in pieces that templates can show: times stand in it as text."""

from __future__ import annotations

import re

from pt2hub.domain.terminal import plain

_STAMP = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ)")
"""A time as notes have it, which pages show in the reader's zone."""


def pieces(note: str) -> list[tuple[str, str]]:
    """A note's text, each part with the time that stands behind it; the last one with none."""
    parts = _STAMP.split(plain(note))
    return list(zip(parts[::2], [*parts[1::2], ""], strict=True))
