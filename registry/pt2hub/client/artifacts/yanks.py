"""Warnings of yanked versions: a pinned version is still served, but somebody withdrew it."""

from __future__ import annotations

import json
import warnings
from typing import TYPE_CHECKING

from pt2hub.domain.codec import decode
from pt2hub.errors import INVISIBLE_CHARACTERS, BadResponse

if TYPE_CHECKING:
    from pt2hub.wire.resolution import Yank


class YankedVersionWarning(UserWarning):
    """The version was yanked: its publisher or another promoter withdrew it, and it is served because it is pinned."""


class YankWarnings:
    """Warns of each yank once."""

    def __init__(self) -> None:
        self._warned: set[Yank] = set()

    def warn(self, name: str, yank: Yank | None) -> None:
        """Warn of a version's yank.

        Args:
            name: The version as it was asked for: `team/name@3`.
            yank: None if it is not yanked.
        """
        if yank is None or yank in self._warned:
            return
        from pt2hub.rendering.promotions import yank_text

        self._warned.add(yank)
        text = yank_text(yank).translate(INVISIBLE_CHARACTERS)
        warnings.warn(f"{name} is {text}", YankedVersionWarning, stacklevel=2)


def read_yank(header: str | None) -> Yank | None:
    """Return the yank that a response's header names; None if there is none, or it is malformed."""
    if not header:
        return None
    from pt2hub.wire.resolution import Yank

    try:
        return decode(Yank, json.loads(header))
    except (ValueError, RecursionError, BadResponse):
        return None
