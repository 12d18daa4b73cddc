"""Sentences about versions that got better or worse."""

from __future__ import annotations

import pytest

from pt2hub.rendering.version_changes import answer_recent, change_headline, other_metrics
from pt2hub.wire.performance import EventView

H100, A100, CPU = "torch2.13-cu130-sm90", "torch2.13-cu130-sm80", "torch2.13-cpu-x86_64_v4"


def event(ratio: float, target: str = H100, metric: str = "latency_p50", unit: str = "ms") -> EventView:
    at = "2026-03-28T12:00:00+00:00"
    return EventView(
        1, "team/name", 16, 15, target, metric, unit, "worse", "comparison", ratio, at, "paired", batch=8
    )


@pytest.mark.parametrize(
    ("count", "in_production", "tone", "text"),
    [
        (0, 0, "good", "No regressions in the last 7 days."),
        (1, 0, "warn", "1 regression in the last 7 days, not in production."),
        (1, 1, "bad", "1 regression in the last 7 days, in production."),
        (3, 0, "warn", "3 regressions in the last 7 days, none of them in production."),
        (3, 1, "bad", "3 regressions in the last 7 days, 1 of them in production."),
        (3, 3, "bad", "3 regressions in the last 7 days, all of them in production."),
    ],
)
def test_the_last_days_in_one_sentence(count: int, in_production: int, tone: str, text: str) -> None:
    found = answer_recent(7, count, in_production)
    assert (found.tone, found.text) == (tone, text)


def test_a_filter_is_part_of_the_sentence() -> None:
    assert answer_recent(7, 2, 1, "of team/name").text.startswith("2 regressions of team/name in the last")


def test_a_headline_names_the_time_of_a_call_and_where() -> None:
    assert change_headline([event(1.215, CPU)]) == "21.5 % slower on CPU v4 · torch 2.13"
    both = [event(1.215, CPU), event(1.1, H100)]
    assert change_headline(both) == "10.0 to 21.5 % slower on CPU v4 · torch 2.13 and H100 · torch 2.13"
    many = [*both, event(1.3, A100), event(1.5, CPU, "throughput", "1/s")]
    assert change_headline(many) == "10.0 to 30.0 % slower on 3 targets"
    assert other_metrics(many) == ["throughput"]


def test_without_a_time_of_a_call_the_strongest_metric_is_named() -> None:
    found = [event(1.2, metric="device_memory_peak", unit="B"), event(1.02, metric="code_bytes", unit="B")]
    assert change_headline(found) == "device_memory_peak 20.0 % larger on H100 · torch 2.13"
    rate = event(0.8, metric="throughput", unit="1/s")
    assert change_headline([rate]) == "throughput 20.0 % lower on H100 · torch 2.13"
