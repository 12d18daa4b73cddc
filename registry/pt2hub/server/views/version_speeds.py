"""Latencies of versions on a target, and what counts as a change between them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from pt2hub.wire.performance import ChangeView


@dataclass(frozen=True, slots=True)
class VersionSpeeds:
    """Latencies of versions in one series: the same target, batch size and environment.

    Attributes:
        series: Id of the series.
        values: Latency by version number; versions without a measurement are missing.
        least: Logarithm of the least ratio that counts.
        limit: Logarithm of the largest ratio that may be noise; more than that in noisy series.
        history: Number and latency of the last versions, oldest first.
        change: The newest flagged change among those versions; None if there is none.
    """

    series: int
    target: str
    metric: str
    unit: str
    batch: int | None
    values: Mapping[int, float]
    least: float
    limit: float
    history: tuple[tuple[int, float], ...] = ()
    change: ChangeView | None = None

    def ratio(self, number: int, before: int) -> float | None:
        """Return the latency of a version over that of another; None if one of them is not measured.

        A change that was flagged between the two says it better than two values do.
        """
        change = self.change
        if change and (number, before) == (change.number, change.before):
            return change.ratio
        one, other = self.values.get(number), self.values.get(before)
        return one / other if one and other else None

    def outcome(self, number: int, before: int) -> str:
        """Return how a version compares with another one.

        Returns:
            `better`, `worse`, `same` (within the limit), or `inconclusive`: what would count, but may be noise; empty if one of
            them is not measured.
        """
        ratio = self.ratio(number, before)
        if ratio is None or ratio <= 0 or not math.isfinite(ratio):
            return ""
        if abs(math.log(ratio)) <= self.least:
            return "same"
        if abs(math.log(ratio)) <= self.limit:
            return "inconclusive"
        return "worse" if ratio > 1 else "better"
