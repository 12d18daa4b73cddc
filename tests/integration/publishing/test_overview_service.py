"""Overviews of models and numbers, over a real PostgreSQL."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pt2hub.domain.tokens import Actor
from pt2hub.errors import CompileFailed
from pt2hub.server.pages.trend_texts import format_trend
from support.figures import Run, latency, measured, versions
from support.registry import GPU, V4

if TYPE_CHECKING:
    from pt2hub.server.views.overview import ModelOverview
    from support.registry import Registry

MODEL = "vision/resnet18"


def overview(registry: Registry, name: str = MODEL) -> ModelOverview:
    (found,) = registry.services.overview.models(name).models
    return found


def flag(registry: Registry, number: int, kind: str, outcome: str) -> None:
    registry.sql(
        "INSERT INTO performance_events (series_id, model_id, kind, number, before, outcome, ratio, method) "
        "SELECT id, model_id, %s, %s::int, %s::int - 1, %s, 1.5, 'series' FROM series "
        "WHERE metric = 'latency_p50' AND batch = 2 AND implementation = 'artifact'",
        kind,
        number,
        number,
        outcome,
    )


def test_a_model_says_where_its_newest_version_stands_beside_the_newest_ready_one(registry: Registry) -> None:
    versions(registry, 2)
    found = overview(registry)
    assert (found.model.newest_ready, found.newest_state, found.ready_at) == (2, "ready", found.newest_at)
    failing = registry.submit(checks={"tolerance": 0.5})
    assert overview(registry).newest_state == "pending"
    registry.services.builds.fail(registry.claim(failing.builds[0].id), CompileFailed("no"))
    after = overview(registry)
    assert (after.model.newest, after.model.newest_ready, after.newest_state) == (3, 2, "failed")
    assert after.ready_at == found.ready_at != after.newest_at


def test_a_trend_holds_the_newest_flagged_change_within_its_figures(registry: Registry) -> None:
    many = versions(registry, 25)
    assert format_trend(overview(registry).trends[0]) == "steady"
    (trend,) = overview(registry).trends
    assert (trend.series.target, trend.series.batch, trend.change, trend.change_index) == (V4, 2, None, None)
    assert len(trend.series.values) == 20  # versions 6 to 25
    flag(registry, 5, "change_point", "worse")  # before them
    assert overview(registry).trends == (trend,)
    flag(registry, 8, "comparison", "worse")
    flag(registry, 10, "comparison", "worse")
    flag(registry, 10, "change_point", "better")
    (changed,) = overview(registry).trends
    assert changed.change
    assert (changed.change.number, changed.change.kind, changed.change_index) == (10, "change_point", 4)
    measured(registry, many[-1], latency(10.5, batch=2), run=Run(day=1))
    assert overview(registry).trends[0].change == changed.change


def test_a_page_of_models_takes_as_many_statements_as_one_model(
    registry: Registry, statements: list[str]
) -> None:
    for model in ("a/one", "b/two", "c/three", "d/four"):
        registry.published(registry.submit(model=model))
    statements.clear()
    registry.services.overview.models("a/one")
    for_one = len(statements)
    page = registry.services.overview.models(limit=3)
    assert [item.model.name for item in page.models] == ["a/one", "b/two", "c/three"]
    assert all(item.trends and item.newest_state == "ready" for item in page.models)
    assert len(statements) == 2 * for_one
    rest = registry.services.overview.models(after=page.next or "", limit=3)
    assert ([item.model.name for item in rest.models], rest.next) == (["d/four"], None)


def test_a_model_without_versions_is_shown_too(registry: Registry) -> None:
    registry.sql("INSERT INTO models (name) VALUES ('a/empty')")
    found = overview(registry, "a/empty")
    assert (found.model.newest, found.newest_state, found.newest_at, found.trends) == (None, None, None, ())


def test_totals_count_what_goes_on_and_what_failed_lately(registry: Registry) -> None:
    registry.worker("w1")
    registry.worker("w2")
    registry.worker("gpu", GPU)
    registry.worker("gone")
    registry.silence("gone")
    versions(registry, 1)
    for kind in ("comparison", "change_point"):  # of one version
        flag(registry, 1, kind, "better")
    registry.services.aliases.move(MODEL, "prod", 1, expected=None, reason="first", by=Actor("t"))
    failed, waiting, old = (registry.submit(checks={"tolerance": value}) for value in (0.3, 0.4, 0.5))
    for build in (failed.builds[0], old.builds[0]):
        registry.services.builds.fail(registry.claim(build.id), CompileFailed("no"))
    registry.sql("UPDATE builds SET created_at = now() - interval '8 days' WHERE id = %s", old.builds[0].id)
    totals = registry.services.overview.totals()
    assert (totals.models, totals.aliased, totals.queued, totals.running, totals.failed) == (1, 1, 1, 0, 1)
    assert (totals.worse, totals.better, totals.workers, totals.targets) == (0, 1, 3, 2)
    registry.claim(waiting.builds[0].id)
    assert registry.services.overview.totals().running == 1
