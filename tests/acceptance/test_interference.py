"""Models that break their build's process are told so, with a code and a hint, and nothing of them is published."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from support.working import Works

TINY = "support.tiny_models"
INSIDE = "pt2hub_workers.inside"
CASES: dict[str, tuple[dict[str, Any], str]] = {
    "closing": ({"factory": f"{TINY}:closing"}, "lost its channel to the worker"),
    "muting": ({"factory": f"{TINY}:muting"}, "The model's code closed the channel"),
    "asking": (
        {"factory": f"{TINY}:patching", "kwargs": {"what": f"{INSIDE}.operations.channel:Channel.ask"}},
        f"replaced functions of pt2hub: {INSIDE}.operations.channel.Channel.ask",
    ),
    "keying": (
        {"factory": f"{TINY}:patching", "kwargs": {"what": f"{INSIDE}.builds.build:compute_program_key"}},
        f"replaced functions of pt2hub: {INSIDE}.builds.build.compute_program_key",
    ),
    "unused": (  # nothing fails for it: it is found at the end
        {"factory": f"{TINY}:patching", "kwargs": {"what": f"{INSIDE}.builds.build:_reused_autotuning"}},
        f"replaced functions of pt2hub: {INSIDE}.builds.build._reused_autotuning",
    ),
}


@pytest.mark.compiles
def test_a_model_that_interferes_with_its_build_is_told_so_and_never_published(works: Works) -> None:
    works.start()
    builds = {name: works.publish(source=source) for name, (source, _) in CASES.items()}
    for name, build in builds.items():
        view = works.await_state(build, "failed", "succeeded")
        error = view.error or {}
        assert (view.state, view.artifact) == ("failed", None), name
        assert error["code"] == "model_interferes", (name, error)
        assert CASES[name][1] in error["message"], (name, error)
        assert error["hint"], name
        assert len(view.attempts) == 1, "it would end the same way again"
    assert works.sql("SELECT count(*) FROM artifacts") == [(0,)]
