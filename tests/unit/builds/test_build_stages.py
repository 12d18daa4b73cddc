"""The stages of a build's page: what each was, and shares that add up to what is said."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pt2hub.server.pages.builds.steps import steps_of
from pt2hub.wire.responses import AttemptView, BuildView, StepView

ENDED = "2026-11-22T10:00:10Z"
BUILD = BuildView(
    id="b1",
    model="team/net",
    number=1,
    target="torch2.13-cpu-x86_64_v4",
    state="succeeded",
    attempt=1,
    created_at="2026-11-22T09:00:00Z",
    started_at="2026-11-22T10:00:00Z",
    finished_at=ENDED,
    steps=(
        StepView("fetch", "done", "2026-11-22T10:00:01Z", 1.0),
        StepView("compile", "done", "2026-11-22T10:00:02Z", 3.0),
        StepView("verify", "done", "2026-11-22T10:00:07Z", 2.9),
    ),
    attempts=(AttemptView(1, "w1", "2026-11-22T10:00:00Z", ENDED, "succeeded"),),
)


def test_stages_stand_where_they_were_and_what_was_between_them_is_told() -> None:
    found = steps_of(BUILD)
    assert [(stage.name, stage.start) for stage in found.parts] == [
        ("fetch", 1),
        ("compile", 2),
        ("verify", 7),
    ]
    assert (found.seconds, found.between) == (10, pytest.approx(3.1))
    assert [*(stage.share for stage in found.parts), found.between_share] == [100, 300, 290, 310]
    assert str(found) == "fetch 1.0 s, compile 3.0 s, verify 2.9 s, between steps 3.1 s"


@pytest.mark.parametrize("seconds", [(1.0, 1.0, 1.0), (0.0001, 0.0001, 9.0), (3.3333, 3.3333, 3.3333)])
def test_shares_add_up_to_all_of_the_attempt(seconds: tuple[float, ...]) -> None:
    steps = tuple(replace(step, seconds=it) for step, it in zip(BUILD.steps, seconds, strict=True))
    found = steps_of(replace(BUILD, steps=steps))
    assert sum(stage.share for stage in found.steps) + found.between_share == 1000


def test_a_worker_with_a_wrong_clock_keeps_its_stages_in_the_bar() -> None:
    skewed = tuple(
        replace(step, started_at=f"2026-11-22T1{hour}:00:00Z") for hour, step in enumerate(BUILD.steps)
    )
    found = steps_of(replace(BUILD, steps=skewed))
    ends = [stage.start + (stage.seconds or 0) for stage in found.parts]
    assert ends == sorted(ends)
    assert max(ends) <= found.seconds == 10
