"""How much worse one measurement is than another, and whether a limit allows it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pt2hub.rendering.quantities import format_share

if TYPE_CHECKING:
    from pt2hub.domain.performance.metrics import Threshold
    from pt2hub.wire.performance import MetricComparison

_MIN_FACTOR = 2.0
"""From here on, a factor is easier to read than a percentage."""
_ROUNDING = 1e-9
"""Relative rounding error of float ratios."""


@dataclass(frozen=True, slots=True)
class Deterioration:
    """How much worse one measurement is than another, as ratios; above 1 is worse.

    Attributes:
        outcome: Of the comparison.
        ratio: The estimate, None where there is none.
        low: Lower bound, None where the method has none.
        noisy: Whether noise is the only reason for an inconclusive comparison.
    """

    outcome: str
    ratio: float | None
    low: float | None
    high: float | None
    exact: bool
    noisy: bool

    @classmethod
    def of(cls, found: MetricComparison, threshold: Threshold) -> Deterioration:
        """Return the deterioration in a comparison, given the better direction."""
        ratio, low, high = found.ratio, found.low, found.high
        if threshold.better == "higher":
            ratio, low, high = _inverse(ratio), _inverse(high), _inverse(low)
        exact, noisy = found.method == "exact", found.reason == "too_noisy" and threshold.better is not None
        return cls(found.outcome, ratio, low, high, exact, noisy)

    def within(self, most: float) -> bool | None:
        """Return whether it is at most this much worse, beyond the noise; None where that is inconclusive.

        Noise that is too wide for a verdict need not be for a check: what is within its limit at the worst passes.
        """
        limit = (1 + most) * (1 + _ROUNDING)
        if self.outcome == "inconclusive":
            if not self.noisy or self.low is None or self.high is None:
                return None
            return True if self.high <= limit else (False if self.low > limit else None)
        if self.outcome == "better" or (self.ratio is not None and self.ratio <= limit):
            return True
        # A limit below the least effect that counts: the verdict is `same`, and yet it may be surely worse.
        beyond_noise = self.exact or (self.low is not None and self.low > 1)
        return not (self.outcome == "worse" or beyond_noise)

    def __str__(self) -> str:
        if self.ratio is None:
            return "worse"
        way = "worse" if self.ratio > 1 else "better"
        return f"{percent_of(max(self.ratio, 1 / self.ratio))} {way}"


def percent_of(ratio: float) -> str:
    """Return how much worse a ratio above 1 is: `5 %`, or `2.5 times` from a factor of 2 on."""
    return f"{ratio:.3g} times" if ratio >= _MIN_FACTOR else format_share(ratio - 1)


def _inverse(value: float | None) -> float | None:
    return 1 / value if value else None
