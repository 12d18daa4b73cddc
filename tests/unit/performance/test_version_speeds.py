"""Latencies of versions: what counts as a change, and the chart of a model's page."""

from __future__ import annotations

import math
from dataclasses import replace

from pt2hub.analysis.changes import find_noise_limit
from pt2hub.domain.performance.metrics import default_threshold
from pt2hub.server.pages.promotion.speed_texts import describe_speed
from pt2hub.server.pages.publishing.speed_chart import HEIGHT, WIDTH, draw_chart
from pt2hub.server.views.version_speeds import VersionSpeeds
from pt2hub.wire.performance import ChangeView

H100 = "torch2.13-cu130-sm90"


def speeds(*values: float, change: ChangeView | None = None) -> VersionSpeeds:
    """A series of versions 1, 2, 3, ... in which 2 % count, and 5 % may be noise."""
    history = tuple(enumerate(values, start=1))
    return VersionSpeeds(
        1,
        H100,
        "latency_p50",
        "ms",
        8,
        dict(history),
        math.log1p(0.02),
        math.log1p(0.05),
        history=history,
        change=change,
    )


def test_a_change_that_counts_is_inconclusive_as_long_as_it_may_be_noise() -> None:
    found = speeds(10.0, 10.1, 11.0, 9.0, 10.4, 9.6)
    outcomes = [found.outcome(number, 1) for number in range(2, 7)]
    assert outcomes == ["same", "worse", "better", "inconclusive", "inconclusive"]
    assert found.outcome(9, 1) == found.outcome(1, 9) == ""
    assert speeds(0.0, 5.0).outcome(2, 1) == ""


def test_two_values_of_the_same_code_are_no_change_unless_it_was_flagged_or_they_are_far_apart() -> None:
    codes = {1: "a", 2: "a", 3: "b", 4: "a"}
    found = replace(speeds(10.0, 11.5, 11.5, 25.0), codes=codes)
    assert [found.outcome(number, 1) for number in (2, 3, 4)] == ["same", "worse", "worse"]
    assert describe_speed(found, 2, 1).note == "15.0 % slower than version 1; both run the same code"
    assert [describe_speed(found, number, 1).is_same_code for number in (2, 3, 4)] == [True, False, False]
    flagged = replace(found, change=ChangeView(2, 1, "worse", 1.15))
    assert flagged.outcome(2, 1) == "worse"
    assert replace(found, codes={1: "a"}).outcome(2, 1) == "worse"


def test_a_flagged_change_is_the_same_number_everywhere() -> None:
    found = speeds(10.0, 11.1, change=ChangeView(2, 1, "worse", 1.118))
    assert describe_speed(found, 2, 1).beside == "11.8 % slower than version 1"


def test_without_a_measurement_nothing_is_said() -> None:
    assert describe_speed(None, 1, 2).value == ""
    assert describe_speed(speeds(10.0), 7, 1).value == ""
    only = describe_speed(speeds(10.0), 1, 7)
    assert (only.value, only.outcome, only.change) == ("10 ms", "", "")
    assert describe_speed(speeds(10.0), 1, 1).outcome == ""


def test_a_noisy_series_has_a_wider_limit() -> None:
    threshold = default_threshold("latency_p50")
    quiet, noisy = [10.0, 10.01] * 10, [10.0, 13.0] * 10
    assert find_noise_limit(quiet, threshold) == math.log1p(threshold.min_effect)
    assert find_noise_limit(noisy, threshold) > 0.3


def test_a_chart_marks_the_versions_of_aliases_and_the_newest_change() -> None:
    chart = draw_chart(
        speeds(10.0, 10.0, 12.0, change=ChangeView(3, 2, "worse", 1.2)), [("prod", 2), ("live", 2)]
    )
    assert chart is not None
    assert chart.title == "Median latency on H100 · torch 2.13, batch 8"
    assert (chart.first, chart.last, chart.note) == (1, 3, "20.0 % slower since version 3")
    assert [(mark.number, mark.label, mark.x) for mark in chart.marks] == [(2, "prod, live", WIDTH / 2)]
    assert len(chart.line.split()) == 3
    assert chart.since == " ".join(chart.line.split()[1:])
    heights = [float(point.split(",")[1]) for point in chart.line.split()]
    assert heights[2] < heights[0] == heights[1] < HEIGHT
    assert "from 10 ms to 12 ms" in chart.summary


def test_noise_is_drawn_flat_and_one_version_not_at_all() -> None:
    assert draw_chart(speeds(10.0), []) is None
    assert draw_chart(None, []) is None
    chart = draw_chart(speeds(10.0, 10.1, 10.0), [("prod", 99)])
    assert chart is not None
    assert chart.marks == ()
    heights = [float(point.split(",")[1]) for point in chart.line.split()]
    assert max(heights) - min(heights) < HEIGHT / 10
    assert draw_chart(speeds(0.0, 0.0), []) is not None
