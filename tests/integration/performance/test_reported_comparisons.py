"""Figures that others report beside those that pt2hub took: what they may decide, and what they may not."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

import pytest

from pt2hub.domain.performance.measurements import Measurement
from pt2hub.domain.performance.metrics import SeriesFilter
from pt2hub.domain.tokens import Actor
from pt2hub.errors import PromotionCheckFailed
from support.gated import latency, measure, version
from support.registry import ENVIRONMENT

if TYPE_CHECKING:
    from pt2hub.domain.artifacts import Environment
    from pt2hub.domain.digests import Digest
    from pt2hub.wire.performance import Reported
    from support.registry import Registry

MODEL = "vision/resnet18"
CONFINED = replace(ENVIRONMENT, isolation="sandbox")


def told(
    registry: Registry, artifact: Digest, value: float, place: Environment = ENVIRONMENT, **more: Any
) -> Reported:
    """A stranger's report of five processes."""
    figure = {
        "key": f"{artifact} {value} {more}",
        "artifact": artifact,
        "metric": "latency_p50",
        "value": value,
        "unit": "ms",
        "batch": 2,
        "replicates": [value] * 5,
        "environment": asdict(place),
    }
    return registry.services.reports.report({"measurements": [figure | more]}, by=Actor("stranger"))


def check(registry: Registry, metric: str = "latency_p50", **rule: Any) -> None:
    document = {"checks": [{"metric": metric, "max_worse": 0.05}], "metrics": {metric: rule} if rule else {}}
    registry.services.policies.put(MODEL, document, revision=0, by=Actor("ada", admin=True))
    registry.services.aliases.move(MODEL, "prod", 1, expected=None, reason="first", by=Actor("ci"))


def move(registry: Registry) -> None:
    registry.services.aliases.move(MODEL, "prod", 2, expected=1, reason="release", by=Actor("ci"))


def test_a_report_neither_opens_nor_closes_a_gate_on_what_pt2hub_measured(registry: Registry) -> None:
    small, large = (Measurement("package_bytes", value, "B", "artifact") for value in (1000.0, 1200.0))
    one, large_one, small_one = (version(registry, size) for size in (small, large, small))
    check(registry, "package_bytes")
    for batch in (None, 999):
        forged = {"metric": "package_bytes", "unit": "B", "batch": batch}
        told(registry, large_one, 1.0, **forged)
        told(registry, small_one, 1e6, **forged)
        told(registry, one, 1000.0, **forged)
    with pytest.raises(PromotionCheckFailed, match="20 % worse"):
        move(registry)
    registry.services.aliases.move(MODEL, "prod", 3, expected=1, reason="release", by=Actor("ci"))


def test_a_report_of_one_side_is_not_compared_with_what_pt2hub_measured_of_the_other(
    registry: Registry,
) -> None:
    version(registry, latency(10.0))
    told(registry, version(registry), 1.0)
    check(registry)
    with pytest.raises(PromotionCheckFailed, match="it was not measured for version 2"):
        move(registry)


def test_what_only_reporters_know_is_judged_by_reports_and_said_to_be(registry: Registry) -> None:
    one, other = version(registry), version(registry)
    for artifact, value in ((one, 10.0), (other, 15.0)):
        told(registry, artifact, value, metric="tokens", unit="tok/s")
    check(registry, "tokens", better="lower")
    with pytest.raises(PromotionCheckFailed, match=r"tokens on .* is 50 % worse"):
        move(registry)
    (found,) = registry.services.comparisons.compare(f"{MODEL}@1", f"{MODEL}@2").metrics
    assert (found.metric, found.outcome, found.reported) == ("tokens", "worse", True)


def test_reports_of_different_moments_tell_how_much_they_differ_where_there_is_nothing_else(
    registry: Registry,
) -> None:
    one, other = version(registry), version(registry)
    for artifact, value in ((one, 10.0), (other, 12.0)):
        told(registry, artifact, value)
    (found,) = registry.services.comparisons.compare(f"{MODEL}@1", f"{MODEL}@2").metrics
    assert (found.method, found.reason) == ("replicates", "too_noisy")
    for moment in range(4):
        for artifact, value in ((one, 10.0), (other, 12.0)):
            told(registry, artifact, value * (1 + 0.001 * moment))
    (found,) = registry.services.comparisons.compare(f"{MODEL}@1", f"{MODEL}@2").metrics
    assert (found.outcome, found.method, found.reported) == ("worse", "replicates", True)


def test_a_report_that_claims_a_workers_sandbox_stands_in_a_series_of_its_own(registry: Registry) -> None:
    artifact = version(registry)
    measure(registry, artifact, latency(10.0), environment=CONFINED)
    answer = told(registry, artifact, 1e6, CONFINED)
    assert answer.notes[-1].startswith("The isolation sandbox was stored as none")
    assert told(registry, artifact, 1e6, CONFINED).duplicates == 1
    found = registry.services.performance.history(MODEL, SeriesFilter("latency_p50")).series
    assert {(item.environment["isolation"], item.points[0].value) for item in found} == {
        ("sandbox", 10.0),
        ("none", 1e6),
    }
    trends = registry.services.performance.trends([MODEL])[MODEL]
    assert [item.series.value for item in trends] == [10.0], "pt2hub's own, however new the report is"
