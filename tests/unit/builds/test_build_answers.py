"""The first sentence of a build's page: how far, how long still, why it failed; and what it does not claim."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from pt2hub.rendering.quantities import format_elapsed, format_remaining
from pt2hub.server.pages.builds.build_answers import answer_build
from pt2hub.server.pages.builds.steps import steps_of
from pt2hub.server.views.step_durations import StepDurations
from pt2hub.wire.responses import AttemptView, BuildView, StepView, WaitReason

STARTED = "2026-11-22T10:00:00Z"
NOW = "2026-11-22T10:00:40Z"
MEDIANS = {
    "fetch": 2.0,
    "export": 9.0,
    "key": 1.0,
    "compile": 70.0,
    "pack": 1.0,
    "verify": 40.0,
    "upload": 5.0,
    "publish": 2.0,
}
USUAL = StepDurations(NOW, MEDIANS, dict.fromkeys(MEDIANS, 4), 4, same_model=True)
NOTHING = StepDurations(NOW)
DONE = tuple(StepView(name, "done", STARTED, seconds) for name, seconds in [*MEDIANS.items()][:3])
RUNNING = BuildView(
    id="b1",
    model="team/net",
    number=1,
    target="torch2.13-cu130-sm75",
    state="running",
    attempt=1,
    created_at="2026-11-22T09:59:00Z",
    started_at=STARTED,
    steps=(*DONE, StepView("compile", "running", "2026-11-22T10:00:12Z")),
    attempts=(AttemptView(1, "w1", STARTED),),
)


def said(view: BuildView, usual: StepDurations = USUAL) -> str:
    return str(answer_build(view, steps_of(view, usual), usual))


def ended(state: str, *, step: str = "failed", **changes: Any) -> BuildView:
    attempt = AttemptView(1, "w1", STARTED, NOW, state)
    steps = (*DONE, StepView("compile", step, "2026-11-22T10:00:12Z"))
    return replace(RUNNING, state=state, finished_at=NOW, attempts=(attempt,), steps=steps, **changes)


@pytest.mark.parametrize(
    ("view", "usual", "sentence"),
    [
        (RUNNING, USUAL, "Compiling for 28 s, about 1 min 30 s left (usually 2 min 10 s)."),
        (RUNNING, NOTHING, "Compiling for 28 s."),
        (replace(RUNNING, steps=()), NOTHING, "Starting for 40 s."),
        (replace(RUNNING, steps=DONE), NOTHING, "Running for 40 s."),
        (
            RUNNING,
            replace(USUAL, medians={**MEDIANS, "compile": 10.0}),
            "Compiling for 28 s, longer than usual (10 s); 50 s left after it.",
        ),
        (
            replace(RUNNING, steps=(*DONE, StepView("reuse", "running", "2026-11-22T10:00:12Z"))),
            USUAL,
            "Reusing code for 28 s.",
        ),
        (
            ended("failed", error={"code": "compile_failed"}),
            USUAL,
            "Failed in compile after 40.0 s: compile_failed.",
        ),
        (
            ended("cancelled", step="cancelled", cancellation="cancelled by mary"),
            USUAL,
            "Cancelled by mary in compile after 40.0 s.",
        ),
        (
            replace(ended("succeeded", step="done"), steps=DONE),
            replace(USUAL, medians={"fetch": 2.0, "export": 9.0, "key": 1.0}),
            "Succeeded in 40.0 s (usually 12.0 s).",
        ),
    ],
)
def test_a_build_says_how_far_it_is_and_how_it_ended(
    view: BuildView, usual: StepDurations, sentence: str
) -> None:
    assert said(view, usual) == sentence


@pytest.mark.parametrize(
    ("wait", "usual", "sentence"),
    [
        (
            None,
            USUAL,
            "Waits for a worker of T4 · torch 2.13, 2nd in the queue. It usually takes 2 min 10 s.",
        ),
        (WaitReason("no_live_worker"), NOTHING, "Waits for a worker of T4 · torch 2.13: none is live."),
        (
            WaitReason("never_offered"),
            NOTHING,
            "Waits for a worker of T4 · torch 2.13: no worker ever offered this target.",
        ),
        (
            WaitReason("next_attempt", until=NOW, attempt=1, error="storage_unavailable"),
            NOTHING,
            "Waits until 2026-11-22 10:00:40 UTC for its next attempt, after attempt 1 ended with storage_unavailable.",
        ),
    ],
)
def test_a_build_that_waits_says_for_what(
    wait: WaitReason | None, usual: StepDurations, sentence: str
) -> None:
    queued = replace(RUNNING, state="queued", attempt=0, steps=(), attempts=(), started_at=None)
    assert said(replace(queued, wait=wait, position=2), usual) == sentence


def test_a_build_without_steps_and_one_that_was_handed_back_have_sentences() -> None:
    assert said(replace(ended("failed", error={"code": "image_missing"}), steps=())) == (
        "Failed after 40.0 s: image_missing."
    )
    handed = AttemptView(1, "w1", STARTED, NOW, "handed_back")
    again = replace(RUNNING, state="queued", position=1, attempts=(handed,))
    assert said(again, NOTHING) == "Waits for a worker of T4 · torch 2.13, 1st in the queue."
    assert (
        said(replace(again, state="cancelled", attempt=0, steps=(), attempts=(), started_at=None))
        == "Cancelled."
    )


def test_a_running_step_stays_within_its_attempt_whatever_the_workers_clock_says() -> None:
    early = replace(RUNNING, steps=(*DONE, StepView("compile", "running", "2026-11-22T07:00:00Z")))
    found = steps_of(early, USUAL)
    assert (found.seconds, found.current and found.current.seconds) == (40.0, 28.0)
    late = replace(RUNNING, steps=(*DONE, StepView("compile", "running", "2026-11-22T12:00:00Z")))
    assert said(late).startswith("Compiling for 0 s, ")


def test_the_step_that_is_expected_is_the_one_that_usually_runs() -> None:
    reuses = replace(USUAL, medians={**MEDIANS, "reuse": 3.0}, counts={"compile": 1, "reuse": 9})
    names = {step.name: step.expected for step in steps_of(replace(RUNNING, steps=DONE), reuses).steps}
    assert names["compile or reuse"] == 3.0


def test_bars_fill_up_to_the_usual_time_and_claim_nothing_beyond() -> None:
    compiling = steps_of(RUNNING, USUAL).current
    assert compiling is not None
    assert compiling.progress == pytest.approx(0.4)
    over = steps_of(RUNNING, replace(USUAL, medians={**MEDIANS, "compile": 5.0})).current
    assert over is not None
    assert (over.progress, over.is_late) == (None, True)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(-3.0, "a few seconds"), (7.9, "a few seconds"), (38, "40 s"), (58, "1 min 0 s"), (131, "2 min 10 s"),
     (725, "12 min"), (3590, "1 h 0 min")],
)  # fmt: skip
def test_what_is_left_is_as_coarse_as_it_is_uncertain(seconds: float, text: str) -> None:
    assert format_remaining(seconds) == text


@pytest.mark.parametrize(("seconds", "text"), [(-1.0, "0 s"), (29.9, "29 s"), (200.7, "3 min 20 s")])
def test_what_counts_up_has_whole_seconds(seconds: float, text: str) -> None:
    assert format_elapsed(seconds) == text
