"""Why a metric has its verdict: the least change that counts and the noise, in words."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from pt2hub.analysis.comparison import compare_exact, compare_paired
from pt2hub.domain.performance.metrics import default_threshold
from pt2hub.rendering.reasons import because, noise_of, percentage
from pt2hub.wire.performance import MetricComparison

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pt2hub.domain.performance.metrics import ComparisonResult


def said(judgement: ComparisonResult, metric: str = "latency_p99") -> str:
    """What is said of a judgement."""
    fields = {
        name: getattr(judgement, name) for name in ("ratio", "low", "high", "method", "reason", "detail")
    }
    item = MetricComparison(
        metric, "ms", judgement.outcome, min_effect=default_threshold(metric).min_effect, **fields
    )
    return because(replace(item, noise=noise_of(item.low, item.high)))


@pytest.mark.parametrize(
    ("ratios", "text"),
    [
        (
            (1.11, 1.1, 1.12, 1.11, 1.1),
            "side by side; within 15 %: the minimum effect of latency_p99; the noise is 2.1 %",
        ),
        (
            (1.01, 0.99, 1.0, 1.02, 0.98),
            "side by side; within the noise, 4.5 %, and within 15 %: the minimum effect of latency_p99",
        ),
        (
            (1.3, 1.31, 1.29, 1.3, 1.3),
            "side by side; beyond 15 %, the minimum effect of latency_p99, and beyond the noise, 1.5 %",
        ),
    ],
)
def test_a_verdict_says_its_threshold_and_its_noise(ratios: Sequence[float], text: str) -> None:
    assert said(compare_paired(ratios, default_threshold("latency_p99"))) == text


def test_what_is_too_noisy_says_how_noisy_and_sizes_have_no_noise() -> None:
    noisy = said(compare_paired((0.5, 2.0, 1.0, 3.0), default_threshold("latency_p99")))
    assert noisy.startswith("too noisy: the uncertainty is")
    assert "a change of 15 % from noise" in noisy
    sizes = default_threshold("code_bytes")
    assert (
        said(compare_exact(100, 110, sizes), "code_bytes")
        == "exact; beyond 1 %, the minimum effect of code_bytes"
    )
    assert (
        said(compare_exact(100, 100, sizes), "code_bytes")
        == "exact; within 1 %: the minimum effect of code_bytes"
    )


def test_a_median_on_the_other_side_of_the_threshold_than_the_mean_does_not_contradict_the_verdict() -> None:
    judged = compare_paired((1.13, 1.14, 1.145, 1.16, 1.21), default_threshold("latency_p99"))
    assert (judged.outcome, judged.ratio) == ("worse", pytest.approx(1.145))
    assert said(judged).endswith("; decided by the mean of the processes, 15.7 % slower")


def test_ratios_whose_product_is_no_number_are_explained_like_others() -> None:
    item = MetricComparison(
        "latency_p50", "ms", "better", ratio=1e-200, low=1e-201, high=1e-199, method="paired", min_effect=0.05
    )
    assert because(item).startswith("side by side; beyond 5 %")


def test_an_older_server_says_less_and_wide_noise_is_no_number() -> None:
    assert because(MetricComparison("latency_p50", "ms", "same", method="paired")) == "side by side"
    assert [percentage(share) for share in (0.004, 0.15, 0.999, 2.5, 50)] == [
        "0.4 %",
        "15 %",
        "100 %",
        "250 %",
        "over 1,000 %",
    ]
    assert noise_of(None, 1.0) is noise_of(0.0, 1.0) is None
