"""Groups of a comparison's measurements: what is open, what is folded, and in which direction worse is drawn."""

from __future__ import annotations

from typing import Any

import pytest

from pt2hub.server.pages.performance.comparison_groups import group_metrics
from pt2hub.server.pages.performance.intervals import WIDTH, common_reach, interval
from pt2hub.wire.performance import MetricComparison


def item(metric: str, unit: str, outcome: str, **values: Any) -> MetricComparison:
    return MetricComparison(metric, unit, outcome, **values)


def test_what_changed_is_open_and_stands_first_and_all_else_is_counted() -> None:
    metrics = [
        item("latency_p50", "ms", "same", ratio=1.0),
        item("load_time", "ms", "inconclusive", reason="too_noisy"),
        item("package_bytes", "B", "worse", ratio=1.2),
        item("compile_time", "s", "same", ratio=1.0),
    ]
    groups, _ = group_metrics(metrics)
    assert [group.title for group in groups] == ["Size", "Speed", "Build"]
    assert [row.name for row in groups[0].changed] == ["package_bytes"]
    assert not groups[1].changed
    assert groups[1].summary == "1 measurement within the limit and 1 inconclusive"


def test_a_reason_of_many_stands_once() -> None:
    why: dict[str, Any] = {"reason": "environment_differs", "detail": "driver 1, then 2"}
    metrics = [item("latency_p50", "ms", "inconclusive", batch=batch, **why) for batch in (1, 8, 16)]
    groups, notes = group_metrics(metrics)
    assert notes == ["3 measurements are not comparable: environments differ: driver 1, then 2."]
    assert {row.reason for row in groups[0].folded} == {""}
    assert {row.word for row in groups[0].folded} == {"not comparable"}


@pytest.mark.parametrize(
    ("metric", "unit", "outcome", "ratio", "right"),
    [
        ("latency_p50", "ms", "worse", 1.2, True),
        ("latency_p50", "ms", "better", 0.8, False),
        ("throughput", "1/s", "worse", 0.8, True),
        ("throughput", "1/s", "better", 1.2, False),
        ("throughput", "1/s", "same", 0.97, True),
        ("own_score", "1", "worse", 0.8, True),
        ("own_score", "1", "inconclusive", 1.2, True),
    ],
)
def test_worse_is_to_the_right(metric: str, unit: str, outcome: str, ratio: float, *, right: bool) -> None:
    changed = item(metric, unit, outcome, ratio=ratio, low=ratio * 0.99, high=ratio * 1.01)
    drawn = interval(changed, common_reach([changed]))
    assert drawn is not None
    assert (drawn.at > WIDTH / 2) == right
    assert drawn.low < drawn.at < drawn.high


def test_rows_of_a_group_have_one_scale_that_noise_does_not_widen() -> None:
    metrics = [
        item("latency_p50", "ms", "worse", ratio=1.218, low=1.21, high=1.23),
        item("latency_p95", "ms", "worse", ratio=1.1, low=1.09, high=1.11),
        item("latency_p99", "ms", "worse", ratio=1.218, low=1.0, high=1.5),
        item(
            "load_time",
            "ms",
            "inconclusive",
            ratio=1.0,
            low=0.3,
            high=3.0,
            reason="too_noisy",
            min_effect=1.0,
        ),
    ]
    (group,), _ = group_metrics(metrics)
    at = {row.name: row.interval for row in (*group.changed, *group.folded)}
    one, less, same, noisy = (at[name] for name in ("latency_p50", "latency_p95", "latency_p99", "load_time"))
    assert one
    assert less
    assert same
    assert noisy
    assert one.at == same.at > less.at > WIDTH / 2
    assert one.to == less.to
    assert same.high < noisy.high < WIDTH
