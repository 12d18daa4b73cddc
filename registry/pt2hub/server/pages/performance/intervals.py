"""Small drawings of changes with their confidence intervals: worse is always to the right."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pt2hub.domain.performance.metrics import METRICS
from pt2hub.rendering.comparisons import change
from pt2hub.rendering.quantities import format_share

if TYPE_CHECKING:
    from pt2hub.wire.performance import MetricComparison

WIDTH, HEIGHT = 160, 20
_MIN_REACH = 2.5
"""Minimum range of a drawing to either side, in minimum effects."""
_MAX_REACH = math.log(4)
"""Maximum range: larger changes are cut off at a factor of four."""


@dataclass(frozen=True, slots=True)
class Interval:
    """A change, drawn on a logarithmic axis with no change in the middle and worse to the right.

    Attributes:
        at: Position of the ratio.
        low: Lower end of its interval; the ratio itself if there is none.
        high: Upper end of its interval.
        from_: Start of the range below the minimum effect.
        to: End of that range.
    """

    at: float
    low: float
    high: float
    from_: float
    to: float
    label: str


def interval(item: MetricComparison) -> Interval | None:
    """Return the drawing of a metric's change, or None without a finite, positive ratio."""
    known = [ratio for ratio in (item.ratio, item.low, item.high) if ratio is not None]
    if item.ratio is None or not all(math.isfinite(ratio) and ratio > 0 for ratio in known):
        return None
    effect = math.log1p(item.min_effect or 0.05)
    sign = 1.0 if _is_worse_up(item) else -1.0
    logs = [sign * math.log(ratio) for ratio in known]
    reach = min(
        max(_MIN_REACH * effect, *(abs(value) * 1.1 for value in logs)), max(_MAX_REACH, _MIN_REACH * effect)
    )

    def x(value: float) -> float:
        share = min(max(value / reach, -1.0), 1.0)
        return round(WIDTH / 2 + share * (WIDTH / 2 - 6), 1)

    return Interval(x(logs[0]), x(min(logs)), x(max(logs)), x(-effect), x(effect), _label(item))


def _is_worse_up(item: MetricComparison) -> bool:
    """Return whether a higher value is worse, as for times; true where neither direction is better."""
    if item.outcome in ("better", "worse") and item.ratio:
        return (item.ratio > 1) == (item.outcome == "worse")
    known = METRICS.get(item.metric)
    return known is None or known.better == "lower"


def _label(item: MetricComparison) -> str:
    effect = f"; minimum effect {format_share(item.min_effect)}" if item.min_effect else ""
    return f"{change(item.ratio, item.low, item.high, (item.metric, item.unit))}{effect}"
