"""Two looks at a build become the events between them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from pt2hub.client.builds.events import changes
from pt2hub.client.builds.follower import PollInterval
from pt2hub.wire.responses import BuildView, StepView, WaitReason


def build(state: str, *steps: StepView, **fields: Any) -> BuildView:
    base = BuildView("b1", "team/net", 1, "torch2.13-cpu-x86_64_v3", state, 1, "2026-11-21T00:00:00Z")
    return replace(base, steps=steps, **fields)


def step(name: str, state: str = "done") -> StepView:
    return StepView(name, state, "2026-11-21T00:00:00Z", 1.0 if state == "done" else None)


def told(before: BuildView | None, after: BuildView) -> list[tuple[str, str]]:
    return [
        (event.step.name, event.step.state) if event.step else ("build", event.build.state)
        for event in changes(before, after)
    ]


def test_the_first_look_tells_everything_and_the_end_comes_last() -> None:
    assert told(None, build("queued")) == [("build", "queued")]
    assert told(None, build("succeeded", step("fetch"))) == [("fetch", "done"), ("build", "succeeded")]


def test_only_what_changed_is_told() -> None:
    before = build("running", step("fetch"), step("export", "running"))
    after = build("running", step("fetch"), step("export"), step("key", "running"))
    assert told(before, before) == []
    assert told(before, after) == [("export", "done"), ("key", "running")]


def test_a_new_attempt_begins_again() -> None:
    before = build("running", step("fetch"))
    after = build("running", step("fetch"), attempt=2)
    assert told(before, after) == [("build", "running"), ("fetch", "done")]


def test_a_build_handed_back_is_told_after_what_its_attempt_did() -> None:
    before = build("running", step("compile", "running"))
    assert told(before, build("queued", step("compile", "failed"))) == [
        ("compile", "failed"),
        ("build", "queued"),
    ]


def test_a_worker_that_comes_or_goes_while_a_build_waits_is_told() -> None:
    before = build("queued", wait=WaitReason("no_live_worker"))
    assert told(before, build("queued")) == [("build", "queued")]


def test_looks_become_rarer_while_nothing_moves() -> None:
    pace = PollInterval()
    pauses = [pace.pause(moved=False) for _ in range(12)]
    assert pauses == sorted(pauses)
    assert 0.2 < pauses[0] < 0.4
    assert pauses[-1] == 1.0
    assert pace.pause(moved=True) == 0.2
