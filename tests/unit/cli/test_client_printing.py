"""What a prompt and a notebook show: a few lines, what to do next, nothing that runs."""

from __future__ import annotations

import pkgutil
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from pt2hub import wire
from pt2hub.client.artifacts.local import LocalArtifact
from pt2hub.domain.digests import digest_bytes
from pt2hub.renderable import Renderable
from pt2hub.rendering import sheets
from pt2hub.rendering.dispatch import sheet_of
from pt2hub.wire.resolution import ArtifactRef, ResolvedReference
from pt2hub.wire.responses import (
    AliasMove,
    AliasView,
    AttemptView,
    BuildView,
    LogView,
    ModelView,
    StepView,
    TargetView,
    VersionSummary,
    VersionView,
    WaitReason,
)
from pt2hub.wire.workers import WorkerView
from support.artifacts import a_config

V3 = "torch2.13-cpu-x86_64_v3"
GPU = "torch2.11-cu130-sm90"
DIGEST = digest_bytes(b"")
ERROR = {
    "code": "export_failed",
    "kind": "usage",
    "message": "The model could not be exported",
    "where": "forward",
    "hint": "Replace the data-dependent branch.",
}
MOVE = AliasMove(2, 1, 3, "faster", "ci", "2026-11-21")


def a_build(state: str = "succeeded", **fields: Any) -> BuildView:
    return replace(BuildView("b1", "team/net", 3, V3, state, 1, "2026-11-21"), **fields)


def a_version(readiness: str, *builds: BuildView) -> VersionView:
    return VersionView("team/net", 3, DIGEST, readiness, "2026", {"model": "x" * 5000}, {}, builds)


def test_a_failed_version_says_what_failed_and_what_to_do() -> None:
    text = repr(a_version("partial", a_build(artifact=DIGEST), a_build("failed", target=GPU, error=ERROR)))
    assert text.splitlines() == [
        "team/net@3  partial",
        f"  {V3}  succeeded  {DIGEST[:19]}...",
        f"  {GPU}     failed     The model could not be exported",
        f"  {GPU}: forward: The model could not be exported",
        "    Replace the data-dependent branch.",
        "  [export_failed]",
        "  The whole log: pt2hub logs b1",
        '  To use it: pt2hub.load("team/net@3")',
    ]


def test_a_version_that_builds_says_how_to_wait() -> None:
    step = StepView("compile", "running", "2026", detail="3 kernels")
    text = str(a_version("pending", a_build("running", steps=(step,))))
    assert "running  compile 3 kernels" in text
    assert "follow(version)" in text


def test_a_build_that_was_handed_back_is_not_simply_queued() -> None:
    assert "attempt 2" in str(a_build("queued"))
    back = AttemptView(1, "w1", "2026", "2026", "handed_back")
    waiting = a_build("queued", attempts=(back,), position=11, wait=WaitReason("no_live_worker"))
    assert str(waiting).splitlines() == [
        f"b1  team/net@3 for {V3}  queued 11th",
        "  no live worker offers this target; attempt 2, attempt 1 was handed back",
    ]
    assert repr(a_build("queued", attempt=0)) == f"<Build b1  team/net@3 for {V3}  queued>"


def test_places_in_a_queue_are_said_as_people_say_them() -> None:
    said = [sheets.ordinal(number) for number in (1, 2, 3, 4, 11, 12, 13, 21, 101, 111, 122)]
    assert said == ["1st", "2nd", "3rd", "4th", "11th", "12th", "13th", "21st", "101st", "111th", "122nd"]


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(1.9, ""), (-2.4, "clock 2 s behind"), (600.0, "clock 10 min ahead"), (-86400.0, "clock 1 d behind")],
)
def test_a_worker_whose_clock_is_wrong_says_by_how_much(seconds: float, words: str) -> None:
    worker = WorkerView(
        "w1", V3, "idle", "host", "0.1", 2, "2026", "2026", clock_skew=seconds, isolation="sandbox"
    )
    assert repr(worker) == f"<Worker w1  idle  {V3}  0 of 2  in a sandbox  {words}".rstrip() + ">"


@pytest.mark.parametrize(
    ("isolation", "words"),
    [
        ("process", "without a sandbox"),
        ("none", "runs no models"),
        ("vm", "vm"),
    ],  # the last of a newer server
)
def test_a_worker_says_whether_models_code_is_confined(isolation: str, words: str) -> None:
    worker = WorkerView("w1", V3, "idle", "host", "0.1", 2, "2026", "2026", isolation=isolation)
    assert repr(worker) == f"<Worker w1  idle  {V3}  0 of 2  {words}>"


def test_a_build_shows_its_steps() -> None:
    build = a_build(
        steps=(StepView("fetch", "done", "2026", 0.25), StepView("key", "done", "2026", 1.5, "miss"))
    )
    assert str(build).splitlines()[1:] == ["  done  fetch  250 ms", "  done  key    1.5 s   miss"]


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (a_build("failed", error=ERROR), "failed: The model could not be exported"),
        (
            ModelView("team/net", "2026", 3, 3, 2, {"prod": 2}, "A net."),
            "3 versions, newest ready 2, prod is 2",
        ),
        (
            VersionSummary("team/net", 3, "ready", "2026", {V3: "succeeded"}, ("prod",)),
            f"(prod)  {V3} succeeded",
        ),
        (AliasView("team/net", "prod", 3, MOVE, (MOVE,) * 100), "team/net@prod is team/net@3"),
        (AliasView("team/net", "prod", None, MOVE), "team/net@prod was removed"),
        (ArtifactRef(V3, DIGEST, "2026"), DIGEST),
        (TargetView(V3, 0), "no live worker"),
        (TargetView(V3, 2), "2 live workers"),
        (TargetView(V3, 1, queued=3, running=2), "1 live worker, 3 queued, 2 running"),
        (LogView(1, 1.0, "compile", "error", "no space"), "compile  error: no space"),
    ],
)
def test_what_stands_in_lists_is_one_line(value: object, words: str) -> None:
    assert words in repr(value)
    assert len(repr([value]).splitlines()) == 1


def test_what_a_reference_names_is_pinned_line_by_line() -> None:
    view = ResolvedReference("team/net@prod", "team/net", 3, (ArtifactRef(V3, DIGEST, "2026"),), alias="prod")
    assert repr(view) == f"team/net@prod is team/net@3\n  {V3}  {DIGEST}"


def test_a_pulled_artifact_shows_its_files_and_not_its_config() -> None:
    artifact = replace(
        LocalArtifact.from_files(a_config(), Path("/c/code"), Path("/c/weights")), manifest_digest=DIGEST
    )
    assert repr(artifact).splitlines()[1:] == [
        "  code     /c/code",
        "  weights  /c/weights",
        f'  To use it: pt2hub.load("team/net@{DIGEST}")',
    ]


def test_markup_and_escape_sequences_are_taken_out() -> None:
    evil = "<script>alert(1)</script>\x1b[2J\x07&"
    error = {"code": "x<y", "kind": "usage", "message": evil, "hint": evil}
    values = [
        a_version("failed", a_build("failed", target=evil, error=error)),
        a_build("running", cancellation=evil, steps=(StepView(evil, evil, "", 1.0, evil),)),
        ModelView("a/b", "", 1, description=evil),
        VersionSummary("a/b", 1, evil, "", {evil: evil}, (evil,)),
        AliasView("a/b", evil, 1, replace(MOVE, reason=evil), (replace(MOVE, by=evil),)),
        ResolvedReference(evil, evil, 1, (ArtifactRef(evil, DIGEST, ""),)),
        TargetView(evil, 1),
        LogView(1, 1.0, evil, evil, evil),
    ]
    for value in values:
        html = value._repr_html_()
        assert "<script>" not in html
        assert "&lt;script&gt;" in html
        for text in (html, str(value), repr(value)):
            assert "\x1b" not in text
            assert "\x07" not in text


def test_every_shape_of_the_api_that_prints_has_a_sheet() -> None:
    modules = [import_module(f"pt2hub.wire.{item.name}") for item in pkgutil.iter_modules(wire.__path__)]
    shapes = {
        value
        for module in modules
        for value in vars(module).values()
        if isinstance(value, type) and issubclass(value, Renderable) and value is not Renderable
    }
    assert {"BuildView", "ResolvedReference"} < {cls.__name__ for cls in shapes}
    assert [cls.__name__ for cls in shapes if sheet_of.dispatch(cls) is sheet_of.dispatch(object)] == []


def test_a_value_that_nobody_renders_says_so() -> None:
    with pytest.raises(TypeError, match="no sheet for int"):
        sheet_of(1)
