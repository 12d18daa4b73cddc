"""Steps of a build as parts of one bar."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pt2hub.domain.artifacts import StepTiming

WIDTH = 1000.0
"""Of the bar, in its own unit."""
_COLOURS = 9
_LONGEST = 1e9
"""Seconds: no build takes longer; what says so is shown as that."""


@dataclass(frozen=True, slots=True)
class Part:
    """A step.

    Attributes:
        name: The step.
        seconds: Its time.
        share: In percent of all.
        x: Where it begins, of `WIDTH`.
        width: How wide it is.
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
    """A bar.

    Attributes:
        parts: Steps in their order.
        seconds: All of them together.
    """

    parts: tuple[Part, ...]
    seconds: float

    @property
    def label(self) -> str:
        """What it shows, in words."""
        shares = ", ".join(f"{part.name} {part.share:.0f} %" for part in self.parts)
        return f"Share of each step in {self.seconds:.1f} s: {shares}"


def bar(steps: Sequence[StepTiming]) -> Bar:
    """The bar of a build's steps.

    Args:
        steps: In their order.
    """
    times = [_sane(step.seconds) for step in steps]
    total = sum(times)
    parts, x = [], 0.0
    for place, (step, seconds) in enumerate(zip(steps, times, strict=True)):
        share = seconds / total if total else 0.0
        parts.append(
            Part(step.name, seconds, 100 * share, round(x, 2), round(WIDTH * share, 2), place % _COLOURS + 1)
        )
        x += WIDTH * share
    return Bar(tuple(parts), total)


def _sane(seconds: float) -> float:
    return min(max(seconds, 0.0), _LONGEST) if math.isfinite(seconds) else 0.0
