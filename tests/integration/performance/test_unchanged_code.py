"""Versions that run the same code are compared by that where one of them has a short run only."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from pt2hub.domain.artifacts import KEY_SCHEMA
from pt2hub.domain.tokens import Actor
from support.figures import Run, latency, measured
from support.pages import Page
from support.registry import ENVIRONMENT, TOOLCHAIN, V3, V4

if TYPE_CHECKING:
    from flask.testing import FlaskClient

    from pt2hub.domain.digests import Digest
    from pt2hub.wire.performance import MetricComparison
    from support.registry import Registry

MODEL = "vision/resnet18"


def published(registry: Registry, number: int, **changes: object) -> Digest:
    return registry.published(registry.submit(checks={"tolerance": number / 1000}), **changes)


def compared(registry: Registry, metric: str = "latency_p50") -> MetricComparison:
    found = registry.services.comparisons.compare(f"{MODEL}@1", f"{MODEL}@2")
    return next(item for item in found.metrics if (item.metric, item.batch) == (metric, 8))


def test_a_short_run_of_the_code_of_the_version_before_is_the_same(registry: Registry) -> None:
    one, other = published(registry, 1), published(registry, 2)
    measured(registry, one, latency(10.0, 10.1, 9.9, 10.0, 10.0))
    measured(registry, other, latency(15.0), run=Run(day=1))

    found = compared(registry)
    assert (found.outcome, found.method, found.ratio) == ("same", "code", 1.0)
    assert found.explanation == "code unchanged, so that no kernel can differ"
    registry.services.comparisons.examine()
    assert registry.services.comparisons.events(model=MODEL).events == ()


def test_the_page_of_the_model_does_not_call_it_slower(registry: Registry) -> None:
    for number, value in ((1, 10.0), (2, 15.0), (3, 15.0)):
        changes = {"code": b"other code"} if number == 3 else {}
        measured(
            registry, published(registry, number, **changes), latency(value, batch=2), run=Run(day=number)
        )

    speeds = registry.services.performance.main_speeds(MODEL, 1, [1, 2, 3])
    assert speeds is not None
    assert [speeds.outcome(number, 1) for number in (2, 3)] == ["same", "worse"]


def test_the_page_says_that_the_code_is_the_same_without_hovering(
    registry: Registry, web: FlaskClient
) -> None:
    for number, value in ((1, 10.0), (2, 15.0), (3, 15.0)):
        changes = {"code": b"other code"} if number == 3 else {}
        measured(
            registry, published(registry, number, **changes), latency(value, batch=2), run=Run(day=number)
        )
    registry.services.aliases.move(MODEL, "prod", 1, expected=None, reason="first", by=Actor("ci"))
    shown = Page(web.get(f"/models/{MODEL}").get_data(as_text=True)).text
    assert "50.0 % slower, same code" in shown
    assert shown.count("same code") == 1


def test_it_is_the_same_on_another_machine_too(registry: Registry) -> None:
    one, other = published(registry, 1), published(registry, 2)
    measured(registry, one, latency(10.0, 10.1, 9.9))
    elsewhere = replace(ENVIRONMENT, cpu_model="another")
    measured(registry, other, latency(15.0), run=Run(environment=elsewhere, day=1))

    assert (compared(registry).outcome, compared(registry).method) == ("same", "code")


@pytest.mark.parametrize(
    ("metric", "unit", "times", "why"),
    [
        ("latency_p50", "ms", 1.9, None),
        ("latency_p50", "ms", 2.1, "too_few"),
        ("latency_p50", "ms", 0.4, "too_few"),
        ("throughput", "1/s", 0.4, "too_few"),
        ("latency_p99", "ms", 3.9, None),
        ("latency_p99", "ms", 4.1, "too_few"),
    ],
)
def test_figures_of_the_same_code_that_are_far_off_need_more_processes(
    registry: Registry, metric: str, unit: str, times: float, why: str | None
) -> None:
    one, other = published(registry, 1), published(registry, 2)
    measured(registry, one, latency(10.0, metric=metric, unit=unit))
    measured(registry, other, latency(10.0 * times, metric=metric, unit=unit), run=Run(day=1))

    found = compared(registry, metric)
    assert found.reason == why
    assert found.outcome == ("inconclusive" if why else "same")
    assert not why or "the code is unchanged, but the measurements differ by a factor of" in str(found.detail)


def test_the_same_code_for_two_targets_is_judged_by_its_figures(registry: Registry) -> None:
    version = registry.submit(targets=[V4, V3])
    for build, figure in zip(version.builds, (10.0, 12.0), strict=True):
        claim = registry.claim(build.id, registry.worker(f"w-{build.target}", build.target))
        publication = registry.publication(claim)
        registry.services.builds.publish(claim, publication)
        measured(registry, publication.manifest.digest, latency(figure))

    found = registry.services.comparisons.compare(f"{MODEL}@1", f"{MODEL}@1", target=V4, with_target=V3)
    assert next(item for item in found.metrics if item.metric == "latency_p50").outcome == "inconclusive"


@pytest.mark.parametrize(
    "changes",
    [{"code": b"other code"}, {"toolchain": replace(TOOLCHAIN, torch="2.14.0+cpu")}],
    ids=["code", "toolchain"],
)
def test_other_code_or_another_toolchain_is_not(registry: Registry, changes: dict[str, object]) -> None:
    one, other = published(registry, 1), published(registry, 2, **changes)
    measured(registry, one, latency(10.0, 10.1, 9.9))
    measured(registry, other, latency(15.0), run=Run(day=1))

    assert compared(registry).method != "code"
    assert compared(registry).outcome != "same"


@pytest.mark.parametrize(
    ("key", "said"),
    [
        ({"operators": []}, True),
        ({"operators": ["mine.act.default"]}, False),
        ({"never_reused": ["its body has no digest"]}, False),
        ({"key_schema": KEY_SCHEMA - 1}, False),
    ],
    ids=["torch's own", "others by name", "no digest", "older key"],
)
def test_code_that_calls_by_name_what_may_have_changed_is_not(
    registry: Registry, key: dict[str, object], said: bool
) -> None:
    for number, figure in ((1, 10.0), (2, 11.0)):
        claim = registry.claim(registry.submit(checks={"tolerance": number / 1000}).builds[0].id)
        provenance = {"build": claim.build, "attempt": claim.attempt, "key_schema": KEY_SCHEMA, **key}
        publication = registry.publication(claim, key=f"key {number}", provenance=provenance)
        registry.services.builds.publish(claim, publication)
        measured(registry, publication.manifest.digest, latency(figure), run=Run(day=number))

    assert (compared(registry).method == "code") is said
    speeds = registry.services.performance.main_speeds(MODEL, 1, [1, 2])
    assert speeds is not None
    assert speeds.has_same_code(2, 1) is said, "the pages of the model have the same rule"


def test_processes_of_both_say_more_than_the_code(registry: Registry) -> None:
    one, other = published(registry, 1), published(registry, 2)
    measured(registry, one, latency(10.0, 10.1, 9.9))
    measured(registry, other, latency(30.0, 30.1, 29.9), run=Run(day=1))

    assert compared(registry).method == "replicates"
