"""Quantiles of Student's distribution, without a library that workers on GPU machines would have to carry."""

from __future__ import annotations

import math
from functools import lru_cache

MOST_DEGREES = 200
"""Beyond these the quantile is that of 200: 1 % too wide at most for a confidence of 0.99."""
_STEPS = 60


@lru_cache(maxsize=256)
def half_width(degrees: int, confidence: float) -> float:
    """How many standard errors lie between a mean and the end of its two-sided interval.

    Args:
        degrees: Degrees of freedom, at least 1.
        confidence: Between 0 and 1, exclusively.
    """
    degrees = min(degrees, MOST_DEGREES)
    low, high = 0.0, math.pi / 2
    for _ in range(_STEPS):  # bisection over the angle, which is bounded where the quantile is not
        angle = (low + high) / 2
        low, high = (angle, high) if _inside(angle, degrees) < confidence else (low, angle)
    return math.sqrt(degrees) * math.tan(low)


def _inside(angle: float, degrees: int) -> float:
    """Probability within +-sqrt(degrees) * tan(angle): Abramowitz and Stegun, 26.7.3 and 26.7.4."""
    sine, cosine = math.sin(angle), math.cos(angle)
    odd = degrees % 2
    term = cosine if odd else 1.0
    total = 0.0
    for step in range(1 + odd, degrees, 2):
        total += term
        term *= cosine * cosine * step / (step + 1)
    return 2 / math.pi * (angle + sine * total) if odd else sine * total
