"""The sentence that answers whether a version may be promoted."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pt2hub.domain.digests import digest_bytes
from pt2hub.rendering.comparison_answers import Answer
from pt2hub.server.pages.publishing.version_answers import Standing, answer_version
from pt2hub.wire.performance import PromotionCheckResult, PromotionPreview
from pt2hub.wire.resolution import Yank
from pt2hub.wire.responses import AliasMove, AliasView, BuildView, VersionView

MODEL = "vision/vit"
NOW = "2026-11-27T12:00:00+00:00"
H100, L4, CPU = "torch2.13-cu130-sm90", "torch2.13-cu130-sm89", "torch2.13-cpu-x86_64_v4"
SLOWER = Answer("bad", "Version 3 is 11.0 % slower than version 2 on H100 · torch 2.13.")
AS_FAST = Answer("good", "Version 3 is as fast as version 2.")


def build(target: str, state: str = "succeeded", code: str | None = None) -> BuildView:
    return BuildView(
        id=f"{target}-{state}",
        model=MODEL,
        number=3,
        target=target,
        state=state,
        attempt=1,
        created_at=NOW,
        error={"code": code} if code else None,
    )


def version(*builds: BuildView) -> VersionView:
    return VersionView(
        model=MODEL,
        number=3,
        identity=digest_bytes(b"identity"),
        readiness="ready",
        spec={},
        pins={},
        created_at=NOW,
        builds=builds or (build(H100), build(L4)),
    )


def alias(number: int = 2) -> AliasView:
    return AliasView(MODEL, "prod", number, AliasMove(1, None, number, "offline test", "mary", NOW))


def preview(*passed: bool) -> PromotionPreview:
    checks = tuple(
        PromotionCheckResult(
            kind="metric", path="checks[0]", passed=each, check={"metric": "latency_p50"}, message=""
        )
        for each in passed
    )
    return PromotionPreview(MODEL, "prod", 2, 3, all(passed), checks=checks)


def said(standing: Standing) -> tuple[str, str]:
    answer = answer_version(standing)
    return answer.tone, answer.text


def test_a_yank_comes_first() -> None:
    yanked = replace(version(build(H100, "failed", "export_failed")), yanked=Yank("wrong labels", "ada", NOW))
    assert said(Standing(yanked, alias())) == ("bad", "Yanked by ada: wrong labels")


@pytest.mark.parametrize(
    ("builds", "answer"),
    [
        (
            (build(H100), build(L4, "failed", "verification_failed")),
            ("bad", "The build for L4 · torch 2.13 failed: verification_failed."),
        ),
        (
            (build(H100, "failed"), build(L4, "failed"), build(CPU)),
            ("bad", "2 of 3 builds failed: H100 · torch 2.13, L4 · torch 2.13."),
        ),
        ((build(H100), build(L4, "running")), ("busy", "Building: 1 of 2 targets are done.")),
        ((build(H100, "queued"), build(L4, "queued")), ("busy", "Queued: 0 of 2 targets are done.")),
        (
            (build(H100), build(L4, "cancelled")),
            ("warn", "1 of 2 builds was cancelled: L4 · torch 2.13."),
        ),
    ],
)
def test_what_is_wrong_with_builds_is_said(builds: tuple[BuildView, ...], answer: tuple[str, str]) -> None:
    assert said(Standing(version(*builds), alias())) == answer


def test_a_version_without_builds_says_what_to_do() -> None:
    tone, text = said(Standing(replace(version(), builds=())))
    assert (tone, "publish its spec again" in text) == ("warn", True)


def test_the_version_in_production_says_since_when_and_by_whom() -> None:
    tone, text = said(Standing(version(), alias(3)))
    assert tone == "good"
    assert text.startswith("prod is on this version, moved ")
    assert text.endswith(" ago by mary: offline test")
    tone, text = said(Standing(version(build(H100), build(L4, "failed", "export_failed")), alias(3)))
    assert (tone, text.endswith("offline test. The build for L4 · torch 2.13 failed: export_failed.")) == (
        "bad",
        True,
    )


@pytest.mark.parametrize(
    ("standing", "answer"),
    [
        (
            Standing(version()),
            ("good", "Ready: every target has an artifact. The model has no production alias yet."),
        ),
        (
            Standing(version(), alias(), preview(True, True), AS_FAST),
            ("good", f"Ready to promote to prod: all 2 checks pass. {AS_FAST.text}"),
        ),
        (
            Standing(version(), alias(), preview(True), SLOWER),
            ("warn", f"Ready to promote to prod: its check passes. {SLOWER.text}"),
        ),
        (
            Standing(version(), alias(), preview(True, False), SLOWER),
            ("bad", f"1 of 2 checks refuses it for prod: the median latency. {SLOWER.text}"),
        ),
        (
            Standing(version(), alias(), preview(), SLOWER),
            ("bad", f"{SLOWER.text} prod is on version 2 and has no checks."),
        ),
        (Standing(version(), alias(), preview()), ("good", "Ready; prod has no checks.")),
        (Standing(version(), alias()), ("warn", "It cannot be compared with prod.")),
    ],
)
def test_a_whole_version_says_whether_it_may_be_promoted(standing: Standing, answer: tuple[str, str]) -> None:
    assert said(standing) == answer
