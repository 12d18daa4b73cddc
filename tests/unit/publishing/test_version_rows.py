"""A model's versions as rows: dots by target, states in words, and speeds beside production."""

from __future__ import annotations

from dataclasses import replace

from pt2hub.server.pages.publishing.version_rows import (
    MAX_COLUMNS,
    compose_heads,
    compose_rows,
    pick_targets,
)
from pt2hub.server.views.version_speeds import VersionSpeeds
from pt2hub.wire.resolution import Yank
from pt2hub.wire.responses import VersionSummary

AT = "2026-11-27T12:00:00+00:00"
H100, L4 = "torch2.13-cu130-sm90", "torch2.13-cu130-sm89"
SPEEDS = VersionSpeeds(1, H100, "latency_p50", "ms", 8, {1: 10.0, 2: 10.1, 3: 12.0}, 0.02, 0.05)


def version(number: int, readiness: str = "ready", **targets: str) -> VersionSummary:
    states = {H100: "succeeded", L4: "succeeded"} | targets
    return VersionSummary("vision/vit", number, readiness, AT, targets=states)


def test_a_row_says_how_a_version_compares_with_production() -> None:
    rows = compose_rows([version(3), version(2), version(1)], [H100, L4], SPEEDS, 1)
    slower, alike, production = (row.speed for row in rows)
    assert (slower.value, slower.outcome, slower.change) == ("12 ms", "worse", "20.0 % slower")
    assert slower.note == "20.0 % slower than version 1"
    assert alike.outcome == "same"
    assert alike.note == f"{alike.change} than version 1, below the limit of 2 %"
    assert (production.value, production.outcome, production.change) == ("10 ms", "", "")


def test_only_what_is_not_ready_is_said_in_words() -> None:
    yanked = replace(version(3), yanked=Yank(reason="wrong labels", by="mary", at=AT))
    found = [version(5, "pending"), version(4, "partial"), yanked, version(2, "failed"), version(1)]
    rows = compose_rows(found, [H100], None, None)
    assert [row.state for row in rows] == ["building", "partly ready", "yanked", "failed", ""]


def test_a_version_without_a_speed_says_why() -> None:
    waiting = replace(version(8), measurements={H100: "waiting"})
    failed = version(9, **{H100: "failed"})
    rows = compose_rows([failed, waiting, version(1)], [H100], SPEEDS, None)
    assert [row.missing for row in rows] == ["-", "waiting to be measured", ""]
    assert compose_rows([waiting], [H100], None, None)[0].missing == "waiting to be measured"


def test_a_dot_says_its_target_and_state() -> None:
    unmeasured = replace(version(2, **{L4: "failed"}), measurements={H100: "not_measured"})
    (row,) = compose_rows([unmeasured], [H100, L4, "torch2.13-cpu-x86_64_v4"], None, None)
    assert [dot.label for dot in row.dots] == [
        "H100 · torch 2.13: succeeded, not measured yet",
        "L4 · torch 2.13: failed",
        "CPU v4 · torch 2.13: not a target of version 2",
    ]
    assert [dot.state for dot in row.dots] == ["succeeded", "failed", "none"]


def test_a_hundred_targets_are_eight_dots_and_a_summary_of_the_worst() -> None:
    names = {f"torch2.{minor}-cpu-x86_64_v4": "succeeded" for minor in range(100)}
    names["torch2.99-cpu-x86_64_v4"] = "failed"
    found = VersionSummary("vision/vit", 1, "partial", AT, targets=names)
    targets = pick_targets([found])
    assert len(compose_heads(targets)) == MAX_COLUMNS
    *dots, others = compose_rows([found], targets, None, None)[0].dots
    assert len(dots) == MAX_COLUMNS
    assert (others.state, others.count) == ("failed", 92)
    assert others.label == "92 more targets: 1 failed, 91 succeeded"


def test_a_head_is_a_device_and_a_release() -> None:
    first, second = compose_heads([H100, "torch2.13-cpu-x86_64_v4"])
    assert (first.device, first.release, first.name) == ("H100", "torch 2.13", H100)
    assert second.device == "CPU v4"
