"""Speeds of versions beside that of a version in use."""

from __future__ import annotations

from dataclasses import dataclass

from pt2hub.domain.performance.metrics import default_threshold
from pt2hub.rendering.changes import format_change

WITHIN = "within the noise"


@dataclass(frozen=True, slots=True)
class SpeedChange:
    """How a version's measurement differs from another's.

    Attributes:
        outcome: `better`, `worse` or `same`.
        text: `3.1 % faster than prod`.
    """

    outcome: str
    text: str


def compare_speed(
    value: float, base: float, metric: str, unit: str, *, noise: float | None, than: str
) -> SpeedChange | None:
    """Return how a measurement differs from another of the same series; None where a ratio means nothing.

    Args:
        noise: Usual relative spread of the series; a smaller change, or one below the metric's minimum effect, is noise.
        than: What the other version is called.
    """
    if value <= 0 or base <= 0:
        return None
    ratio, threshold = value / base, default_threshold(metric)
    if abs(ratio - 1) <= max(threshold.min_effect, noise or 0.0):
        return SpeedChange("same", WITHIN)
    is_better = (ratio < 1) == (threshold.better == "lower")
    outcome = ("better" if is_better else "worse") if threshold.better else "same"
    return SpeedChange(outcome, f"{format_change(ratio, metric, unit)} than {than}")
