"""What services note of builds, in pieces that templates can show: times stand in it as text."""

from __future__ import annotations

import re
from dataclasses import dataclass

from pt2hub.domain.terminal import plain

_STAMP = re.compile(r"(at )?(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ)")
"""A time as notes have it."""


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a note.

    Attributes:
        text: Its words.
        time: The time behind them, ISO 8601, or nothing.
        is_past: Whether how long ago that is says more than when.
    """

    text: str
    time: str = ""
    is_past: bool = False


def pieces(note: str) -> list[Piece]:
    """A note's parts; the last one has no time.

    A time that something happened `at` is past: how long ago it was is as long in words before a script has run as
    after it, so that nothing moves.
    """
    parts = _STAMP.split(plain(note))
    times = zip(parts[::3], parts[1::3], parts[2::3], strict=False)
    return [*(Piece(text, time, bool(at)) for text, at, time in times), Piece(parts[-1])]
