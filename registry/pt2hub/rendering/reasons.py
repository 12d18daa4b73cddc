"""Explanations of comparison outcomes: method, minimum effect and noise."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from pt2hub.rendering.changes import format_change
from pt2hub.rendering.quantities import format_share
from pt2hub.rendering.states import format_state

if TYPE_CHECKING:
    from pt2hub.wire.performance import MetricComparison

NOTHING = "-"
WHY = {
    "environment_differs": "environments differ",
    "too_few": "too few measurements",
    "unit_differs": "units differ",
    "no_direction": "no direction",
}
HOW = {
    "paired": "side by side",
    "replicates": "separate runs",
    "series": "usual noise",
    "code": "code unchanged, so that no kernel can differ",
}
"""Short descriptions of comparison methods whose name does not explain them."""
_MAX_NOISE = 10.0


def noise_of(low: float | None, high: float | None) -> float | None:
    """Return the uncertainty of a change, from a ratio's interval: 0.032 is 3.2 %; None if unknown."""
    if low is None or high is None or low <= 0 or not math.isfinite(high / low):
        return None
    return math.sqrt(high / low) - 1


def because(item: MetricComparison) -> str:
    """Return the explanation of a metric's outcome.

    Such as `side by side; within 15 %: the minimum effect of latency_p99; the noise is 2.1 %`.
    """
    if item.reason:
        words = WHY.get(item.reason, format_state(item.reason))
        return f"{words}: {item.detail}" if item.detail else words
    if item.method == "code" or item.min_effect is None or item.ratio is None:  # an older server says less
        return _how(item)
    return f"{_how(item)}; {_threshold_text(item, item.min_effect)}"


def _threshold_text(item: MetricComparison, least: float) -> str:
    """Return the minimum effect and the noise, compared with the change.

    What is shown of processes side by side is their median, and the verdict is by their mean: where they lie on two
    sides of the least change, the mean is said too.
    """
    return f"{_comparison_text(item, least)}{_by_mean(item, least)}"


def _by_mean(item: MetricComparison, least: float) -> str:
    if not (item.ratio and item.low and item.high) or min(item.ratio, item.low, item.high) <= 0:
        return ""
    # Each by itself: the product of two ratios that can be may be none.
    mean, bound = math.sqrt(item.low) * math.sqrt(item.high), math.log1p(least)
    if (abs(math.log(item.ratio)) > bound) == (abs(math.log(mean)) > bound):
        return ""
    return f"; decided by the mean of the processes, {format_change(mean, item.metric, item.unit)}"


def _comparison_text(item: MetricComparison, least: float) -> str:
    noise = "" if item.method == "exact" or item.noise is None else percentage(item.noise)
    if item.outcome != "same":
        beyond = f", and beyond the noise, {noise}" if noise else ""
        return f"beyond {percentage(least)}, the minimum effect of {item.metric}{beyond}"
    within = f"within {percentage(least)}: the minimum effect of {item.metric}"
    if not noise:
        return within
    if item.low is not None and item.high is not None and item.low <= 1 <= item.high:
        return f"within the noise, {noise}, and {within}"
    return f"{within}; the noise is {noise}"


def _how(item: MetricComparison) -> str:
    return HOW.get(item.method or "", item.method or NOTHING)


def percentage(share: float) -> str:
    """Return noise as a percentage: `15 %`, `0.4 %`; `over 1,000 %` beyond that."""
    return "over 1,000 %" if share > _MAX_NOISE else format_share(share, digits=2)
