"""Kernels that changed: each side's own times, their difference, and whether they explain the measured change."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from pt2hub.domain.digests import Digest
from pt2hub.rendering.changed_kernels import (
    describe_difference,
    describe_other_choice,
    explain_change,
    explain_no_difference,
    kernel_rows,
)
from pt2hub.rendering.comparisons import notes
from pt2hub.wire.performance import AutotuneDifference, ComparisonView, MetricComparison, SideView

TARGET = "torch2.13-cu130-sm90"
MACHINE = {"gpu": "H100", "driver": "580.1"}


def side(number: int) -> SideView:
    digest = Digest("sha256:" + "0" * 64)
    return SideView(
        f"team/name@{number}", "team/name", number, TARGET, digest, "2026-03-28T12:00:00+00:00", MACHINE
    )


def kernel(before: float | None, after: float | None, **values: Any) -> AutotuneDifference:
    return AutotuneDifference(
        "mm", [["8", "64"], ["64", "64"]], "extern: mm", "triton_mm", before, after, **values
    )


def latency(outcome: str, ratio: float, **values: Any) -> MetricComparison:
    return MetricComparison("latency_p50", "ms", outcome, 8, 10.0, 10.0 * ratio, ratio, **values)


def view(
    *kernels: AutotuneDifference, metric: MetricComparison | None = None, **values: Any
) -> ComparisonView:
    return ComparisonView(side(1), side(2), (metric,) if metric else (), kernels, **values)


def test_a_difference_is_after_minus_before_by_the_times_that_stand_beside_it() -> None:
    ((op, shapes, before, after, difference, other),) = kernel_rows(
        view(kernel(0.088, 0.1, cost_ms=-0.01848))
    )
    assert (op, shapes) == ("mm", "8x64 64x64")
    assert (before, after, difference) == ("extern: mm 88 µs", "triton_mm 100 µs", "12 µs more")
    assert other == "on the After side, the Before kernel took 18.48 µs more"


@pytest.mark.parametrize(
    ("milliseconds", "text"),
    [(0.25, "250 µs more"), (-0.0061, "6.1 µs less"), (0.0, "no change"), (None, "-")],
)
def test_a_difference_is_more_or_less(milliseconds: float | None, text: str) -> None:
    assert describe_difference(milliseconds) == text


@pytest.mark.parametrize(
    ("cost", "text"),
    [
        (0.001, "on the After side, the Before kernel took 1 µs less"),
        (0.0, "on the After side, the Before kernel took as long"),
        (None, "-"),
    ],
)
def test_the_other_choice_is_said_in_words(cost: float | None, text: str) -> None:
    assert describe_other_choice(kernel(0.088, 0.088, cost_ms=cost)) == text


def test_times_of_different_machines_have_no_difference() -> None:
    found = kernel(0.088, 0.1)
    apart = view(found, differs={"gpu": ["H100", "H200"], "cuda_driver": [1, 2]})
    unmeasured = replace(view(found), after=replace(side(2), environment={}))
    reasons = {
        "the environments of the measurements differ in gpu and cuda driver": apart,
        "the targets differ": view(found, across=True),
        "the environment of the After side is unknown, as it is not measured": unmeasured,
    }
    for reason, compared in reasons.items():
        assert explain_no_difference(compared).endswith(f"not comparable: {reason}.")
        assert [row[4] for row in kernel_rows(compared)] == ["-"]
    assert [row[4] for row in kernel_rows(view(kernel(None, 0.1), kernel(0.1, None)))] == ["-", "-"]


LONGER = "no tuned operation with another kernel takes longer"
LESS = "no tuned operation with another kernel takes less time"


@pytest.mark.parametrize(
    ("kernels", "metric", "text"),
    [
        ([kernel(0.088, 0.088), kernel(0.5, 0.4)], latency("worse", 1.1), ("1 ms more", LONGER)),
        ([kernel(0.088, 0.088 + 5e-17)], latency("worse", 1.1), ("1 ms more", LONGER)),
        ([kernel(0.9, 1.0)], latency("better", 0.9), ("1 ms less", LESS)),
        ([kernel(0.5, 0.51), kernel(0.5, 0.485)], latency("worse", 1.1), None),
        ([kernel(0.5, 0.51), kernel(0.5, 0.485)], latency("better", 0.9), None),
        ([kernel(0.5, 0.52)], latency("worse", 1.1), None),
        ([kernel(0.5, 0.4), kernel(None, 0.9)], latency("worse", 1.1), None),
        ([kernel(0.5, 0.4)], latency("same", 1.01), None),
        ([kernel(0.5, 0.4)], None, None),
        ([], latency("worse", 1.1), None),
    ],
)
def test_kernels_are_said_to_explain_nothing_only_where_none_changed_in_the_direction_of_the_call(
    kernels: list[AutotuneDifference], metric: MetricComparison | None, text: tuple[str, str] | None
) -> None:
    found = view(*kernels, metric=metric)
    expected = (
        f"A call at batch 8 takes {text[0]}, and the kernel times of autotuning do not explain that: {text[1]}."
        if text
        else ""
    )
    assert explain_change(found) == expected
    assert (explain_change(found) in notes(found)) == bool(text)
