"""Shares of a build's steps in its time."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pt2hub.domain.artifacts import StepTiming

_MAX_SECONDS = 1e9
"""Longer times are clipped: no build takes longer."""


@dataclass(frozen=True, slots=True)
class StepShare:
    """A step.

    Attributes:
        share: Of the time of all steps, 0 to 1.
    """

    name: str
    seconds: float
    share: float


def share_steps(steps: Sequence[StepTiming]) -> list[StepShare]:
    """Return the steps of a build in their order, with what each takes of the whole; empty without any time."""
    times = [_sane(step.seconds) for step in steps]
    total = sum(times)
    if not total:
        return []
    return [
        StepShare(step.name, seconds, seconds / total) for step, seconds in zip(steps, times, strict=True)
    ]


def _sane(seconds: float) -> float:
    return min(max(seconds, 0.0), _MAX_SECONDS) if math.isfinite(seconds) else 0.0
