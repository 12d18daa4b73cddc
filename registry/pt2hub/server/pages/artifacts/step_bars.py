"""Steps of a build as parts of a bar."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pt2hub.rendering.quantities import format_duration, format_share

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pt2hub.domain.artifacts import StepTiming

WIDTH = 1000.0
"""Width of the bar, in SVG units."""
_COLOURS = 9
_MAX_SECONDS = 1e9
"""Longer times are clipped: no build takes longer."""


@dataclass(frozen=True, slots=True)
class Part:
    """A step.

    Attributes:
        x: Start, of `WIDTH`.
        colour: Number of its colour, from 1.
    """

    name: str
    seconds: float
    share: float
    x: float
    width: float
    colour: int


@dataclass(frozen=True, slots=True)
class Bar:
    """A bar of steps, in their order."""

    parts: tuple[Part, ...]
    seconds: float

    @property
    def label(self) -> str:
        """The bar as text."""
        shares = ", ".join(f"{part.name} {format_share(part.share / 100, decimals=0)}" for part in self.parts)
        return f"Share of each step in {format_duration(self.seconds)}: {shares}"


def bar(steps: Sequence[StepTiming]) -> Bar:
    """Return the bar of a build's steps."""
    times = [_sane(step.seconds) for step in steps]
    total = sum(times)
    parts, x = [], 0.0
    for index, (step, seconds) in enumerate(zip(steps, times, strict=True)):
        share = seconds / total if total else 0.0
        parts.append(
            Part(step.name, seconds, 100 * share, round(x, 2), round(WIDTH * share, 2), index % _COLOURS + 1)
        )
        x += WIDTH * share
    return Bar(tuple(parts), total)


def _sane(seconds: float) -> float:
    return min(max(seconds, 0.0), _MAX_SECONDS) if math.isfinite(seconds) else 0.0
