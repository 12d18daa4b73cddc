"""The sentence that answers a comparison: better, worse, mixed, the same, inconclusive, not comparable, not measured."""

from __future__ import annotations

from typing import Any

import pytest

from pt2hub.domain.digests import Digest
from pt2hub.rendering.comparison_answers import answer_comparison
from pt2hub.wire.performance import ComparisonView, MetricComparison, SideView

DIGEST = Digest("sha256:" + "0" * 64)
H100, A100, CPU = "torch2.13-cu130-sm90", "torch2.13-cu130-sm80", "torch2.13-cpu-x86_64_v4"
WORSE: dict[str, Any] = {"outcome": "worse", "ratio": 1.105}
BETTER: dict[str, Any] = {"outcome": "better", "ratio": 0.895}
SAME: dict[str, Any] = {"outcome": "same", "ratio": 1.01, "min_effect": 0.05}


def item(metric: str = "latency_p50", unit: str = "ms", **values: Any) -> MetricComparison:
    return MetricComparison(metric, unit, **values)


def noted(reason: str, **values: Any) -> MetricComparison:
    return item(outcome="inconclusive", reason=reason, **values)


def side(number: int, target: str = H100, model: str = "team/name") -> SideView:
    return SideView(f"{model}@{number}", model, number, target, DIGEST, "2026-03-28T12:00:00+00:00")


def on(target: str, *metrics: MetricComparison) -> ComparisonView:
    return ComparisonView(side(15, target), side(16, target), metrics)


@pytest.mark.parametrize(
    ("metrics", "tone", "text"),
    [
        ([item(**WORSE)], "bad", "Version 16 is 10.5 % slower than version 15 on H100 · torch 2.13."),
        ([item(**BETTER)], "good", "Version 16 is 10.5 % faster than version 15 on H100 · torch 2.13."),
        (
            [item(batch=1, **WORSE), item(batch=8, **SAME)],
            "bad",
            "Version 16 is 10.5 % slower at batch 1 than version 15 on H100 · torch 2.13.",
        ),
        (
            [item(batch=1, **WORSE), item(batch=8, **WORSE | {"ratio": 1.2}), item(batch=32, **SAME)],
            "bad",
            "Version 16 is 10.5 to 20.0 % slower at batch 1 and 8 than version 15 on H100 · torch 2.13.",
        ),
        (
            [item(batch=8, **WORSE), item(batch=1, **WORSE), item(**SAME)],
            "bad",
            "Version 16 is 10.5 % slower at batch 1 and 8 than version 15 on H100 · torch 2.13.",
        ),
        (
            [item(batch=1, **WORSE), item(batch=8, **BETTER)],
            "bad",
            "Version 16 is 10.5 % slower at batch 1 and 10.5 % faster at batch 8 than version 15 on H100 · torch 2.13.",
        ),
        (
            [item("throughput", "1/s", outcome="worse", ratio=0.9)],
            "bad",
            "Version 16 is 10.0 % lower in throughput than version 15 on H100 · torch 2.13.",
        ),
        (
            [item(**SAME)],
            "calm",
            "Version 16 is as fast as version 15 on H100 · torch 2.13, within the limit of 5 %.",
        ),
        (
            [noted("too_noisy")],
            "warn",
            (
                "It is inconclusive whether version 16 is as fast as version 15 on H100 · torch 2.13: "
                "the measurements are too noisy."
            ),
        ),
        (
            [noted("environment_differs")],
            "warn",
            "The speeds of version 16 and version 15 on H100 · torch 2.13 are not comparable: environments differ.",
        ),
        (
            [noted("not_measured", before=5.0)],
            "calm",
            "The speed of version 16 on H100 · torch 2.13 is not measured.",
        ),
        ([], "calm", "The speed of version 16 and version 15 on H100 · torch 2.13 is not measured."),
    ],
)
def test_one_target(metrics: list[MetricComparison], tone: str, text: str) -> None:
    found = answer_comparison([on(H100, *metrics)])
    assert (found.tone, found.text) == (tone, text)


def test_what_else_changed_follows_and_what_did_not_is_named_once() -> None:
    size = item("package_bytes", "B", **SAME)
    memory = item("device_memory_peak", "B", outcome="worse", ratio=1.12)
    times = item("latency_p95", **WORSE), item("compile_time", "s", outcome="worse", ratio=2.0)
    found = answer_comparison([on(H100, item(**WORSE), memory, size, *times)])
    assert found.text == (
        "Version 16 is 10.5 % slower than version 15 on H100 · torch 2.13; "
        "device memory is 12.0 % larger; size is unchanged."
    )
    only_memory = answer_comparison([on(H100, item(**SAME), memory)])
    assert only_memory.tone == "warn"
    first_call = item("first_inference", "ms", outcome="worse", ratio=1.5)
    assert (
        "; the first call is 50.0 % slower." in answer_comparison([on(H100, item(**SAME), first_call)]).text
    )


def test_nothing_is_called_unchanged_of_which_a_part_is_inconclusive() -> None:
    doubtful = item("host_memory_peak", "B", outcome="inconclusive", reason="too_noisy")
    found = answer_comparison([on(H100, item(**SAME), item("device_memory_peak", "B", **SAME), doubtful)])
    assert "memory" not in found.text


@pytest.mark.parametrize(
    ("found", "text"),
    [
        (
            [item(outcome="better", ratio=ratio) for ratio in (0.895, 0.969, 0.93)],
            "Version 16 is 3.1 to 10.5 % faster than version 15 on all three targets.",
        ),
        (
            [item(**WORSE), item(**BETTER), item(**SAME)],
            (
                "Version 16 is 10.5 % slower than version 15 on H100 · torch 2.13, "
                "10.5 % faster on A100 · torch 2.13 and as fast, within the limit, on CPU v4 · torch 2.13."
            ),
        ),
        (
            [item(**WORSE), item("throughput", "1/s", outcome="worse", ratio=0.9), item(**WORSE)],
            "Version 16 is slower than version 15 on all three targets.",
        ),
        (
            [item(**SAME), item(**SAME), item(**SAME)],
            "Version 16 is as fast as version 15 on all three targets, within the limits.",
        ),
        (
            [noted("environment_differs")] * 3,
            "The speeds of version 16 and version 15 are not comparable on any of three targets: environments differ.",
        ),
        (
            [noted("too_noisy"), noted("not_measured"), noted("not_measured")],
            (
                "The comparison of version 16 with version 15 is inconclusive on H100 · torch 2.13 and "
                "not measured on A100 · torch 2.13 and CPU v4 · torch 2.13."
            ),
        ),
        (
            [item(**SAME), noted("too_noisy"), item(**SAME)],
            (
                "Version 16 is as fast as version 15 on H100 · torch 2.13 and CPU v4 · torch 2.13 and "
                "inconclusive on A100 · torch 2.13."
            ),
        ),
    ],
)
def test_several_targets(found: list[MetricComparison], text: str) -> None:
    views = [on(target, one) for target, one in zip((H100, A100, CPU), found, strict=True)]
    assert answer_comparison(views).text == text


def test_two_models_and_two_targets_are_named() -> None:
    two = ComparisonView(side(3, model="team/old"), side(4, model="team/new"), (item(**WORSE),))
    assert (
        answer_comparison([two]).text == "team/new@4 is 10.5 % slower than team/old@3 on H100 · torch 2.13."
    )
    across = ComparisonView(side(16, A100), side(16, H100), (item(**BETTER),), across=True)
    assert (
        answer_comparison([across]).text
        == "Version 16 on H100 · torch 2.13 is 10.5 % faster than on A100 · torch 2.13."
    )
