"""What measuring processes say is read as the words of code that nobody has proven, and put together over processes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from pt2hub.domain.performance.measurements import Measurement
from pt2hub.errors import OutputRefused
from pt2hub_workers.inside.performance.timer import MAX_SAMPLES, TimedCall, time_alternating
from pt2hub_workers.performance.measurements import (
    Times,
    combine_baselines,
    combine_measurements,
    combine_pairs,
    compare_first_calls,
    read_baselines,
    read_times,
)

SECONDS = 2.0
"""How long the process was at work."""

IMPOSSIBLE: tuple[dict[str, Any], ...] = (
    {"p50": 0.0},
    {"p50": -2.0},
    {"p50": "nan"},
    {"p50": float("inf")},
    {"p50": 6.5},
    {"p99": 1e12},
    {"calls": 0},
    {"calls": 10**9},
    {"seconds": 0.0},
    {"seconds": 3.0},
    {"samples": []},
    {"samples": [2.0] * 11},
    {"samples": [30.0, 30.0]},
    {"samples": [[2.0]]},
    {"batch": -1},
    {"batch": 8},
    {"batch": None},
    {"batch": 1 << 60},
)


def _times(p50: float = 2.0, **fields: Any) -> dict[str, Any]:
    told = {"batch": 4, "calls": 10, "seconds": 0.05, "p50": p50, "p95": 6.0, "p99": 7.0}
    return {**told, "samples": [p50, p50, 6.0], **fields}


def _said(*implementations: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {"threads": 2, "implementations": list(implementations), **fields}


def _artifact(**fields: Any) -> dict[str, Any]:
    return {"name": "artifact", "batches": [_times()], "load_ms": 9.0, "first_ms": 3.0, **fields}


def _read(value: Any, names: tuple[str, ...] = ("artifact",)) -> Times:
    return read_times(value, names=names, batches=[4], seconds=SECONDS)


@pytest.mark.parametrize(
    "forged",
    [
        *(None, [], "1 ms", {}, {"threads": 2}),
        _said(),
        _said(_artifact(), threads=0),
        _said(_artifact(), threads=True),
        _said(_artifact(name="baseline")),
        _said(_artifact(), _artifact()),
        _said(_artifact(batches=[])),
        _said(_artifact(load_ms=-1.0)),
        _said(_artifact(load_ms="nan")),
        _said(_artifact(first_ms=1e9)),
        _said(_artifact(host_bytes=1 << 60)),
        *(_said(_artifact(batches=[_times(**fields)])) for fields in IMPOSSIBLE),
        _said(_artifact(batches=[_times(seconds=1.9, p50=2.0)]), _artifact(batches=[_times(seconds=1.9)])),
    ],
    ids=str,
)
def test_figures_that_cannot_be_are_refused(forged: Any) -> None:
    with pytest.raises(OutputRefused) as caught:
        _read(forged)
    assert caught.value.hint


def test_figures_are_medians_over_processes_and_only_whoever_came_first_is_fresh() -> None:
    def baseline(p50: float) -> dict[str, Any]:
        return {"name": "baseline", "batches": [_times(p50)]}

    both = [
        _read(_said(_artifact(batches=[_times(p50)]), baseline(2 * p50)), ("artifact", "baseline"))
        for p50 in (1.0, 3.0)
    ]
    late = {"name": "artifact", "batches": [_times(2.5)]}
    first = {**baseline(2.0), "load_ms": 4.0, "host_bytes": 4096}
    both.append(_read(_said(first, late), ("baseline", "artifact")))

    found = {item.metric: item for item in combine_measurements(both, "artifact")}

    latency = found["latency_p50"]
    assert (latency.value, latency.unit, latency.batch, latency.implementation) == (2.5, "ms", 4, "artifact")
    assert latency.replicates == [1.0, 3.0, 2.5]
    assert latency.samples == [[1.0, 1.0, 6.0], [3.0, 3.0, 6.0], [2.5, 2.5, 6.0]]
    assert found["throughput"].value == 4 * 10 / 0.05
    assert found["load_time"].replicates == [9.0, 9.0]
    assert (found["load_time"].batch, found["first_inference"].batch) == (None, 4)
    assert "host_memory_peak" not in found
    assert {item.metric for item in combine_measurements(both, "baseline")} >= {
        "host_memory_peak",
        "load_time",
    }
    ratios = {pair.metric: pair.ratios for pair in combine_pairs(both)}
    assert ratios["latency_p50"] == [0.5, 0.5, 1.25]
    assert "load_time" not in ratios


class _Ticking:
    """A clock on which every call takes the same time."""

    def __init__(self) -> None:
        self.blocks: list[object] = []

    def wait(self) -> None:
        """There is nothing to wait for."""

    def block(self, call: Any, count: int) -> tuple[list[float], float]:
        """Notes who was called."""
        self.blocks.append(call)
        call()
        return [10.0] * count, 0.01 * count


def test_subjects_take_turns_and_a_few_calls_are_made_whatever_the_time() -> None:
    clock, one, other = _Ticking(), (lambda: None), (lambda: None)

    first, second = time_alternating([one, other], clock, seconds=1e-9)

    timed = clock.blocks[6:]  # after the warm-up
    assert timed == [one, other] * (len(timed) // 2)
    assert first.calls == second.calls >= 3
    assert (first.quantile(0.5), first.quantile(0.99)) == (10.0, 10.0)


class _Loading:
    """A clock of a device that loads code in the first call of each implementation."""

    def __init__(self) -> None:
        self.counts: dict[object, list[int]] = {}

    def wait(self) -> None:
        """There is nothing to wait for."""

    def block(self, call: Any, count: int) -> tuple[list[float], float]:
        """Notes how many calls were asked for."""
        counts = self.counts.setdefault(call, [])
        counts.append(count)
        seconds = 1.0 if len(counts) == 1 else 0.001 * count
        return [1000 * seconds / count] * count, seconds


def test_a_subject_that_is_slow_only_once_is_timed_as_the_quick_one_that_it_is() -> None:
    clock, one, other = _Loading(), (lambda: None), (lambda: None)

    time_alternating([one, other], clock, seconds=1e-9)

    assert clock.counts[one] == clock.counts[other]
    assert clock.counts[one][-1] == 30


def test_kept_samples_are_spread_over_all_calls() -> None:
    timed = TimedCall([float(number + 1) for number in range(1000)])

    assert len(timed.thin()) == MAX_SAMPLES
    assert timed.thin()[0] == 1.0
    assert timed.thin()[-1] > 950
    assert timed.quantile(0.5) == 500.5
    assert TimedCall([1.23456789]).thin() == [1.235]


@pytest.mark.parametrize(
    "forged",
    [
        {"measurements": []},
        _said(_artifact(), {"name": "eager", "batches": [_times(seconds=3.0)]}),
        _said(_artifact(), {"name": "torch_compile", "batches": [_times()]}),
        _said({"name": "eager", "batches": [_times()]}),
        _said(*[_artifact()] * 4),
        _said(),
    ],
    ids=str,
)
def test_what_the_process_of_the_baselines_cannot_have_measured_is_refused(forged: Any) -> None:
    with pytest.raises(OutputRefused):
        read_baselines(forged, seconds=SECONDS)


def test_baselines_have_their_latency_and_how_many_times_the_artifacts_it_is() -> None:
    said = _said(_artifact(), {"name": "eager", "batches": [_times(3.0)]})

    latency, speedup = combine_baselines(read_baselines(said, seconds=SECONDS))

    assert (latency.implementation, latency.value, latency.samples) == ("eager", 3.0, [[3.0, 3.0, 6.0]])
    assert (speedup.metric, speedup.value, speedup.replicates, speedup.batch) == ("speedup", 1.5, [1.5], 4)


def test_first_calls_of_torch_compile_are_measurements_with_the_artifacts_ratio() -> None:
    compiled = {"name": "torch_compile", "batches": [_times(3.0)], "first_ms": 1800.0, "first_warm_ms": 500.0}
    said = _said(_artifact(), {"name": "eager", "batches": [_times(3.0)]}, compiled)
    found = combine_baselines(read_baselines(said, seconds=SECONDS))
    firsts = {item.metric: item for item in found if item.metric.startswith("first")}
    assert {name: (item.value, item.implementation, item.batch) for name, item in firsts.items()} == {
        "first_inference": (1800.0, "torch_compile", 4),
        "first_inference_warm": (500.0, "torch_compile", 4),
    }
    own = Measurement("first_inference", 2.0, "ms", "artifact", 4)
    (ratio,) = compare_first_calls([own], found)
    assert (ratio.metric, ratio.value, ratio.implementation, ratio.batch) == (
        "first_inference_speedup",
        900.0,
        "artifact",
        4,
    )
    assert compare_first_calls([replace(own, batch=1)], found) == []
    assert compare_first_calls([own], []) == []


def test_a_first_call_that_took_longer_than_the_process_is_refused() -> None:
    compiled = {"name": "torch_compile", "batches": [_times(3.0)], "first_warm_ms": SECONDS * 2000}
    with pytest.raises(OutputRefused):
        read_baselines(
            _said(_artifact(), {"name": "eager", "batches": [_times(3.0)]}, compiled), seconds=SECONDS
        )
