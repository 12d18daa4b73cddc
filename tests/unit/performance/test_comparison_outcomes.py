"""Whether two figures differ by more than their noise: on ratios of a real experiment, and on hostile values."""

from __future__ import annotations

import math
import subprocess
import sys

import numpy as np
import pytest

from pt2hub.analysis.changes import Change, change_points, usual_noise
from pt2hub.analysis.comparison import (
    BETWEEN_RUNS,
    between_runs,
    compare_exact,
    compare_paired,
    compare_replicates,
    compare_single,
    half_width,
)
from pt2hub.domain.performance.metrics import ComparisonResult, Threshold

LATENCY = Threshold("lower", 0.05)
THROUGHPUT = Threshold("higher", 0.05)
UNKNOWN = Threshold(None, 0.05)

# Medians of mobilenet_v3_small in fresh processes of a machine with 2 cores: two real builds of it, quiet; the second
# with 10 % planted, in the same processes; and the two builds beside a process that burns one of the cores.
EQUAL = [1.0106, 1.003, 1.0387, 0.9967, 1.014, 0.9577, 0.9934, 1.0011, 1.0235, 1.0018, 1.002, 1.0134]
SLOWER = [1.1128, 1.0954, 1.1333, 1.1147, 1.11, 1.1061, 1.107, 1.1135, 1.1292, 1.1145, 1.1283, 1.0899]
BURNER = [0.882, 1.1319, 0.9196, 0.8162, 1.1477, 0.8543, 1.0438, 1.0179, 0.714, 0.7335, 0.7914, 1.1114]
HOSTILE = [0.0, -1.0, math.inf, math.nan]
WAVE = 5


def test_two_builds_of_one_model_are_the_same() -> None:
    found = compare_paired(EQUAL[:WAVE], LATENCY)
    assert (found.outcome, found.method, found.reason) == ("same", "paired", None)
    assert found.low < 1 < found.high  # type: ignore[operator]  # a paired verdict knows its interval


@pytest.mark.parametrize(("threshold", "outcome"), [(LATENCY, "worse"), (THROUGHPUT, "better")])
def test_ten_percent_more_is_found_in_the_direction_of_the_metric(threshold: Threshold, outcome: str) -> None:
    found = compare_paired(SLOWER[:WAVE], threshold)
    assert found.outcome == outcome
    assert found.ratio == pytest.approx(1.113, abs=0.001)
    assert compare_paired([1 / ratio for ratio in SLOWER], LATENCY).outcome == "better"


def test_figures_beside_a_burner_are_too_noisy_to_compare() -> None:
    for count in (WAVE, len(BURNER)):
        found = compare_paired(BURNER[:count], LATENCY)
        assert (found.outcome, found.reason) == ("inconclusive", "too_noisy")
        assert "a change of 5 %" in (found.detail or "")


def test_a_change_far_beyond_the_noise_is_found_for_all_that() -> None:
    assert compare_paired([ratio * 2 for ratio in BURNER], LATENCY).outcome == "worse"


def test_one_bad_process_moves_the_interval_and_not_the_ratio_that_is_told() -> None:
    found = compare_paired([4.0, 4.1, 3.9, 4.0, 900.0], LATENCY)
    assert found.ratio == pytest.approx(4.0)
    assert (found.low or 0) < 1 < WAVE < (found.high or 0)
    steady = compare_paired([1.0, 1.0, 1.0, 1.0, 1.0001], LATENCY)
    assert (steady.low or 0) <= (steady.ratio or 0) <= (steady.high or 0)
    back = compare_paired([1 / ratio for ratio in SLOWER], LATENCY)
    assert back.ratio == pytest.approx(1 / (compare_paired(SLOWER, LATENCY).ratio or 0))


def test_without_a_direction_only_the_same_is_said() -> None:
    assert compare_paired(EQUAL, UNKNOWN).outcome == "same"
    found = compare_paired(SLOWER, UNKNOWN)
    assert (found.outcome, found.reason) == ("inconclusive", "no_direction")
    assert compare_exact(100, 200, UNKNOWN).reason == "no_direction"


def test_one_process_is_too_few() -> None:
    assert compare_paired([1.2], LATENCY).reason == "too_few"
    assert compare_paired([], LATENCY).reason == "too_few"
    assert compare_replicates([5.0], [5.0, 5.1], LATENCY).reason == "too_few"


@pytest.mark.parametrize("value", HOSTILE)
def test_impossible_figures_are_not_comparable(value: float) -> None:
    found = [
        compare_paired([1.0, value, 1.0], LATENCY),
        compare_replicates([1.0, value], [1.0, 1.0], LATENCY),
        compare_replicates([1.0, 1.0], [1.0, value], LATENCY),
        compare_single(1.0, value, [1.0] * 9, LATENCY),
        compare_exact(value, 1.0, LATENCY),
    ]
    assert {(judgement.outcome, judgement.reason) for judgement in found} == {
        ("inconclusive", "not_measured")
    }
    assert all(judgement.detail for judgement in found)


def test_the_smallest_and_largest_floats_give_finite_views() -> None:
    tiny, huge = 5e-324, sys.float_info.max
    for found in (compare_paired([tiny, huge, 1.0], LATENCY), compare_exact(tiny, huge, LATENCY)):
        assert isinstance(found, ComparisonResult)
        assert all(
            math.isfinite(value) for value in (found.ratio, found.low, found.high) if value is not None
        )


def test_two_runs_are_judged_by_their_processes_and_the_days_between_them() -> None:
    before = [10.0, 10.1, 9.9, 10.05, 9.95]

    def judged(times: float, between: float = BETWEEN_RUNS) -> str | None:
        found = compare_replicates(before, [value * times for value in before], LATENCY, between)
        return found.reason or found.outcome

    assert [judged(times) for times in (1.0, 1.3, 1.5, 0.6)] == ["too_noisy", "too_noisy", "worse", "better"]
    assert [judged(times, 0.01) for times in (1.01, 1.06, 1.3)] == ["same", "worse", "worse"]
    assert [judged(times, 0.5) for times in (1.01, 1.3, 10.0)] == ["too_noisy", "too_noisy", "worse"]


def test_how_much_runs_differ_is_told_by_those_of_one_artifact() -> None:
    apart = [0.1, -0.1] * 100
    assert between_runs(apart) == pytest.approx(0.1 / math.sqrt(2))
    assert between_runs(apart[:4]) is None
    few = between_runs(apart[:6])
    assert few is not None
    assert few > 0.1, "few tell it badly"
    assert between_runs([0.0] * 200) == pytest.approx(0.01)


def test_equal_artifacts_are_seldom_flagged_however_few_runs_told_how_much_they_differ() -> None:
    draw, flagged, trials = np.random.default_rng(7), 0, 2000
    for _ in range(trials):
        between = between_runs([float(step) for step in draw.normal(0, 0.05 * math.sqrt(2), 5)])
        assert between is not None
        before, after = (np.exp(draw.normal(day, 0.02, 5)).tolist() for day in draw.normal(0, 0.05, 2))
        flagged += compare_replicates(before, after, LATENCY, between).outcome in ("better", "worse")
    assert flagged < trials / 100


def test_single_figures_are_judged_by_the_steps_of_their_series() -> None:
    usual = [1.0, 1.01, 0.99, 1.0, 1.01, 1.0]
    assert compare_single(1.0, 1.3, usual, LATENCY).outcome == "worse"
    assert compare_single(1.0, 1.01, usual, LATENCY).outcome == "same"
    assert compare_single(1.0, 1.3, [1.0, 2.0, 1.0, 2.0, 1.0], LATENCY).reason == "too_noisy"
    assert compare_single(1.0, 1.3, [1.0, 0.0, math.nan], LATENCY).reason == "too_few"


@pytest.mark.parametrize(
    ("values", "text"), [(1, "no earlier steps,"), (2, "only 1 earlier step,"), (3, "only 2 earlier steps,")]
)
def test_too_few_steps_of_a_series_are_counted_in_words(values: int, text: str) -> None:
    assert f"the series has {text} at least" in (
        compare_single(1.0, 1.3, [1.0] * values, LATENCY).detail or ""
    )


def test_sizes_are_judged_by_the_least_effect_alone() -> None:
    sizes = Threshold("lower", 0.01)
    assert compare_exact(1000, 1005, sizes).outcome == "same"
    assert compare_exact(1000, 1020, sizes).outcome == "worse"
    assert compare_exact(1000, 900, sizes).outcome == "better"
    assert compare_exact(0, 0, sizes).outcome == "same"


def test_quantiles_agree_with_the_tables() -> None:
    tables = {(1, 0.95): 12.706, (4, 0.99): 4.604, (9, 0.99): 3.250, (14, 0.999): 4.140, (30, 0.95): 2.042}
    for (degrees, confidence), value in tables.items():
        assert half_width(degrees, confidence) == pytest.approx(value, abs=0.001)


def test_a_change_of_level_is_found_where_it_is() -> None:
    noise = np.exp(0.02 * np.random.default_rng(1).standard_normal(60))
    values = [float(value) * (5.0 if at < 40 else 6.0) for at, value in enumerate(noise)]
    (found,) = change_points(values, LATENCY)
    assert found.at == 40
    assert found.ratio == pytest.approx(1.2, abs=0.03)
    assert usual_noise(values) == pytest.approx(0.028, abs=0.01)


def test_neither_noise_nor_one_slow_value_nor_a_small_step_is_a_change() -> None:
    noise = np.exp(0.02 * np.random.default_rng(2).standard_t(3, 100))
    assert change_points([float(value) for value in noise], LATENCY) == []
    assert change_points([1.0] * 10 + [9.0] + [1.0] * 10, LATENCY) == []
    assert change_points([1.0] * 10 + [1.03] * 10, LATENCY) == []
    assert change_points([1.0, 1.0, 1.0, 9.0, 9.0, 9.0], LATENCY) == []


def test_impossible_values_are_passed_over_and_positions_kept() -> None:
    values = [0.0, math.nan, *[1.0] * 6, math.inf, *[2.0] * 6]
    assert change_points(values, LATENCY) == [Change(9, 2.0)]
    assert usual_noise([0.0, -1.0, 1.0]) is None


def test_only_the_newest_values_of_a_long_series_are_looked_at() -> None:
    assert change_points([1.0] * 300 + [2.0] * 600, LATENCY) == []


def test_the_analysis_is_imported_without_its_libraries() -> None:
    code = (
        "import sys, pt2hub.analysis.comparison, pt2hub.analysis.changes\n"
        "print(sorted({'numpy', 'scipy', 'ruptures'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.strip() == "[]"
