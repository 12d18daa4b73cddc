"""Latencies of versions on a target, and what counts as a change between them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from pt2hub.domain.performance.metrics import SAME_CODE_FACTOR
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
        codes: What identifies the code by version number (`ComparableMeasurement.built`): its digest, what it calls by name, and the
            toolchain; empty where that is unknown. Versions without an artifact are missing.
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
    codes: Mapping[int, str] = field(default_factory=dict)

    def ratio(self, number: int, before: int) -> float | None:
        """Return the latency of a version over that of another; None if one of them is not measured.

        A change that was flagged between the two says it better than two values do.
        """
        change = self.change
        if change and (number, before) == (change.number, change.before):
            return change.ratio
        one, other = self.values.get(number), self.values.get(before)
        return one / other if one and other else None

    def has_same_code(self, number: int, before: int) -> bool:
        """Return whether two versions run the same code, so that two values that differ say nothing.

        The comparison of single runs has the same rule (`services.performance.comparison_evidence`), and the same bound: other weights
        may mean other work.
        """
        if self.change and (number, before) == (self.change.number, self.change.before):
            return False
        ratio, code = self.ratio(number, before) or math.inf, self.codes.get(number)
        is_same = bool(code) and code == self.codes.get(before)
        return is_same and 1 / SAME_CODE_FACTOR < ratio < SAME_CODE_FACTOR

    def outcome(self, number: int, before: int) -> str:
        """Return how a version compares with another one.

        Returns:
            `better`, `worse`, `same` (within the limit), or `inconclusive`: what would count, but may be noise; empty if one of
            them is not measured.
        """
        ratio = self.ratio(number, before)
        if ratio is None or ratio <= 0 or not math.isfinite(ratio):
            return ""
        if abs(math.log(ratio)) <= self.least or self.has_same_code(number, before):
            return "same"
        if abs(math.log(ratio)) <= self.limit:
            return "inconclusive"
        return "worse" if ratio > 1 else "better"
