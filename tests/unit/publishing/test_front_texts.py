"""Sentences of the front page and of the lists."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from flask import Flask

from pt2hub.domain.digests import Digest
from pt2hub.server.pages.builds.list_answers import compose_list_answer, compose_target_answer, urgency
from pt2hub.server.pages.front.attention_texts import compose_answer, compose_needs, pick_needs
from pt2hub.server.pages.front.model_rows import row_of
from pt2hub.server.pages.installation import install
from pt2hub.server.pages.publishing.version_search import VersionQuery
from pt2hub.server.pages.publishing.version_search import compose_answer as compose_version_answer
from pt2hub.server.pages.search import compose_search_answer
from pt2hub.server.pages.usage import compose_usage_answer
from pt2hub.server.views.attention import Attention, DamagedVersion, FailedBuild, IdleQueue, UnmeasuredVersion
from pt2hub.server.views.overview import ModelOverview, Production, Regression, Totals, Trend
from pt2hub.wire.performance import ChangeView, SeriesSummary
from pt2hub.wire.responses import BuildPage, FoundVersions, ModelView, TargetView, VersionSummary
from pt2hub.wire.search import SearchHit
from pt2hub.wire.usage import TeamUsage, UsageView

if TYPE_CHECKING:
    from collections.abc import Iterator

AT = "2026-11-22T10:00:00Z"
CPU, GPU = "torch2.13-cpu-x86_64_v4", "torch2.13-cu130-sm90"
ANY = Digest(f"sha256:{'0' * 64}")


@pytest.fixture(autouse=True)
def addresses() -> Iterator[None]:
    """A request, within which pages have addresses."""
    app = Flask("texts", static_folder=None)
    install(app)
    with app.test_request_context():
        yield


def regression(
    model: str = "vision/net", metric: str = "latency_p50", others: int = 0, target: str = GPU
) -> Regression:
    return Regression(model, 3, 2, 4, metric, "ms", target, 8, 1.218, AT, others)


def failed(number: int = 1) -> FailedBuild:
    return FailedBuild(f"b{number}", "vision/net", number, GPU, "compile_failed", AT)


def speed(*values: float, change: ChangeView | None = None) -> Trend:
    series = SeriesSummary("latency_p50", "ms", CPU, "artifact", ANY, 4, values[-1], AT, 8, values)
    return Trend(series, change, 1 if change else None, "steady")


@pytest.mark.parametrize(
    ("attention", "tone", "text"),
    [
        (Attention(), "good", "Production is fine: no regressions, no failed builds."),
        (Attention(has_production=False), "calm", "No model is in production yet. No builds failed."),
        (
            Attention((regression(), regression("a/b")), (failed(),)),
            "bad",
            "2 models in production are slower than before; 1 build failed.",
        ),
        (
            Attention((regression(metric="peak_memory"),)),
            "bad",
            "1 model in production regressed in other measurements.",
        ),
        (
            Attention(queues=(IdleQueue(GPU, 2, AT), IdleQueue(CPU, 1, AT))),
            "warn",
            "3 builds wait without a worker.",
        ),
        (
            Attention(failed=(failed(), replace(failed(2), is_measuring=True))),
            "bad",
            "1 build failed; 1 measuring job of production failed.",
        ),
        (
            Attention(unmeasured=(UnmeasuredVersion("vision/net", 4, "prod", AT),)),
            "warn",
            "1 version in production is not measured.",
        ),
    ],
)
def test_the_first_sentence_says_whether_production_is_fine(
    attention: Attention, tone: str, text: str
) -> None:
    answer = compose_answer(attention)
    assert (answer.tone, answer.text) == (tone, text)


def test_a_server_without_models_says_so() -> None:
    assert compose_answer(Attention(has_production=False), has_models=False).text == "No models yet."


def test_each_thing_that_needs_somebody_is_a_line_and_the_worst_kind_comes_first() -> None:
    attention = Attention(
        (regression(others=2),),
        (failed(), replace(failed(4), is_measuring=True)),
        (IdleQueue(GPU, 1, AT),),
        (UnmeasuredVersion("vision/net", 4, "prod", None),),
    )
    lines = [f"{need.subject} {need.text} {need.target}{need.after}" for need in compose_needs(attention)]
    assert lines == [
        f"vision/net@4 is 21.8 % slower since 3 on {GPU}",
        f"vision/net@1 failed on {GPU}: compile_failed",
        f"vision/net@4 could not be measured on {GPU}: compile_failed",
        f"1 build waits for {GPU}: no live worker",
        "vision/net@4 is in production (prod) and not measured ",
    ]
    assert [need.tone for need in compose_needs(attention)] == ["bad", "bad", "bad", "warn", "warn"]


def test_labels_that_were_searched_for_come_first() -> None:
    """A row shows three, and a search for an owner did not show the owner."""
    labels = {"data": "x", "git.branch": "main", "owner": "search", "run": "y"}
    query = VersionQuery(q="owner=search since=7d", label="run")
    assert [key for key, _ in query.order_labels(labels)] == ["owner", "run", "data", "git.branch"]
    assert list(VersionQuery(q='owner="x').order_labels(labels)) == list(labels.items())


def test_a_damaged_version_is_one_line_for_all_its_targets() -> None:
    """One line for each artifact would hide the regressions below it."""
    attention = Attention(
        damaged=(DamagedVersion("vision/net", 4, (CPU, GPU), AT), DamagedVersion("vision/net", 5, (GPU,), AT))
    )
    lines = [f"{need.subject} {need.text} {need.target}{need.after}" for need in compose_needs(attention)]
    assert lines == [
        "vision/net@4 is damaged for 2 targets : run pt2hub admin heal",
        f"vision/net@5 is damaged for {GPU}: run pt2hub admin heal",
    ]
    assert compose_answer(attention).text == "2 versions in production are damaged and cannot be pulled."


def test_many_of_one_kind_hide_no_other() -> None:
    attention = Attention(
        tuple(regression(f"team/m{number}") for number in range(9)),
        tuple(failed(number) for number in range(9)),
        (IdleQueue(GPU, 1, AT),),
    )
    subjects = [need.subject for need in pick_needs(attention, 6)]
    assert subjects == [*(f"team/m{number}@4" for number in range(4)), "vision/net@0", "1 build"]
    assert len(pick_needs(Attention(failed=(failed(),)), 6)) == 1


def test_a_row_says_what_production_has_and_how_it_changed() -> None:
    model = ModelView("vision/net", AT, 5, newest=5, newest_ready=5, aliases={"prod": 4})
    production = Production("prod", 4, AT, "mary")
    slower = row_of(ModelOverview(model, production, speed(5.0, 6.1), regression(others=2)))
    assert slower.change
    assert (slower.change.outcome, slower.change.text, slower.change.target) == (
        "worse",
        "21.8 % slower since 3",
        "H100",  # not where the speed is from
    )
    assert slower.moved == "prod is on version 4 since 2026-11-22 10:00:00 UTC, moved by mary"
    assert slower.trend.startswith("Median latency of 2 versions up to 4 on torch2.13-cpu")
    faster = row_of(ModelOverview(model, production, speed(5.0, 4.0, change=ChangeView(4, 3, "better", 0.8))))
    assert faster.change
    assert (faster.change.outcome, faster.change.text) == ("better", "20.0 % faster since 4")
    steady = row_of(ModelOverview(model, production, speed(5.0, 5.0)))
    assert steady.change
    assert (steady.change.href, steady.change.text) == (None, "steady")
    waiting = row_of(ModelOverview(model, production, measurement="waiting"))
    assert (waiting.change, waiting.missing) == (None, "waiting to be measured")
    assert row_of(ModelOverview(model, production)).missing == "not measured yet"
    assert row_of(ModelOverview(ModelView("a/b", AT, 0))).missing == "no version yet"


def test_lists_of_builds_and_targets_begin_with_what_goes_on() -> None:
    totals = Totals(3, 2, 2, 3, 1, 0, 0, 4, 2)
    answer = compose_list_answer(BuildPage(()), totals, is_filtered=False)
    assert answer.text == "2 builds run, 3 wait, 1 failed in the last 7 days."
    assert compose_list_answer(BuildPage(()), totals, is_filtered=True).text == "No builds match."
    targets = [
        TargetView(CPU, live_workers=2, queued=1),
        TargetView(GPU, live_workers=0, queued=2),
        TargetView("torch2.13-cu130-sm75", live_workers=0),
    ]
    assert compose_target_answer(targets).text == (
        "1 of 3 targets has a live worker; nothing serves H100 · torch 2.13: 2 builds wait."
    )
    assert compose_target_answer(targets[:1]).text == (
        "1 of 1 target has a live worker; 1 build waits for a free worker."
    )
    assert [target.name for target in sorted(targets, key=urgency)] == [GPU, CPU, targets[2].name]
    many = [TargetView(f"torch2.{minor}-cu130-sm90", live_workers=0, queued=1) for minor in range(100)]
    assert "and 98 more: 100 builds wait." in compose_target_answer(many).text


def test_versions_usage_and_search_begin_with_a_sentence_too() -> None:
    versions = tuple(VersionSummary("a/b", number, "ready", AT) for number in (1, 2))
    assert compose_version_answer(FoundVersions(versions), is_filtered=True) == "2 versions match: 2 ready."
    assert compose_version_answer(FoundVersions(versions, 1), is_filtered=False) == (
        "The first 2 versions: 2 ready."
    )
    teams = (TeamUsage("a", 1, 1, 1, 2048, 0), TeamUsage("b", 1, 1, 1, 1024, 9))
    assert compose_usage_answer(UsageView(teams, 9, 0)) == (
        "2 teams store 3 KiB; a stores most (2 KiB). b reached a limit."
    )
    hits = [SearchHit("model", "a/b"), SearchHit("model", "a/c"), SearchHit("target", GPU)]
    assert compose_search_answer(hits, "a") == "2 models and 1 target match “a”."
    assert compose_search_answer(hits[:1], "a") == "1 model matches “a”."
    assert compose_search_answer([], "a") == "Nothing matches “a”."
