"""Usual durations of build steps, for estimates on pages."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class StepDurations:
    """Durations of the steps of earlier builds.

    Attributes:
        now: The database's clock, ISO 8601, UTC: builds' times are of the same clock.
        medians: Median of each step, seconds without waits for the device; empty without earlier builds.
        counts: Number of builds behind each median.
        builds: Number of earlier builds.
        same_model: Whether they are of the same model; else only their target is the same.
    """

    now: str
    medians: dict[str, float] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    builds: int = 0
    same_model: bool = False
