"""Changes in words: which way, and never a negative percentage."""

from __future__ import annotations

import math

import pytest

from pt2hub.rendering.changes import format_change
from pt2hub.rendering.comparisons import change


@pytest.mark.parametrize(
    ("ratio", "metric", "unit", "text"),
    [
        (1.5, "latency_p50", "ms", "50.0 % slower"),
        (10 / 15, "latency_p50", "ms", "33.3 % faster"),
        (0.8, "throughput", "1/s", "20.0 % lower"),
        (1.2, "throughput", "1/s", "20.0 % higher"),
        (0.5, "code_bytes", "B", "50.0 % smaller"),
        (1.011, "host_memory_peak", "B", "1.1 % larger"),
        (0.9, "relative_error", "1", "10.0 % smaller"),
        (1.1, "speedup", "1", "10.0 % higher"),
        (0.9, "battery_life", "h", "10.0 % shorter"),  # nobody has said that shorter is better
        (0.9, "clicks", "1/s", "10.0 % lower"),
        (25, "load_time", "ms", "25 times slower"),
        (1977.4, "fetch_time", "s", "1,977 times slower"),
        (1.0004, "latency_p50", "ms", "no change"),
        (math.inf, "latency_p50", "ms", "-"),
        (0.0, "latency_p50", "ms", "-"),
    ],
)
def test_a_change_says_which_way_with_a_positive_percentage(
    ratio: float, metric: str, unit: str, text: str
) -> None:
    assert format_change(ratio, metric, unit) == text


@pytest.mark.parametrize(
    ("ends", "text"),
    [
        ((1.05, 1.15), "10.0 % slower (5.0 to 15.0 %)"),
        ((0.98, 1.15), "10.0 % slower (2.0 % faster to 15.0 % slower)"),
        ((1.05, 12.0), "10.0 % slower"),
        ((0.9, 90.0), "unknown"),
    ],
)
def test_its_interval_names_the_ways_only_where_there_are_two(ends: tuple[float, float], text: str) -> None:
    assert change(1.1, *ends, ("latency_p50", "ms")) == text


def test_an_interval_of_the_better_side_runs_from_the_least_to_the_most() -> None:
    assert change(0.9, 0.85, 0.95, ("latency_p50", "ms")) == "10.0 % faster (5.0 to 15.0 %)"
    assert change(0.9, 0.85, 0.95, ("throughput", "1/s")) == "10.0 % lower (5.0 to 15.0 %)"
