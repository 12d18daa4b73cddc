"""Overviews of models, what needs somebody, and numbers, over a real PostgreSQL."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pt2hub.domain.digests import digest_bytes
from pt2hub.domain.tokens import Actor
from pt2hub.errors import CompileFailed, InvalidInput, UnknownTarget
from pt2hub.server.blobs.keys import StorageKey
from pt2hub.server.pages.trend_texts import format_trend
from pt2hub.server.views.overview import ModelFilter
from support.figures import Run, latency, measured, versions
from support.registry import GPU, V3, V4
from support.remeasuring import published_unmeasured, the_job

if TYPE_CHECKING:
    from flask.testing import FlaskClient

    from pt2hub.server.views.overview import AliasChoice, ModelOverview, Order
    from support.registry import Registry

MODEL = "vision/resnet18"


def overview(registry: Registry, name: str = MODEL) -> ModelOverview:
    (found,) = registry.services.overview.models(ModelFilter(search=name)).models
    return found


def flag(
    registry: Registry, number: int, kind: str, outcome: str, ratio: float = 1.5, model: str = MODEL
) -> None:
    registry.sql(
        "INSERT INTO performance_events (series_id, model_id, kind, number, before, outcome, ratio, method) "
        "SELECT id, model_id, %s, %s::int, %s::int - 1, %s, %s, 'series' FROM series "
        "WHERE metric = 'latency_p50' AND batch = 2 AND implementation = 'artifact' "
        "AND model_id = (SELECT id FROM models WHERE name = %s)",
        kind,
        number,
        number,
        outcome,
        ratio,
        model,
    )


def promote(registry: Registry, number: int, model: str = MODEL, alias: str = "prod") -> None:
    known = registry.services.catalog.model(model).aliases.get(alias)
    registry.services.aliases.move(
        model, alias, number, expected=known, reason="it is better", by=Actor("mary")
    )


def names(registry: Registry, order: Order, wanted: ModelFilter | None = None) -> list[str]:
    found = registry.services.overview.models(wanted or ModelFilter(), order=order)
    return [item.model.name for item in found.models]


def test_a_model_shows_the_version_in_production_and_the_last_build(registry: Registry) -> None:
    versions(registry, 2)
    before = overview(registry)
    assert (before.production, before.shown) == (None, 2)
    promote(registry, 1)
    failing = registry.submit(checks={"tolerance": 0.5}).builds[0].id
    assert overview(registry).build
    registry.services.builds.fail(registry.claim(failing), CompileFailed("no"))
    found = overview(registry)
    assert found.production
    assert (found.production.alias, found.production.number, found.production.by) == ("prod", 1, "mary")
    assert found.speed
    assert (found.shown, found.speed.series.newest) == (1, 1)  # not the newest version's
    assert found.build
    assert (found.build.id, found.build.number, found.build.state) == (failing, 3, "failed")


def test_of_several_production_aliases_the_one_with_the_shortest_name_counts(registry: Registry) -> None:
    versions(registry, 3)
    for alias, number in (("prod-eu", 1), ("live", 2), ("candidate", 3)):
        promote(registry, number, alias=alias)
    found = overview(registry).production
    assert found
    assert (found.alias, found.number) == ("live", 2)


def test_the_speed_is_that_on_a_gpu_before_a_cpu_and_on_the_chosen_target(registry: Registry) -> None:
    registry.worker("gpu", GPU)
    registry.worker("cpu", V4)
    view = registry.submit(targets=[V4, GPU])
    on_cpu = registry.published(view)
    claim = registry.claim(view.builds[1].id, "gpu")
    registry.services.builds.publish(claim, registry.publication(claim, code=b"gpu"))
    measured(registry, on_cpu, latency(7.0, batch=2), run=Run(day=2))
    main = overview(registry).speed
    assert main
    assert main.series.target == GPU
    (found,) = registry.services.overview.models(ModelFilter(target=V4)).models
    assert found.speed
    assert (found.speed.series.target, found.speed.series.value) == (V4, 7.0)
    assert names(registry, "name", ModelFilter(target=V3)) == []


def test_a_trend_ends_at_the_version_in_production(registry: Registry) -> None:
    versions(registry, 25)
    promote(registry, 22)
    speed = overview(registry).speed
    assert speed
    assert format_trend(speed) == "steady"
    assert (speed.series.target, speed.series.batch, speed.series.newest) == (V4, 2, 22)
    assert len(speed.series.values) == 20  # versions 3 to 22
    flag(registry, 2, "change_point", "better")  # before them
    flag(registry, 24, "comparison", "better")  # after them
    assert overview(registry).speed == speed
    flag(registry, 10, "comparison", "worse")
    flag(registry, 10, "change_point", "better")
    changed = overview(registry).speed
    assert changed
    assert changed.change
    assert (changed.change.number, changed.change.kind, changed.change_index) == (10, "change_point", 7)


def test_a_regression_counts_until_a_version_up_to_production_is_better(registry: Registry) -> None:
    versions(registry, 6)
    promote(registry, 3)
    flag(registry, 4, "comparison", "worse", 1.3)  # not in production
    assert overview(registry).regression is None
    flag(registry, 2, "comparison", "worse", 1.2)
    found = overview(registry).regression
    assert found
    assert (found.number, found.before, found.production, found.ratio, found.others) == (2, 1, 3, 1.2, 0)
    flag(registry, 5, "comparison", "better", 0.8)
    assert overview(registry).regression == found  # production does not have that version
    assert [item.model for item in registry.services.overview.attention().regressions] == [MODEL]
    promote(registry, 6)
    assert overview(registry).regression is None
    assert registry.services.overview.attention().regressions == ()


def test_the_worst_change_in_production_comes_first_then_the_newest(registry: Registry) -> None:
    for model in ("a/fine", "b/slow", "c/slower", "d/loose"):
        for tolerance in (0.1, 0.2):
            registry.published(registry.submit(model=model, checks={"tolerance": tolerance}))
    for model, ratio in (("b/slow", 1.1), ("c/slower", 1.4), ("d/loose", 1.9)):
        flag(registry, 2, "comparison", "worse", ratio, model)
    for model in ("c/slower", "b/slow", "a/fine"):
        promote(registry, 2, model)
    assert names(registry, "change") == ["c/slower", "b/slow", "d/loose", "a/fine"]
    assert names(registry, "recent") == ["a/fine", "b/slow", "c/slower", "d/loose"]
    assert names(registry, "name") == ["a/fine", "b/slow", "c/slower", "d/loose"]


@pytest.mark.parametrize("order", ["change", "recent", "name"])
def test_each_order_has_pages_without_gaps(registry: Registry, order: Order) -> None:
    registry.sql(
        "INSERT INTO models (name) SELECT 'team/m' || lpad(n::text, 2, '0') FROM generate_series(1, 7) AS n"
    )
    seen, after = [], ""
    while True:
        page = registry.services.overview.models(order=order, after=after, limit=3)
        seen += [item.model.name for item in page.models]
        if page.next is None:
            break
        after = page.next
    assert seen == [f"team/m{number:02}" for number in range(1, 8)]
    gone = registry.services.overview.models(order="recent", after="team/none")
    assert gone.models == ()


@pytest.mark.parametrize(
    ("alias", "found"), [("", 3), ("prod", 1), ("any", 2), ("none", 1)], ids=["all", "prod", "any", "none"]
)
def test_models_are_chosen_by_their_aliases(registry: Registry, alias: AliasChoice, found: int) -> None:
    for model in ("a/one", "a/two", "b/three"):
        registry.published(registry.submit(model=model))
    promote(registry, 1, "a/one")
    promote(registry, 1, "a/two", "staging")
    assert len(names(registry, "name", ModelFilter(alias=alias))) == found
    assert names(registry, "name", ModelFilter(team="b")) == ["b/three"]


def test_models_are_chosen_by_labels_of_their_own_and_of_what_is_in_production(registry: Registry) -> None:
    for model, labels in (("a/one", {"stage": "x"}), ("b/two", {}), ("c/three", {})):
        registry.published(registry.submit(model=model, labels=labels))
    registry.services.labels.change(
        "b/two", None, put={"owner": "search"}, remove=(), expected={}, by=Actor("mary")
    )
    for label, found in (
        ("stage", ["a/one"]),
        ("stage=y", []),
        ("owner", ["b/two"]),
        ("owner=search", ["b/two"]),
    ):
        assert names(registry, "change", ModelFilter(label=label)) == found, label
    with pytest.raises(InvalidInput, match="No model or version has a label ownre") as refused:
        names(registry, "name", ModelFilter(label="ownre"))
    assert refused.value.hint == "Did you mean owner?"
    with pytest.raises(UnknownTarget):
        names(registry, "name", ModelFilter(target="nowhere"))


def test_a_page_of_models_takes_as_many_statements_as_one_model(
    registry: Registry, statements: list[str]
) -> None:
    for model in ("a/one", "b/two", "c/three", "d/four"):
        registry.published(registry.submit(model=model))
    statements.clear()
    registry.services.overview.models(ModelFilter(search="a/one"))
    for_one = len(statements)
    page = registry.services.overview.models(limit=3)
    assert [item.model.name for item in page.models] == ["a/one", "b/two", "c/three"]
    assert all(item.speed and item.build for item in page.models)
    assert len(statements) == 2 * for_one


def test_a_model_without_versions_and_one_with_a_long_name_are_shown_too(registry: Registry) -> None:
    long = f"team/{'n' * 195}"
    registry.sql("INSERT INTO models (name) VALUES ('a/empty'), (%s)", long)
    found = overview(registry, "a/empty")
    assert (found.model.newest, found.production, found.speed, found.build, found.shown) == (None,) * 5
    assert overview(registry, long).model.name == long


def test_what_is_damaged_in_production_needs_somebody_first(web: FlaskClient, served: Registry) -> None:
    for number in (1, 2):
        served.published(served.submit(checks={"tolerance": number / 10}), code=b"code %d" % number)
    served.services.aliases.move(MODEL, "prod", 1, expected=None, reason="first", by=Actor("t"))
    page = "/models/vision/resnet18/versions/1"
    assert "Production is fine" in web.get("/").get_data(as_text=True)
    for digest, found in ((digest_bytes(b"code 2"), []), (digest_bytes(b"code 1"), [(MODEL, 1, (V4,))])):
        key = StorageKey.blob(digest)
        served.services.storage.remove([key.at(1)])
        assert served.services.damage.check_key(key, by="scrub")
        damaged = served.services.overview.attention().damaged
        assert [(item.model, item.number, item.targets) for item in damaged] == found
    front = web.get("/").get_data(as_text=True)
    assert "1 version in production is damaged and cannot be pulled" in front
    assert "is damaged for" in front
    assert "Damaged on the server: it cannot be pulled until" in web.get(page).get_data(as_text=True)
    for place in (MODEL, f"{MODEL}/aliases/prod"):
        shown = web.get(f"/models/{place}").get_data(as_text=True)
        assert "Version 1 is damaged on the server: it cannot be pulled for" in shown
        assert "(pt2hub admin heal). prod is on version 1" in shown
    catalog = served.services.catalog
    assert [item.damaged for item in catalog.versions(MODEL).versions] == [(V4,), (V4,)]
    assert catalog.model(MODEL).damaged == {"prod": (V4,)}
    served.blob(b"code 1")
    assert served.services.overview.attention().damaged == ()
    assert catalog.model(MODEL).damaged == {}


def test_failed_builds_of_newest_versions_need_somebody(registry: Registry) -> None:
    registry.worker("w1")
    old, new = (registry.submit(checks={"tolerance": value}).builds[0].id for value in (0.1, 0.2))
    for build in (old, new):
        registry.services.builds.fail(registry.claim(build), CompileFailed("no"))
    (found,) = registry.services.overview.attention().failed
    assert (found.id, found.number, found.target, found.code) == (new, 2, V4, "compile_failed")
    registry.sql("UPDATE builds SET created_at = now() - interval '31 days'")
    assert len(registry.services.overview.attention().failed) == 1  # it waited long, and failed now
    registry.sql("UPDATE builds SET finished_at = now() - interval '31 days'")
    assert registry.services.overview.attention().failed == ()


def test_a_measuring_job_that_failed_needs_somebody_if_it_leaves_production_unmeasured(
    registry: Registry,
) -> None:
    job = the_job(registry, published_unmeasured(registry))
    registry.services.builds.fail(registry.claim(job), CompileFailed("no"))
    assert registry.services.overview.attention().failed == ()  # not in production
    promote(registry, 1)
    attention = registry.services.overview.attention()
    (found,) = attention.failed
    assert (found.id, found.number, found.is_measuring, attention.unmeasured) == (job, 1, True, ())
    registry.services.builds.retry(job, by=Actor("t"))
    assert registry.services.overview.attention().failed == ()


def test_builds_without_a_live_worker_need_somebody(registry: Registry) -> None:
    registry.worker("w1")
    registry.worker("gone", GPU)
    registry.submit(targets=[V4, GPU])
    registry.silence("gone")
    (found,) = registry.services.overview.attention().queues
    assert (found.target, found.builds) == (GPU, 1)


def test_versions_in_production_that_were_not_measured_need_somebody(registry: Registry) -> None:
    registry.published()
    attention = registry.services.overview.attention()
    assert (attention.has_production, attention.unmeasured) == (False, ())
    promote(registry, 1)
    assert registry.services.overview.attention().unmeasured == ()
    registry.sql("DELETE FROM series_points")
    registry.sql("DELETE FROM measurements")
    registry.sql("UPDATE builds SET state = 'cancelled' WHERE kind = 'measure'")
    attention = registry.services.overview.attention()
    (found,) = attention.unmeasured
    assert (found.model, found.number, found.alias, attention.has_production) == (MODEL, 1, "prod", True)
    row = overview(registry)
    assert (row.speed, row.measurement) == (None, "not_measured")


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
    registry.sql("UPDATE builds SET finished_at = now() - interval '8 days' WHERE id = %s", old.builds[0].id)
    totals = registry.services.overview.totals()
    assert (totals.models, totals.aliased, totals.queued, totals.running, totals.failed) == (1, 1, 1, 0, 1)
    assert (totals.worse, totals.better, totals.workers, totals.targets) == (0, 1, 3, 2)
    registry.claim(waiting.builds[0].id)
    assert registry.services.overview.totals().running == 1
