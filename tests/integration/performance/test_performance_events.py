"""Flagged changes over a real database: what is flagged, told once, taken back, and listed page by page."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from pt2hub.errors import InvalidInput, NotFound, UnknownTarget
from pt2hub.server.db.stores.performance.changes import EventStore
from support.figures import Run, latency, measured, ratios, transaction, versions
from support.registry import V3, V4

if TYPE_CHECKING:
    from pt2hub.wire.performance import EventView
    from support.registry import Registry

MODEL = "vision/resnet18"
STEADY = (10.0, 10.05, 9.95, 10.0, 10.02)


def events(registry: Registry, **filters: Any) -> list[EventView]:
    registry.services.comparisons.examine()
    return list(registry.services.comparisons.events(**filters).events)


def scaled(factor: float, *, metric: str = "latency_p50", unit: str = "ms") -> Any:
    return latency(*(factor * value for value in STEADY), metric=metric, unit=unit)


def test_a_worse_version_is_flagged_once_and_taken_back_when_measured_anew(registry: Registry) -> None:
    one, other, third = versions(registry, 3)
    measured(registry, one, scaled(1))
    assert events(registry) == []
    measured(registry, other, scaled(1.5), scaled(1.5, metric="throughput", unit="1/s"))
    measured(registry, one, scaled(1, metric="throughput", unit="1/s"))
    found = events(registry)
    assert {(item.metric, item.outcome, item.number, item.before, item.kind) for item in found} == {
        ("latency_p50", "worse", 2, 1, "comparison"),
        ("throughput", "better", 2, 1, "comparison"),
    }
    assert {(item.model, item.target, item.batch, item.method) for item in found} == {
        (MODEL, V4, 8, "replicates")
    }
    worse = next(item for item in found if item.outcome == "worse")
    assert worse.ratio == pytest.approx(1.5)
    assert worse.low is not None
    assert worse.high is not None
    assert 1.05 < worse.low < 1.5 < worse.high
    assert registry.services.comparisons.examine() == 0
    measured(registry, third, scaled(1.5))  # new figures in the series: nothing is told again
    assert [(item.id, item.at) for item in events(registry)] == [(item.id, item.at) for item in found]

    busy = Run(day=1, baseline=one, pairs=[ratios(0.3, 3.0, 1.0, 2.0, 0.5)])
    measured(registry, other, scaled(1.5), run=busy)
    assert worse in events(registry)  # too noisy to say anything, and so no reason to take it back
    quiet = Run(day=2, baseline=one, beside=[scaled(1.5)], pairs=[ratios(1.0, 1.01, 0.99, 1.0, 1.0)])
    measured(registry, other, scaled(1.5), run=quiet)
    assert [item.metric for item in events(registry)] == ["throughput"]


def test_a_change_of_level_in_a_reported_series_is_flagged_and_moves_without_being_told_again(
    registry: Registry,
) -> None:
    levels = [100, 101, 99, 100, 102, 98, 100, 101, 131, 129, 130, 132, 128, 130]
    artifacts = versions(registry, len(levels))
    for artifact, value in zip(artifacts, levels, strict=True):
        measured(registry, artifact, latency(value), run=Run(source="report"))
    [change] = events(registry, outcome="worse") and [
        item for item in events(registry) if item.kind == "change_point"
    ]
    assert (change.number, change.before, change.outcome, change.method) == (9, 8, "worse", "series")
    assert change.ratio == pytest.approx(1.3, abs=0.02)
    # Version 9 turns out to be as quick as those before: the level changed one version later.
    for _ in range(3):
        measured(registry, artifacts[8], latency(100), run=Run(day=1, source="report"))
    [moved] = [item for item in events(registry) if item.kind == "change_point"]
    assert (moved.id, moved.at, moved.number, moved.before) == (change.id, change.at, 10, 9)
    for artifact in artifacts[8:]:
        for _ in range(5):
            measured(registry, artifact, latency(100), run=Run(day=2, source="report"))
    assert events(registry) == []


def test_figures_that_cannot_be_examined_keep_no_other_series_from_it(registry: Registry) -> None:
    sick = versions(registry, 2, model="audio/net")
    well = versions(registry, 2)
    registry.sql(
        "INSERT INTO policies (model_id, revision, document, by) SELECT id, 1, %s, 'ci' FROM models WHERE name = %s",
        '{"metrics": {"latency_p50": {"min_effect": "much"}}}',
        "audio/net",
    )
    for one, other in (sick, well):
        measured(registry, one, scaled(1))
        measured(registry, other, scaled(2))
    assert [item.model for item in events(registry)] == [MODEL]
    assert registry.services.comparisons.examine() == 0


def test_several_processes_share_the_series_that_are_to_be_examined(registry: Registry) -> None:
    one, other = versions(registry, 2)
    measured(registry, one, scaled(1))
    measured(registry, other, scaled(2), scaled(2, metric="throughput", unit="1/s"))
    with transaction(registry) as session:
        taken = EventStore(session).claim_unexamined(2)
        assert len(taken) == 2
        left = registry.services.comparisons.examine()
        assert left > 0
    assert registry.services.comparisons.examine() == 2


def test_changes_are_listed_newest_first_page_by_page(registry: Registry) -> None:
    for model in ("audio/net", MODEL):
        for factor, artifact in enumerate(versions(registry, 3, model=model), 1):
            measured(registry, artifact, scaled(factor))
    every = events(registry)
    assert sorted((item.model, item.number) for item in every) == [
        ("audio/net", 2),
        ("audio/net", 3),
        (MODEL, 2),
        (MODEL, 3),
    ]
    assert [item.at for item in every] == sorted((item.at for item in every), reverse=True)
    services, paged, place = registry.services.comparisons, [], None
    while True:
        page = services.events(after=place, limit=3)
        paged += page.events
        place = page.next
        if place is None:
            break
    assert paged == every
    assert {item.model for item in services.events(model="audio/net").events} == {"audio/net"}
    assert services.events(outcome="better").events == services.events(target=V3).events == ()
    for filters, error in (
        ({"after": "yesterday"}, InvalidInput),
        ({"outcome": "same"}, InvalidInput),
        ({"target": "gpu"}, UnknownTarget),
        ({"model": "audio/nets"}, NotFound),
    ):
        with pytest.raises(error):
            services.events(**filters)  # type: ignore[arg-type]  # wrong on purpose
