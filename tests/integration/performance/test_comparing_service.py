"""Comparisons over a real database: each verdict and each reason for none, and what they rest on."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from pt2hub.domain.codec import encode
from pt2hub.domain.performance.measurements import Measurement
from pt2hub.errors import Ambiguous, InvalidInput, NotFound, UnknownTarget
from pt2hub.rendering.changed_kernels import kernels
from support.figures import Run, latency, measured, ratios, steady, versions
from support.registry import ENVIRONMENT, GPU, V3, V4

if TYPE_CHECKING:
    from pt2hub.domain.digests import Digest
    from pt2hub.wire.performance import ComparisonView, MetricComparison
    from support.registry import Registry

MODEL = "vision/resnet18"
FIRST, SECOND = f"{MODEL}@1", f"{MODEL}@2"
XEON = replace(ENVIRONMENT, cpu_model="Xeon")


def of(view: ComparisonView, metric: str, batch: int | None = 8) -> MetricComparison:
    return next(item for item in view.metrics if (item.metric, item.batch) == (metric, batch))


def said(item: MetricComparison) -> tuple[str, str | None, str | None]:
    return item.outcome, item.method, item.reason


def single(metric: str, value: float, unit: str = "ms") -> Measurement:
    return Measurement(metric, value, unit, "artifact")


def test_every_metric_that_one_of_two_versions_has_gets_one_verdict(registry: Registry) -> None:
    one, other = versions(registry, 2)
    measured(
        registry,
        one,
        latency(10.0, 10.1, 9.9, 10.0, 10.0, metric="latency_p95"),
        single("package_bytes", 1000, "B"),
        single("code_bytes", 1000, "B"),
        single("load_time", 12.0),
        single("compile_time", 12.0, "s"),
        single("tokens", 100.0, "1/s"),
        single("energy", 3.0, "J"),
    )
    figures = [latency(10.0, 10.1, 9.9, 10.0, 10.0), latency(5.0, 5.1, batch=1)]
    pairs = [
        ratios(1.2, 1.21, 1.19, 1.2, 1.2),
        ratios(1.0, 1.01, 0.99, 1.0, 1.0, batch=1),
        ratios(0.8, 0.81, 0.8, 0.8, 0.79, metric="throughput", unit="1/s"),
        ratios(0.5, 1.8, 1.1, 0.7, 1.9, metric="first_inference"),
    ]
    slower = [
        latency(12.0, 12.1, batch=8),
        latency(5.0, 5.1, batch=1),
        latency(80, 81, metric="throughput", unit="1/s"),
        latency(9.0, 10.0, metric="first_inference"),
        latency(20.0, 20.2, 19.8, 20.0, 20.1, metric="latency_p95"),
        single("package_bytes", 900, "B"),
        single("code_bytes", 1000, "B"),
        single("host_memory_peak", 5000, "B"),
        single("compile_time", 14.0, "min"),
        single("load_time", 13.0),
        single("tokens", 150.0, "1/s"),
        single("energy", 3.0, "J"),
    ]
    beside = [
        *figures,
        latency(100, 101, metric="throughput", unit="1/s"),
        latency(9.0, 10.0, metric="first_inference"),
    ]
    measured(registry, other, run=Run(slower, baseline=one, beside=beside, pairs=pairs))

    view = registry.services.comparisons.compare(FIRST, SECOND)
    assert (view.before.number, view.after.number, view.after.artifact, view.across) == (1, 2, other, False)
    assert {(item.metric, item.batch): said(item) for item in view.metrics} == {
        ("latency_p50", 1): ("same", "paired", None),
        ("latency_p50", 2): ("inconclusive", "replicates", "too_noisy"),
        ("latency_p50", 8): ("worse", "paired", None),
        ("latency_p95", 8): ("worse", "replicates", None),
        ("throughput", 8): ("worse", "paired", None),
        ("first_inference", 8): ("inconclusive", "paired", "too_noisy"),
        ("load_time", None): ("inconclusive", "series", "too_few"),
        ("host_memory_peak", None): ("inconclusive", None, "not_measured"),
        ("package_bytes", None): ("better", "exact", None),
        ("code_bytes", None): ("same", "exact", None),
        ("compile_time", None): ("inconclusive", None, "unit_differs"),
        ("energy", None): ("inconclusive", "series", "too_few"),
        ("tokens", None): ("inconclusive", "series", "too_few"),
    }
    slow = of(view, "latency_p50")
    assert (slow.before, slow.after, slow.min_effect, slow.confidence) == (10.0, 12.1, 0.05, 0.99)
    assert slow.ratio == pytest.approx(1.2, abs=0.01)
    assert slow.low is not None
    assert slow.high is not None
    assert 1.05 < slow.low < slow.ratio < slow.high
    assert of(view, "package_bytes", None).ratio == pytest.approx(0.9)
    assert of(view, "compile_time", None).detail == "s, then min"
    assert "version 1" in str(of(view, "host_memory_peak", None).detail)


def test_a_metric_without_direction_is_the_same_or_nothing_is_said_of_it(registry: Registry) -> None:
    one, other = versions(registry, 2)
    for artifact, factor in ((one, 1.0), (other, 2.0)):
        measured(
            registry,
            artifact,
            latency(*(factor * value for value in (5.0, 5.01, 4.99, 5.0, 5.0)), metric="energy", unit="J"),
            latency(*[7.0, 7.01, 6.99, 7.0, 7.0] * 3, metric="watts", unit="W"),
        )
    registry.sql(
        "INSERT INTO policies (model_id, revision, document, by) SELECT id, 1, %s, 'ci' FROM models",
        '{"metrics": {"watts": {"min_effect": 0.5}}}',
    )
    view = registry.services.comparisons.compare(FIRST, SECOND)
    assert said(of(view, "energy")) == ("inconclusive", "replicates", "no_direction")
    assert said(of(view, "watts")) == ("same", "replicates", None)
    assert of(view, "watts").min_effect == 0.5
    registry.sql(
        "UPDATE policies SET document = %s",
        '{"metrics": {"energy": {"better": "lower", "min_effect": 0.1, "confidence": 0.95}}}',
    )
    judged = of(registry.services.comparisons.compare(FIRST, SECOND), "energy")
    assert (said(judged), judged.confidence) == (("worse", "replicates", None), 0.95)


def test_pairs_win_over_replicates_whichever_side_was_the_baseline(registry: Registry) -> None:
    one, other = versions(registry, 2)
    measured(registry, one, latency(5.0, 5.0, 5.0, 5.01, 4.99), run=Run(day=1))
    run = Run(
        [latency(10.0, 10.1, 9.9)],
        day=2,
        baseline=one,
        beside=[latency(10.0, 10.0, 10.1)],
        pairs=[ratios(1, 1.01, 0.99, 1, 1)],
    )
    measured(registry, other, run=run)
    services = registry.services.comparisons
    same = of(services.compare(FIRST, SECOND), "latency_p50")
    assert (said(same), same.before, same.after) == (("same", "paired", None), 10.0, 10.0)

    later = replace(run, day=3, pairs=[ratios(1.5, 1.51, 1.5, 1.49, 1.5)], figures=[latency(15.0, 15.1, 15)])
    measured(registry, other, run=later)
    assert said(of(services.compare(FIRST, SECOND), "latency_p50")) == ("worse", "paired", None)
    back = of(services.compare(SECOND, FIRST), "latency_p50")
    assert (said(back), back.before, back.after) == (("better", "paired", None), 15.0, 10.0)
    assert back.ratio == pytest.approx(1 / 1.5, abs=0.01)

    busy = replace(run, day=4, pairs=[ratios(0.3, 3.0, 1.0, 2.0, 0.5)])
    measured(registry, other, run=busy)
    assert said(of(services.compare(FIRST, SECOND), "latency_p50")) == ("worse", "paired", None)


def test_a_noisy_run_does_not_replace_a_quiet_one_whose_own_figures_are_shown(registry: Registry) -> None:
    one, other = versions(registry, 2)
    quiet = Run(
        [latency(40, 40.1, 39.9)],
        baseline=one,
        beside=[latency(10, 10.1, 9.9)],
        pairs=[ratios(4, 4.01, 3.99, 4)],
    )
    measured(registry, other, run=quiet)
    for day in range(1, 13):
        for artifact, value in ((one, 30), (other, 90)):
            measured(registry, artifact, latency(value, value + 1), run=Run(day=day))
    for noise in ([4.3, 4, 4.6, 900], [40, 38, 60, 45]):
        busy = replace(
            quiet,
            day=20,
            figures=[latency(700, 800)],
            beside=[latency(20, 30)],
            pairs=[ratios(*noise)],
        )
        measured(registry, other, run=busy)
    found = of(registry.services.comparisons.compare(FIRST, SECOND), "latency_p50")
    assert (said(found), found.before, found.after) == (("worse", "paired", None), 10.0, 40.0)
    assert found.ratio == pytest.approx(4, abs=0.01)
    registry.services.comparisons.examine()
    (event,) = [item for item in registry.services.comparisons.events().events if item.batch == 8]
    assert event.ratio == found.ratio


def test_single_figures_are_judged_by_what_is_usual_in_their_series(registry: Registry) -> None:
    artifacts = versions(registry, 9)
    values = [100.0, 101.0, 100.5, 99.5, 100.0, 101.0, 100.0, 100.5, 200.0]
    for artifact, value in zip(artifacts, values, strict=True):
        measured(registry, artifact, latency(value), run=Run(source="report"))
    services = registry.services.comparisons
    worse = of(services.compare(f"{MODEL}@8", f"{MODEL}@9"), "latency_p50")
    assert (said(worse), worse.before, worse.after) == (("worse", "series", None), 100.5, 200.0)
    assert said(of(services.compare(f"{MODEL}@7", f"{MODEL}@8"), "latency_p50")) == ("same", "series", None)


def test_another_environment_is_never_a_regression_and_its_fields_are_named(registry: Registry) -> None:
    one, other = versions(registry, 2)
    measured(registry, one, latency(10.0, 10.0, 10.1, 9.9))
    measured(registry, other, latency(30.0, 30.0, 30.1, 29.9), run=Run(environment=XEON, day=2))
    services = registry.services.comparisons
    apart = of(services.compare(FIRST, SECOND), "latency_p50")
    assert said(apart) == ("inconclusive", None, "environment_differs")
    assert (apart.before, apart.after, apart.ratio) == (10.0, 30.0, None)
    assert apart.detail == "cpu_model: EPYC, then Xeon"
    assert services.examine() > 0
    assert services.events().events == ()

    steady(registry, one, latency(30.0, 30.0, 30.1, 29.9), run=Run(environment=XEON, day=3))
    view = services.compare(FIRST, SECOND)
    assert said(of(view, "latency_p50")) == ("same", "replicates", None)
    assert (view.differs, view.after.environment["cpu_model"]) == ({}, "Xeon")


def test_versions_measured_with_other_inputs_are_compared_by_size_only(registry: Registry) -> None:
    wide = [{"name": "x", "shape": ["batch", 3, 448, 448], "dtype": "float32", "generate": {"normal": {}}}]
    range_only = {"batch": {"min": 1, "max": 64, "example": 4}}
    [one] = versions(registry, 1)
    [other] = versions(registry, 1, inputs=wide)
    [third] = versions(registry, 1, dims=range_only)
    for artifact in (one, other, third):
        steady(registry, artifact, latency(10.0, 10.0, 10.1))
        measured(registry, artifact, single("code_bytes", 9, "B"), single("load_time", 1))
    services = registry.services.comparisons
    view = services.compare(FIRST, SECOND)
    assert said(of(view, "latency_p50")) == ("inconclusive", None, "inputs_differ")
    assert said(of(view, "code_bytes", None)) == ("same", "exact", None)
    assert of(view, "load_time", None).reason == "too_few"
    # Another range is another contract, and no other input of the same batch size.
    assert said(of(services.compare(FIRST, f"{MODEL}@3"), "latency_p50")) == ("same", "replicates", None)


def test_a_version_that_was_not_measured_with_other_inputs_is_not_to_be_measured(registry: Registry) -> None:
    wide = [{"name": "x", "shape": ["batch", 3, 448, 448], "dtype": "float32", "generate": {"normal": {}}}]
    [one] = versions(registry, 1)
    versions(registry, 1, inputs=wide)
    measured(registry, one, latency(10.0, 10.0, 10.1), single("load_time", 1))
    view = registry.services.comparisons.compare(FIRST, SECOND)
    assert of(view, "latency_p50").reason == "inputs_differ"
    assert of(view, "load_time", None).reason == "not_measured"


def test_two_runs_are_judged_by_how_much_runs_of_one_artifact_differed_before(registry: Registry) -> None:
    one, other, third = versions(registry, 3)

    def find(artifact: Digest, middle: float) -> None:
        """Figures of one more job: batch 1 as ever, 4 with its day."""
        for batch, value in ((1, middle), (4, middle * next(days)), (16, middle)):
            measured(registry, artifact, latency(*(value * part for part in (1, 1.01, 0.99)), batch=batch))

    days = iter([0.8, 0.8, 1.2, 1.2] * 3)
    for _ in range(4):
        find(one, 10.0)
        find(other, 12.0)
    find(third, 12.0)
    registry.sql(
        "UPDATE measurements SET run = 'one job:1:' || measurements.id FROM series WHERE series.id = series_id AND batch = 16"
    )
    view = registry.services.comparisons.compare(FIRST, f"{MODEL}@3")
    found = {item.batch: item for item in view.metrics if item.metric == "latency_p50"}
    assert said(found[1]) == ("worse", "replicates", None)
    assert said(found[4]) == ("inconclusive", "replicates", "too_noisy")
    assert said(found[16]) == said(found[4]), "runs of one job follow one another at once"
    wide, unknown = (item.high / item.low for item in (found[4], found[16]) if item.high and item.low)
    assert wide > unknown > 1.5
    registry.services.comparisons.examine()
    flagged = {(item.batch, item.number) for item in registry.services.comparisons.events().events}
    assert flagged == {(1, 2)}


def test_one_version_on_two_targets_is_compared_across_them(registry: Registry) -> None:
    version = registry.submit(targets=[V4, GPU])
    of_target = {build.target: build.id for build in version.builds}
    gpu = replace(
        ENVIRONMENT, gpu="H100", driver="580", cuda="13.0", torch="2.11.0", gpu_power_limit_w=700, cores=64
    )
    digests = {}
    for target in (V4, GPU):
        claim = registry.claim(of_target[target], registry.worker(f"w-{target}", target))
        publication = registry.publication(claim, code=target.encode())
        registry.services.builds.publish(claim, publication)
        digests[target] = publication.manifest.digest
    measured(registry, digests[V4], latency(50.0, 50.1, 49.9, 50.0))
    measured(registry, digests[GPU], latency(5.0, 5.01, 4.99, 5.0), run=Run(environment=gpu, day=2))

    services = registry.services.comparisons
    view = services.compare(FIRST, FIRST, target=V4, with_target=GPU)
    assert view.across
    assert said(of(view, "latency_p50")) == ("better", "replicates", None)
    assert view.differs["gpu"] == [None, "H100"]
    assert services.compare(FIRST, FIRST, with_target=GPU) == view
    caged = replace(gpu, container="docker")
    measured(
        registry,
        digests[GPU],
        latency(6.0, 6.1),
        latency(1.0, 1.1, batch=16),
        run=Run(environment=caged, day=3),
    )
    measured(registry, digests[V4], latency(1.0, 1.1, batch=16))
    view = services.compare(FIRST, FIRST, target=V4, with_target=GPU)
    assert of(view, "latency_p50").after == 5.0
    assert of(view, "latency_p50", 16).detail == "container: unknown, then docker"

    with pytest.raises(Ambiguous, match="Both sides are") as raised:
        services.compare(FIRST, FIRST)
    assert V4 in str(raised.value.hint)
    assert GPU in str(raised.value.hint)
    with pytest.raises(InvalidInput, match="same artifact") as same:
        services.compare(FIRST, FIRST, target=V4)
    assert GPU in str(same.value.hint)
    assert services.compare(f"{MODEL}@{digests[V4]}", f"{MODEL}@{digests[GPU]}").across


def test_the_artifacts_that_are_meant_are_found_or_the_choice_is_listed(registry: Registry) -> None:
    both = registry.submit(targets=[V4, V3])
    for build in both.builds:
        claim = registry.claim(build.id, registry.worker(f"w-{build.target}", build.target))
        registry.services.builds.publish(claim, registry.publication(claim, code=build.target.encode()))
    versions(registry, 1)
    versions(registry, 1, model="audio/net")
    services = registry.services.comparisons
    assert services.compare(FIRST, SECOND).after.target == V4  # the one in common
    other = services.compare(FIRST, "audio/net", target=V3, with_target=V4)
    assert (other.before.model, other.after.model, other.after.number) == (MODEL, "audio/net", 1)
    with pytest.raises(NotFound, match=f"has no artifact for {GPU}"):
        services.compare(FIRST, SECOND, target=GPU)
    with pytest.raises(NotFound, match=f"{SECOND} has no artifact for {V3}") as raised:
        services.compare(FIRST, SECOND, target=V3)
    assert V4 in str(raised.value.hint)
    with pytest.raises(UnknownTarget):
        services.compare(FIRST, SECOND, target="gpu")
    with pytest.raises(InvalidInput, match="same artifact"):
        services.compare(SECOND, f"{MODEL}@2")
    with pytest.raises(NotFound):
        services.compare(FIRST, f"{MODEL}@9")


def choice(
    candidate: str, milliseconds: float | None, *, chosen: bool = False, **changes: Any
) -> dict[str, Any]:
    row = {"op": "mm", "shapes": [["2", "512"], ["512", "1000"]], "dtypes": ["float32", "float32"]}
    template, _, number = candidate.rpartition("_")
    return {
        **row,
        "candidate": candidate,
        "milliseconds": milliseconds,
        "rank": 1,
        "chosen": chosen,
        "template": template if number.isdigit() else f"extern: {candidate}",
        "parameters": {},
        "reason": "" if milliseconds is not None else "OutOfResources: shared memory",
        "operation": 1,
        **changes,
    }


def tuned(registry: Registry, artifact: str, *rows: dict[str, Any]) -> None:
    registry.sql("DELETE FROM autotune_choices WHERE artifact = %s", artifact)
    for row in rows:
        values = [json.dumps(item) if isinstance(item, list | dict) else item for item in row.values()]
        registry.sql(
            f"INSERT INTO autotune_choices (artifact, {', '.join(row)}) VALUES (%s{', %s' * len(values)})",
            artifact,
            *values,
        )


SMALL, LARGE = {"BLOCK_M": 64, "num_warps": 4}, {"BLOCK_M": 256, "num_warps": 8}


def test_kernels_that_changed_are_named_with_what_they_cost(registry: Registry) -> None:
    one, other = versions(registry, 2)
    conv: dict[str, Any] = {"op": "convolution", "operation": 2}
    tuned(
        registry,
        one,
        choice("triton_mm_3", 0.2, chosen=True, parameters=SMALL),
        choice("triton_mm_4", 0.3, parameters=LARGE),
        choice("mkl", 0.4),
        choice("mkl", 1.0, chosen=True, **conv),
        choice("cpp_gemm_0", 0.5, chosen=True, op="bmm", operation=3),
    )
    tuned(
        registry,
        other,
        choice("triton_mm_20", 0.25, chosen=True, parameters=SMALL),  # elsewhere in the list: the same kernel
        choice("triton_mm_19", None, parameters=LARGE),
        choice("mkl", 1.5, **conv),
        choice("cpp_gemm_1", 1.2, chosen=True, parameters=SMALL, **conv),
        choice("cpp_gemm_2", 1.3, parameters=LARGE, **conv),
        choice("mkl", 0.1, chosen=True, op="addmm", operation=3),
    )
    found = {item.op: encode(item) for item in registry.services.comparisons.compare(FIRST, SECOND).autotune}
    assert sorted(found) == ["addmm", "bmm", "convolution"]
    assert found["convolution"] | {"shapes": 0} == {
        "op": "convolution",
        "shapes": 0,
        "before": "extern: mkl",
        "after": "cpp_gemm",
        "before_ms": 1.0,
        "after_ms": 1.2,
        "cost_ms": pytest.approx(-0.3),
        "before_parameters": {},
        "after_parameters": SMALL,
    }
    assert (found["addmm"]["before"], found["addmm"]["after"], found["addmm"]["cost_ms"]) == (
        None,
        "extern: mkl",
        None,
    )
    assert (found["bmm"]["before"], found["bmm"]["after"]) == ("cpp_gemm", None)


def test_one_name_in_two_builds_is_two_kernels_where_the_parameters_differ(registry: Registry) -> None:
    one, other = versions(registry, 2)
    tuned(registry, one, choice("triton_mm_3", 0.2, chosen=True, parameters=SMALL))
    now = choice("triton_mm_3", 0.3, chosen=True, parameters={**SMALL, "num_warps": 8})
    tuned(registry, other, now, choice("triton_mm_4", 0.5, parameters=SMALL))
    (found,) = registry.services.comparisons.compare(FIRST, SECOND).autotune
    assert kernels(found) == ("triton_mm num_warps=4", "triton_mm num_warps=8")
    assert found.cost_ms == pytest.approx(-0.2)


def test_operations_that_are_alike_are_compared_one_by_one(registry: Registry) -> None:
    one, other = versions(registry, 2)
    same = [choice("triton_mm_3", 0.2, chosen=True, parameters=SMALL, operation=n) for n in (1, 2)]
    tuned(registry, one, *same)
    tuned(registry, other, same[0], choice("mkl", 0.1, chosen=True, operation=2))
    (found,) = registry.services.comparisons.compare(FIRST, SECOND).autotune
    assert (found.before, found.after) == ("triton_mm", "extern: mkl")
