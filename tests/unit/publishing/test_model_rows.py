"""Rows of a model's page: a dot for each target, and the speed beside that of the version in use."""

from __future__ import annotations

from pt2hub.domain.digests import Digest
from pt2hub.rendering.version_speeds import compare_speed
from pt2hub.server.pages.publishing.model_rows import (
    MAX_TARGETS,
    Base,
    Speeds,
    count_hidden,
    list_rows,
    list_targets,
)
from pt2hub.wire.performance import PointView, SeriesView
from pt2hub.wire.responses import VersionSummary

CPU, GPU = "torch2.13-cpu-x86_64_v4", "torch2.13-cu130-sm90"
DIGEST = Digest("sha256:" + "0" * 64)


def version(number: int, targets: dict[str, str], **changes: object) -> VersionSummary:
    return VersionSummary("vision/resnet18", number, "ready", "2026-01-01T00:00:00Z", targets, **changes)  # type: ignore[arg-type]


def series(**values: float) -> SeriesView:
    points = tuple(
        PointView(int(number[1:]), DIGEST, value, value, value, 1, "2026-01-01T00:00:00Z")
        for number, value in values.items()
    )
    return SeriesView("latency_p50", "ms", GPU, "artifact", DIGEST, {}, "lower", 1, 0.01, points)


NOTHING = Speeds(None, None, None)


def test_a_version_says_how_its_speed_differs_from_prod() -> None:
    speeds = Speeds(series(v1=10.0, v2=10.05, v3=12.0, v4=9.0), Base("prod", 1), 10.0)
    assert speeds.measured(3) == "12 ms"
    found = {number: speeds.change(number) for number in range(1, 6)}
    assert found[1] is None  # prod itself
    assert found[2] is not None
    assert (found[2].outcome, found[2].text) == ("same", "within the noise")
    assert found[3] is not None
    assert (found[3].outcome, found[3].text) == ("worse", "20.0 % slower than prod")
    assert found[4] is not None
    assert (found[4].outcome, found[4].text) == ("better", "10.0 % faster than prod")
    assert found[5] is None  # not measured
    assert speeds.measured(5) == ""
    assert speeds.compare(3) == "20.0 % slower than prod on H100 · torch 2.13"
    assert speeds.compare(2) == "its speed on H100 · torch 2.13 is within the noise"
    assert speeds.compare(1) == speeds.compare(5) == speeds.compare(None) == ""


def test_a_noisy_series_needs_a_larger_change_and_zero_is_no_base() -> None:
    noisy = compare_speed(12.0, 10.0, "latency_p50", "ms", noise=0.3, than="prod")
    assert noisy is not None
    assert noisy.outcome == "same"
    assert compare_speed(1.0, 0.0, "latency_p50", "ms", noise=None, than="prod") is None


def test_more_of_a_throughput_is_better() -> None:
    found = compare_speed(12.0, 10.0, "throughput", "1/s", noise=None, than="prod")
    assert found is not None
    assert (found.outcome, found.text) == ("better", "20.0 % faster than prod")


def test_the_main_target_stands_first_and_others_are_those_of_the_newest_version() -> None:
    versions = [version(2, {CPU: "succeeded"}), version(1, {"other": "failed", GPU: "succeeded"})]
    assert list_targets(versions, GPU) == [GPU, CPU, "other"]


def test_dots_say_target_state_and_what_is_not_measured() -> None:
    rows = list_rows(
        [version(1, {GPU: "succeeded"}, measurements={GPU: "not_measured"})], [GPU, CPU], NOTHING
    )
    gpu, cpu = rows[0].cells
    assert (gpu.state, gpu.label) == ("succeeded", "H100 · torch 2.13: succeeded, not measured yet")
    assert (cpu.state, cpu.label) == ("none", "")


def test_a_hundred_targets_are_eight_columns_and_a_count() -> None:
    targets = {f"target{number}": "failed" if number == 99 else "succeeded" for number in range(100)}
    names = list_targets([version(1, targets)], None)
    (row,) = list_rows([version(1, targets)], names, NOTHING)
    assert len(row.cells) == MAX_TARGETS
    assert row.more == "+92, 1 failed"
    assert count_hidden(names) == "+92 targets"
    assert count_hidden(names[:MAX_TARGETS]) == ""
