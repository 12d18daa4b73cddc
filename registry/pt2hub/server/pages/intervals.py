"""Changes as small drawings: where the ratio lies, how well it is known, and what is too little to count."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pt2hub.rendering.comparing import change

if TYPE_CHECKING:
    from pt2hub.wire.performance import MetricComparison

WIDTH, HEIGHT = 160, 20
_MOST = 2.5
"""Least effects that a drawing reaches to on either side, where the change itself reaches less far."""
_FURTHEST = math.log(4)
"""A factor of four: what is further is cut off at the edge."""


@dataclass(frozen=True, slots=True)
class Interval:
    """A change, drawn on a logarithmic axis with no change in the middle.

    Attributes:
        at: Where the ratio lies.
        low: Lower end of its interval; the ratio itself where there is none.
        high: Its upper end.
        from_: Where what is too little to count begins.
        to: Where that ends.
        label: That in words.
    """

    at: float
    low: float
    high: float
    from_: float
    to: float
    label: str


def interval(item: MetricComparison) -> Interval | None:
    """The drawing of a metric's change; None where there is no ratio, or none that can be drawn."""
    known = [ratio for ratio in (item.ratio, item.low, item.high) if ratio is not None]
    if item.ratio is None or not all(math.isfinite(ratio) and ratio > 0 for ratio in known):
        return None
    least = math.log1p(item.min_effect or 0.05)
    logs = [math.log(ratio) for ratio in known]
    reach = min(max(_MOST * least, *(abs(value) * 1.1 for value in logs)), max(_FURTHEST, _MOST * least))

    def x(value: float) -> float:
        share = min(max(value / reach, -1.0), 1.0)
        return round(WIDTH / 2 + share * (WIDTH / 2 - 6), 1)

    low = math.log(item.low) if item.low is not None else logs[0]
    high = math.log(item.high) if item.high is not None else logs[0]
    return Interval(x(logs[0]), x(low), x(high), x(-least), x(least), _label(item))


def _label(item: MetricComparison) -> str:
    least = f"; less than {100 * item.min_effect:.3g} % does not count" if item.min_effect else ""
    return f"{change(item.ratio, item.low, item.high, (item.metric, item.unit))}{least}"
