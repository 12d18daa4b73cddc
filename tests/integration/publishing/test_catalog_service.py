from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from pt2hub.domain.builds import BuildFilter, BuildOrder, BuildState, Readiness, readiness
from pt2hub.domain.tokens import Actor
from pt2hub.errors import InvalidInput, NotFound, UnknownTarget
from pt2hub.server.db.stores.artifacts import references
from support.registry import GPU, V3, V4

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pt2hub.wire.responses import BuildView, ModelView, VersionSummary
    from support.registry import Registry

MODEL = "vision/resnet18"


def models_of(registry: Registry, limit: int, search: str = "") -> Iterator[ModelView]:
    after: str | None = ""
    while after is not None:
        page = registry.services.catalog.models(search, after=after, limit=limit)
        yield from page.models
        after = page.next


def versions_of(registry: Registry, limit: int) -> Iterator[VersionSummary]:
    before: int | None = None
    while True:
        page = registry.services.catalog.versions(MODEL, before=before, limit=limit)
        yield from page.versions
        if (before := page.next) is None:
            return


def builds_of(registry: Registry, limit: int, **wanted: Any) -> Iterator[BuildView]:
    after: str | None = None
    while True:
        page = registry.services.catalog.builds(BuildFilter(**wanted), after=after, limit=limit)
        yield from page.builds
        if (after := page.next) is None:
            return


def named(registry: Registry, *models: str) -> None:
    for name in models:
        registry.sql("INSERT INTO models (name) VALUES (%s)", name)


@pytest.mark.parametrize("limit", [1, 3, 4])
def test_models_come_by_name_page_by_page_to_the_end(registry: Registry, limit: int) -> None:
    names = ["a/a", "a/b", "a/c", "b/a"]
    named(registry, *reversed(names))
    assert [item.name for item in models_of(registry, limit)] == names


def test_models_are_searched_by_a_part_of_their_name_without_wildcards(registry: Registry) -> None:
    named(registry, "vision/resnet18", "vision/resnet_50", "nlp/bert", "nlp/re.net")

    def found(search: str) -> list[str]:
        return sorted(item.name for item in models_of(registry, 1, search))

    assert found("resnet") == ["vision/resnet18", "vision/resnet_50"]
    assert found("ResNet") == found("resnet")
    assert found("on/r") == found("resnet")
    assert found("t_5") == ["vision/resnet_50"]
    assert found("t%1") == found("re\\.net") == found("re?net") == found(" ") == []


def test_a_model_tells_its_versions_and_aliases(registry: Registry) -> None:
    registry.published()
    registry.published(registry.submit(checks={"tolerance": 0.1}, targets=[V4, V3]))  # only partial
    registry.submit(checks={"tolerance": 0.2})
    registry.services.aliases.move(MODEL, "prod", 2, expected=None, reason="x", by=Actor("ci"))
    registry.services.aliases.move(MODEL, "old", 1, expected=None, reason="x", by=Actor("ci"))
    registry.services.aliases.move(MODEL, "gone", 1, expected=None, reason="x", by=Actor("ci"))
    registry.services.aliases.remove(MODEL, "gone", expected=1, reason="x", by=Actor("ci"))
    named(registry, "vision/empty")
    model = registry.services.catalog.model(MODEL)
    assert (model.name, model.versions, model.newest, model.newest_ready) == (MODEL, 3, 3, 1)
    assert (model.aliases, model.created_at[-1]) == ({"prod": 2, "old": 1}, "Z")
    empty = registry.services.catalog.model("vision/empty")
    assert (empty.versions, empty.newest, empty.newest_ready, empty.aliases) == (0, None, None, {})
    assert registry.services.catalog.models().models == (empty, model)
    with pytest.raises(NotFound) as caught:
        registry.services.catalog.model("vison/resnet18")
    assert f"Did you mean {MODEL}?" in (caught.value.hint or "")


@pytest.mark.parametrize("limit", [1, 2, 3])
def test_versions_come_newest_first_page_by_page_to_the_end(registry: Registry, limit: int) -> None:
    for number in range(3):
        registry.submit(checks={"tolerance": 0.1 * (number + 1)}, targets=[V4, V3])
    registry.submit(model="other/net")
    assert [item.number for item in versions_of(registry, limit)] == [3, 2, 1]


def test_a_version_in_a_page_tells_readiness_targets_and_aliases(registry: Registry) -> None:
    first = registry.published(registry.submit(targets=[V4, V3]))
    assert first
    registry.submit(targets=[V4, V3, GPU])  # the same version, a target later
    registry.published(registry.submit(checks={"tolerance": 0.1}))
    for name in ("prod", "canary"):
        registry.services.aliases.move(MODEL, name, 1, expected=None, reason="x", by=Actor("ci"))
    newest, oldest = versions_of(registry, 10)
    assert (newest.readiness, newest.targets, newest.aliases) == ("ready", {V4: "succeeded"}, ())
    assert oldest.readiness == "partial"
    assert list(oldest.targets.items()) == [(V4, "succeeded"), (V3, "queued"), (GPU, "queued")]
    assert oldest.aliases == ("canary", "prod")
    with pytest.raises(NotFound, match=r"Model .* not found"):
        registry.services.catalog.versions("vision/none")


def test_newest_ready_follows_the_rule_of_readiness_for_every_mixture_of_states(registry: Registry) -> None:
    """The rule stands twice, in Python and in SQL; they must not drift apart."""
    version = registry.submit(targets=[V4, V3])
    registry.submit(targets=[V4, V3, GPU])  # stays queued, and was not there at first
    for states in itertools.product(BuildState, repeat=2):
        for build, state in zip(version.builds, states, strict=True):
            registry.sql("UPDATE builds SET state = %s WHERE id = %s", state.value, build.id)
        (summary,) = versions_of(registry, 10)
        assert summary.readiness == readiness(list(states))
        ready = 1 if readiness(list(states)) is Readiness.READY else None
        assert registry.services.catalog.model(MODEL).newest_ready == ready, states


@pytest.mark.parametrize("limit", [1, 2, 5])
def test_builds_come_newest_first_page_by_page_to_the_end(registry: Registry, limit: int) -> None:
    """Builds of one submission have the same time: their ids decide."""
    first = registry.submit(targets=[V4, V3, GPU])
    second = registry.submit(checks={"tolerance": 0.1}, targets=[V4, V3])
    found = [item.id for item in builds_of(registry, limit)]
    assert found[:2] == sorted((item.id for item in second.builds), reverse=True)
    assert found[2:] == sorted((item.id for item in first.builds), reverse=True)


def test_builds_are_filtered_by_model_number_state_and_target(registry: Registry) -> None:
    registry.published(registry.submit(targets=[V4, V3]))
    registry.submit(checks={"tolerance": 0.1}, targets=[V4])
    registry.submit(model="other/net", targets=[V4])

    def found(**wanted: Any) -> list[tuple[str, int, str, str]]:
        return [
            (item.model, item.number, item.target, item.state) for item in builds_of(registry, 1, **wanted)
        ]

    assert len(found()) == 4
    assert found(model="other/net") == [("other/net", 1, V4, "queued")]
    assert found(model=MODEL, number=2) == [(MODEL, 2, V4, "queued")]
    assert found(state=BuildState.SUCCEEDED) == [(MODEL, 1, V4, "succeeded")]
    assert found(target=V3) == [(MODEL, 1, V3, "queued")]
    assert found(model=MODEL, target=V4, state=BuildState.QUEUED) == [(MODEL, 2, V4, "queued")]
    assert found(target=GPU) == found(state=BuildState.FAILED) == []
    (done,) = builds_of(registry, 1, state=BuildState.SUCCEEDED)
    assert (done.steps, bool(done.artifact), done.wait) == ((), True, None)


def test_builds_come_in_each_order_page_by_page_and_by_when_they_ended(registry: Registry) -> None:
    queued, short, long_, old = (
        registry.submit(checks={"tolerance": 0.1 * step}, targets=[V4]).builds[0].id for step in range(1, 5)
    )
    for build, started, ended in (
        (short, "2 hours", "1 hour"),
        (long_, "9 hours", "3 hours"),
        (old, "9 days", "8 days"),
    ):
        registry.sql(
            "UPDATE builds SET state = 'failed', started_at = now() - %s::interval, finished_at = now() - %s::interval"
            " WHERE id = %s",
            started,
            ended,
            build,
        )

    def found(**wanted: Any) -> list[str]:
        return [item.id for item in builds_of(registry, 1, **wanted)]

    assert found() == [old, long_, short, queued]
    assert found(order=BuildOrder.OLDEST) == [queued, short, long_, old]
    assert found(order=BuildOrder.ENDED) == [short, long_, old]
    assert found(order=BuildOrder.LONGEST) == [old, long_, short]
    assert found(order=BuildOrder.LONGEST, days=7) == [long_, short]
    assert found(days=7) == [long_, short, queued]  # what is open is of today

    registry.sql("UPDATE builds SET started_at = NULL WHERE id = %s", short)  # cancelled before it began
    assert found(order=BuildOrder.LONGEST) == [old, long_]
    catalog = registry.services.catalog
    for order, last, rest in ((BuildOrder.ENDED, short, [long_, old]), (BuildOrder.LONGEST, old, [long_])):
        page = catalog.builds(BuildFilter(order=order), limit=1)
        assert [build.id for build in page.builds] == [last]
        registry.sql("UPDATE builds SET state = 'queued', finished_at = NULL WHERE id = %s", last)
        after = catalog.builds(BuildFilter(order=order), after=page.next).builds
        assert [build.id for build in after] == rest  # although the last one was retried meanwhile
        registry.sql("UPDATE builds SET state = 'failed', finished_at = now() WHERE id = %s", last)
    for after in ("", "x,abc", "12,", "2026-01-01T00:00:00Z,abc"):
        with pytest.raises(InvalidInput):
            catalog.builds(BuildFilter(order=BuildOrder.LONGEST), after=after)


def test_filters_that_can_match_nothing_are_refused(registry: Registry) -> None:
    registry.submit()
    for wanted, error in (
        ({"model": "vision/resnet8"}, NotFound),
        ({"model": MODEL, "number": 2}, NotFound),
        ({"model": "resnet"}, InvalidInput),
        ({"number": 2}, InvalidInput),
        ({"target": "tpu"}, UnknownTarget),
    ):
        with pytest.raises(error) as caught:
            list(builds_of(registry, 1, **wanted))  # type: ignore[arg-type]  # of several types
        assert caught.value.hint


@pytest.mark.parametrize(
    "after",
    [
        "",
        "x",
        "2026-01-01T00:00:00Z",
        "2026-01-01T00:00:00Z,",
        "x,abc",
        ",\x00",
        "0001-01-01T00:00:00+23:59,abc",
    ],
)
def test_a_place_that_no_page_named_is_refused(registry: Registry, after: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        registry.services.catalog.builds(BuildFilter(), after=after)
    assert (caught.value.where, bool(caught.value.hint)) == ("after", True)


def test_a_place_in_a_zone_that_the_database_does_not_know_is_one_all_the_same(registry: Registry) -> None:
    version = registry.submit()
    page = registry.services.catalog.builds(BuildFilter(), after="2999-01-01T00:00:00+23:59,abc")
    assert [build.id for build in page.builds] == [build.id for build in version.builds]


def test_a_page_costs_the_same_number_of_statements_however_long_it_is(
    registry: Registry, statements: list[str]
) -> None:
    catalog = registry.services.catalog
    for number in range(6):
        registry.submit(model=f"vision/net{number}")
        registry.submit(checks={"tolerance": 0.05 * (number + 1)}, targets=[V4, V3])

    def cost(page: Callable[[int], object], limit: int) -> int:
        statements.clear()
        page(limit)
        return len(statements)

    pages: list[Callable[[int], object]] = [
        lambda limit: catalog.models(limit=limit),
        lambda limit: catalog.versions(MODEL, limit=limit),
        lambda limit: catalog.builds(BuildFilter(), limit=limit),
    ]
    assert [cost(page, 6) for page in pages] == [cost(page, 1) for page in pages] == [4, 6, 2]


@pytest.mark.parametrize("plan", ["force_generic_plan", "force_custom_plan"])
def test_the_newest_ready_of_many_versions_is_found_by_an_index(registry: Registry, plan: str) -> None:
    """A walk down the numbers that stops at the first: neither a sort nor a look at every version."""
    registry.submit()
    registry.sql(
        "INSERT INTO versions (model_id, number, identity, spec, pins) "
        "SELECT model_id, i, 'i' || i, '{}', '{}' FROM versions, generate_series(2, 20000) i"
    )
    registry.sql(
        "INSERT INTO builds (id, version_id, target, position, request, first_submitted, state) "
        "SELECT 'b' || id, id, %s, 0, '{}', true, 'succeeded' FROM versions WHERE number BETWEEN 2 AND 19990",
        V4,
    )
    registry.sql("ANALYZE")
    model = registry.services.catalog.model(MODEL)
    assert (model.newest, model.newest_ready, model.versions) == (20000, 19990, 1000)
    statement = references.BY_NEWEST_READY.text.decode().replace("%(model)s", "$1")
    with psycopg.connect(registry.database_url) as connection:
        connection.execute(f"SET plan_cache_mode = {plan}")
        connection.execute(f"PREPARE asked(text) AS {statement}")
        explained = connection.execute(
            f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) EXECUTE asked('{MODEL}')"
        ).fetchone()
    assert explained is not None
    read = explained[0][0]["Plan"]
    assert read["Shared Hit Blocks"] + read["Shared Read Blocks"] < 100


def test_a_page_gives_each_build_its_place_in_the_queue(registry: Registry) -> None:
    for number in range(7):
        registry.submit(model=f"vision/net{number}", targets=[V4, V3], priority=number % 3)
    waiting = registry.services.catalog.builds(BuildFilter(target=V4)).builds
    assert [build.position for build in waiting] == [7, 2, 4, 6, 1, 3, 5]
    places = [registry.services.builds.view(build.id).position for build in waiting]
    assert places == [build.position for build in waiting]
    registry.claim(waiting[4].id)
    after = registry.services.catalog.builds(BuildFilter(target=V4)).builds
    assert [build.position for build in after] == [6, 1, 3, 5, None, 2, 4]
