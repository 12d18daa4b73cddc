"""Small drawings of changes with their confidence intervals: worse is to the right, and rows of a table have one scale."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pt2hub.domain.performance.metrics import METRICS
from pt2hub.rendering.comparisons import change
from pt2hub.rendering.quantities import format_share

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pt2hub.wire.performance import MetricComparison

WIDTH, HEIGHT = 160, 20
_MIN_REACH = 2.5
"""Minimum range of a drawing to either side, in minimum effects."""
_MAX_REACH = math.log(4)
"""Maximum range: larger changes are cut off at a factor of four."""
_MARGIN = 1.1
_DEFAULT_EFFECT = 0.05


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


def common_reach(items: Iterable[MetricComparison]) -> float:
    """Return the range to either side that the drawings of several changes share, on the logarithmic axis.

    Where something changed, what did not change may reach beyond it: noise and wide limits would flatten the others.
    """
    drawn = [item for item in items if _logs(item)]
    shown = [item for item in drawn if item.outcome in ("better", "worse")] or drawn
    least = max((_MIN_REACH * _effect(item) for item in shown), default=_MIN_REACH)
    most = max((abs(value) * _MARGIN for item in shown for value in _logs(item)), default=0.0)
    return max(least, min(most, _MAX_REACH))


def interval(item: MetricComparison, reach: float) -> Interval | None:
    """Return the drawing of a metric's change, or None without a finite, positive ratio.

    Args:
        reach: The range to either side, from `common_reach`.
    """
    logs = _logs(item)
    if not logs:
        return None
    effect = _effect(item)

    def x(value: float) -> float:
        share = min(max(value / reach, -1.0), 1.0)
        return round(WIDTH / 2 + share * (WIDTH / 2 - 6), 1)

    return Interval(x(logs[0]), x(min(logs)), x(max(logs)), x(-effect), x(effect), _label(item))


def _logs(item: MetricComparison) -> list[float]:
    """Return the logarithms of the ratio and the ends of its interval, worse ones positive; empty if one has none."""
    known = [ratio for ratio in (item.ratio, item.low, item.high) if ratio is not None]
    if item.ratio is None or not all(math.isfinite(ratio) and ratio > 0 for ratio in known):
        return []
    sign = 1.0 if _is_worse_up(item) else -1.0
    return [sign * math.log(ratio) for ratio in known]


def _effect(item: MetricComparison) -> float:
    return math.log1p(item.min_effect or _DEFAULT_EFFECT)


def _is_worse_up(item: MetricComparison) -> bool:
    """Return whether a higher value is worse, as for times; true where neither direction is better."""
    if item.outcome in ("better", "worse") and item.ratio:
        return (item.ratio > 1) == (item.outcome == "worse")
    known = METRICS.get(item.metric)
    return known is None or known.better == "lower"


def _label(item: MetricComparison) -> str:
    effect = f"; minimum effect {format_share(item.min_effect)}" if item.min_effect else ""
    return f"{change(item.ratio, item.low, item.high, (item.metric, item.unit))}{effect}"
