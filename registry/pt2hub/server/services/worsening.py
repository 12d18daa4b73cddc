"""By how much one figure is worse than another, and whether a limit allows it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pt2hub.domain.performance import Threshold
    from pt2hub.wire.performance import MetricComparison

_TIMES = 2.0
"""From here on people read a factor more easily than a percentage."""
_ROUNDING = 1e-9
"""Relative: what ratios of floats may be off by."""
_ALIKE = 1e-6
"""Differences below it are not worth a word."""


@dataclass(frozen=True, slots=True)
class Worse:
    """How much worse one figure is than another, as ratios of which those above 1 are worse.

    Attributes:
        verdict: Of the comparison.
        ratio: The estimate, None where there is none.
        low: The least that it may be, None where the method knows none.
        high: The most.
        exact: Whether there is no noise.
        noisy: Whether only noise is why they could not be compared.
    """

    verdict: str
    ratio: float | None
    low: float | None
    high: float | None
    exact: bool
    noisy: bool

    @classmethod
    def of(cls, found: MetricComparison, threshold: Threshold) -> Worse:
        """What a comparison says, by which way is better."""
        ratio, low, high = found.ratio, found.low, found.high
        if threshold.better == "higher":
            ratio, low, high = _inverse(ratio), _inverse(high), _inverse(low)
        exact, noisy = found.method == "exact", found.why == "too_noisy" and threshold.better is not None
        return cls(found.verdict, ratio, low, high, exact, noisy)

    def within(self, most: float) -> bool | None:
        """Whether it is worse by no more than that, beyond the noise; None where it cannot be told.

        Noise that is too wide for a verdict need not be for a gate: what is within its limit at the worst passes.
        """
        limit = (1 + most) * (1 + _ROUNDING)
        if self.verdict == "not_comparable":
            if not self.noisy or self.low is None or self.high is None:
                return None
            return True if self.high <= limit else (False if self.low > limit else None)
        if self.verdict == "better" or (self.ratio is not None and self.ratio <= limit):
            return True
        # A limit below the least effect that counts: the verdict is `same`, and yet it may be surely worse.
        beyond_noise = self.exact or (self.low is not None and self.low > 1)
        return not (self.verdict == "worse" or beyond_noise)

    def __str__(self) -> str:
        if self.ratio is None:
            return "worse"
        if abs(self.ratio - 1) < _ALIKE:
            return "no worse"
        way = "worse" if self.ratio > 1 else "better"
        return f"{percent_of(max(self.ratio, 1 / self.ratio))} {way}"


def percent_of(ratio: float) -> str:
    """How much worse a ratio above 1 is: `5 %`, and `2.5 times` from twice on."""
    return f"{ratio:.3g} times" if ratio >= _TIMES else f"{100 * (ratio - 1):.3g} %"


def _inverse(value: float | None) -> float | None:
    return 1 / value if value else None
