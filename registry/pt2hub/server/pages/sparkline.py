"""Sparklines: small lines of values without axes, drawn as SVG polylines."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


def points(values: Sequence[float], width: float = 100, height: float = 24, least: float = 0.1) -> str:
    """Return the points of a sparkline's polyline in a box of `width` by `height`.

    Args:
        least: The share of the largest value that the y axis spans at least, so that noise does not look like cliffs.
    """
    if not values:
        return ""
    low, high = min(values), max(values)
    spread = max(high - low, least * max(abs(low), abs(high))) or 1.0
    middle = (low + high) / 2
    step = width / max(1, len(values) - 1)
    return " ".join(
        f"{index * step:.1f},{height / 2 - (value - middle) / spread * (height - 4):.1f}"
        for index, value in enumerate(values)
    )
