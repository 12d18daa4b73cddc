"""Figures that others took: what is kept, what is refused and where, and that each is kept once."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from threading import Barrier
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pt2hub.domain.codec import encode
from pt2hub.domain.performance.metrics import SeriesFilter
from pt2hub.domain.tokens import Actor
from pt2hub.errors import Conflict, InvalidInput, UnknownMetric
from pt2hub.server.services.performance.report_form import ReportedEnvironment
from pt2hub.wire.performance import Reported
from pt2hub.wire.problems import from_dict
from support.artifacts import a_config
from support.registry import ENVIRONMENT, GPU, V3, V4

if TYPE_CHECKING:
    from flask.testing import FlaskClient

    from support.registry import Registry

MODEL = "vision/resnet18"
PLACE: dict[str, Any] = {"cpu_model": "Xeon", "cores": 8, "torch": "2.13.0+cpu"}
NOWHERE = f"sha256:{'0' * 64}"


def a_figure(built: str, /, **changes: Any) -> dict[str, Any]:
    """A figure that is right; a change of ... leaves a field out."""
    whole = {
        "key": "k",
        "artifact": built,
        "metric": "latency_p50",
        "value": 3.5,
        "unit": "ms",
        "environment": PLACE,
    }
    return {name: value for name, value in (whole | changes).items() if value is not ...}


def report(registry: Registry, *figures: dict[str, Any], by: str = "ci", **more: Any) -> Reported:
    return registry.services.reports.report({"measurements": list(figures), **more}, by=Actor(by))


def refused(registry: Registry, *figures: dict[str, Any], **more: Any) -> dict[str, str]:
    """The places that are wrong, each with what is said of it; nothing is kept."""
    with pytest.raises(InvalidInput) as caught:
        report(registry, *figures, **more)
    assert registry.sql("SELECT count(*) FROM measurements WHERE source = 'report'") == [(0,)]
    return {item.path: f"{item.message}{item.values()}" for item in caught.value.details}


def kept(registry: Registry) -> list[tuple[Any, ...]]:
    return registry.sql(
        "SELECT s.metric, s.unit, s.batch, s.implementation, m.value FROM measurements m JOIN series s ON s.id = series_id "
        "WHERE source = 'report' ORDER BY m.id"
    )


def ago(**span: float) -> str:
    return (datetime.now(UTC) - timedelta(**span)).isoformat()


def test_reported_figures_stand_in_the_history_with_their_source_in_series_of_their_machine(
    registry: Registry,
) -> None:
    artifact = registry.published()
    figures = [
        a_figure(artifact, key="a", batch=8, replicates=[3.4, 3.6], samples=[[3.4, 3.5], [3.6]]),
        a_figure(f"{MODEL}@1", key="b", metric="tokens", value=-2, unit="tok/s", implementation="eager"),
        a_figure(f"{MODEL}@{artifact}", key="c", environment="prod", target=V4, measured_at=ago(seconds=1)),
    ]
    told = report(registry, *figures, environments={"prod": encode(ENVIRONMENT)})
    assert (told.accepted, told.duplicates) == (3, 0)
    assert kept(registry) == [
        ("latency_p50", "ms", 8, "artifact", 3.5),
        ("tokens", "tok/s", 0, "eager", -2.0),
        ("latency_p50", "ms", 0, "artifact", 3.5),
    ]
    view = registry.services.resolve.artifact(artifact)
    reported = [item for item in view.measurements if item.source == "report"]
    assert [(item.metric, item.batch, item.replicates, item.samples) for item in reported] == [
        ("latency_p50", 8, [3.4, 3.6], [[3.4, 3.5], [3.6]]),
        ("tokens", None, None, None),
        ("latency_p50", None, None, None),
    ]
    history = registry.services.performance.history(MODEL, SeriesFilter("latency_p50"))
    classes = {series.class_digest: series.environment["cpu_model"] for series in history.series}
    assert sorted(classes.values()) == ["EPYC", "Xeon"]
    assert {
        (s.batch, s.points[0].value, s.points[0].low) for s in history.series if s.environment["cores"] == 8
    } == {(8, 3.5, 3.4)}


def test_each_kind_of_wrong_figure_is_refused_by_its_place_and_nothing_is_kept(registry: Registry) -> None:
    artifact = registry.published()
    cases: list[tuple[dict[str, Any], str, str]] = [
        ({"value": -1}, "value", "latency_p50 is out of range"),
        ({"value": 0}, "value", "allowed: 1e-06 to 8.64e+07 ms"),
        ({"value": "3"}, "value", "must be a number"),
        ({"value": True}, "value", "must be a number"),
        ({"value": 1 << 1023, "metric": "mine"}, "value", "out of range"),
        ({"value": 2**51, "metric": "package_bytes", "unit": "B"}, "value", "out of range"),
        ({"replicates": [1.0, -1.0]}, "replicates[1]", "out of range"),
        (
            {"replicates": [100, 200]},
            "value",
            "outside the range of its replicates (given: 3.5; allowed: 100 to 200",
        ),
        ({"environment": ...}, "environment", "missing"),
        ({"samples": [[1.0] * 501] * 2}, "samples", "too many samples (given: 1002"),
        ({"unit": "us"}, "unit", 'given: "us"; allowed: ms'),
        ({"metric": "Latency"}, "metric", "allowed: a name in lowercase letters"),
        ({"unit": "a\u202eb", "metric": "mine"}, "unit", "visible characters only"),
        ({"implementation": "Eager"}, "implementation", "allowed: artifact, eager"),
        ({"batch": 0}, "batch", "at least 1"),
        ({"key": ...}, "key", "missing"),
        ({"keys": 1}, "keys", "unknown field (given: 1; allowed: key,"),
        ({"measured_at": ago(minutes=-7)}, "measured_at", "ahead of the database's clock"),
        ({"measured_at": ago(days=900)}, "measured_at", "before the artifact was built"),
        ({"measured_at": "0001-01-01T00:00:00+23:59"}, "measured_at", "before the artifact was built"),
        ({"measured_at": "2026-11-22T10:00:00"}, "measured_at", "a time with its zone"),
        ({"measured_at": 1795341600}, "measured_at", "must be text such as"),
        ({"measured_at": "1795341600"}, "measured_at", "must be text such as"),
        ({"artifact": NOWHERE}, "artifact", "artifact not found"),
        ({"artifact": f"audio/other@{artifact}"}, "artifact", f"allowed: {MODEL}"),
        ({"artifact": f"{MODEL}@7"}, "artifact", "Its only version is 1"),
        ({"artifact": "vision/resnet81@1"}, "artifact", f"Did you mean {MODEL}?"),
        ({"artifact": f"{MODEL}@prod"}, "artifact", "aliases move"),
        ({"artifact": f"{MODEL}@1", "target": V3}, "target", f"allowed: {V4}"),
        ({"artifact": artifact, "target": V3}, "target", f"allowed: {V4}"),
        ({"environment": {"cpu_model": "Xeon", "torch": "2.13.0"}}, "environment.cores", "missing"),
        ({"environment": {**PLACE, "cpu_modl": "x"}}, "environment.cpu_modl", "allowed: cpu_model,"),
        ({"environment": {**PLACE, "torch": "2.12.1"}}, "environment.torch", "allowed: 2.13.*"),
        ({"environment": {**PLACE, "cpu_level": "x86_64_v2"}}, "environment.cpu_level", "x86_64_v4 or above"),
        ({"environment": "prod"}, "environment", "unknown environment"),
    ]
    for changes, path, words in cases:
        found = refused(registry, a_figure(artifact, **changes))
        assert list(found) == [f"measurements[0].{path}"], (changes, found)
        assert words in found[f"measurements[0].{path}"], (changes, found)


def test_another_unit_has_a_code_of_its_own_and_many_wrong_places_are_counted(registry: Registry) -> None:
    artifact = registry.published()
    with pytest.raises(UnknownMetric):
        report(registry, a_figure(artifact, unit="us"), a_figure(artifact, key="b", metric="throughput"))
    with pytest.raises(InvalidInput, match="100 or more fields of the report are invalid") as caught:
        report(registry, *(a_figure(NOWHERE, key=str(number)) for number in range(300)))
    assert [item.path for item in caught.value.details] == [
        f"measurements[{place}].artifact" for place in range(100)
    ]


def test_a_cuda_artifact_wants_a_gpu_of_its_kind_and_one_for_the_cpu_leaves_it_out(
    registry: Registry,
) -> None:
    version = registry.submit(targets=[GPU])
    claim = registry.claim(version.builds[0].id)
    publication = registry.publication(claim, target=claim.target)
    registry.services.builds.publish(claim, publication)
    artifact = publication.manifest.digest
    place = PLACE | {"torch": "2.11.0+cu130"}
    assert set(refused(registry, a_figure(artifact, environment=place))) == {
        "measurements[0].environment.gpu",
        "measurements[0].environment.driver",
    }
    on_gpu = place | {"gpu": "A100", "driver": "580.1", "cuda": "12.8"}
    wrong = refused(registry, a_figure(artifact, environment="a"), environments={"a": on_gpu})
    assert set(wrong) == {"environments.a.cuda"}
    registry.worker("a100", GPU.replace("90", "80"), environment=replace(ENVIRONMENT, gpu="A100"))
    wrong = refused(registry, a_figure(artifact, environment=on_gpu | {"cuda": "13.0"}))
    assert "this GPU is sm80" in wrong["measurements[0].environment.gpu"]
    assert (
        report(registry, a_figure(artifact, environment=on_gpu | {"gpu": "H100", "cuda": "13.0"})).accepted
        == 1
    )
    for_cpu = registry.published(registry.submit(checks={"tolerance": 0.5}))
    told = report(registry, a_figure(for_cpu, key="cpu", environment=on_gpu | {"torch": "2.13.0"}))
    assert any("The GPU was removed" in line for line in told.notes)
    (fields,) = registry.sql(
        "SELECT fields FROM environments e JOIN measurements m ON m.environment = e.digest WHERE key = 'cpu'"
    )
    assert fields == (PLACE | {"torch": "2.13.0"},)


def test_a_time_slightly_before_the_build_is_the_builds(registry: Registry) -> None:
    artifact = registry.published()
    ((built,),) = registry.sql("SELECT created_at FROM artifacts")
    told = report(registry, a_figure(artifact, measured_at=(built - timedelta(minutes=4)).isoformat()))
    assert "measured_at is minutes before the artifact was built" in told.notes[0]
    assert registry.sql("SELECT measured_at FROM measurements WHERE key = 'k'") == [(built,)]


def test_a_name_that_looks_like_a_known_one_is_noted(registry: Registry) -> None:
    artifact = registry.published()

    def noted(key: str, **names: str) -> tuple[str, ...]:
        return report(registry, a_figure(artifact, key=key, **names)).notes

    assert noted("a", metric="tokens", unit="1/J") == ()
    (metric,) = noted("b", metric="latencyp50")
    assert metric == "latencyp50 was stored as your own metric. Did you mean latency_p50?"
    (implementation,) = noted("c", implementation="eagr")
    assert implementation == "eagr was stored as your own implementation. Did you mean eager?"


def test_a_figure_without_a_machine_is_told_how_to_say_it(registry: Registry) -> None:
    with pytest.raises(InvalidInput) as caught:
        report(registry, a_figure(registry.published(), environment=...))
    assert "--environment auto" in (caught.value.hint or "")


def test_the_same_figure_again_is_a_duplicate_and_another_under_its_key_a_conflict(
    registry: Registry,
) -> None:
    artifact = registry.published()
    figures = [a_figure(artifact, key=key, samples=[[1, 2.5, 1e23]], replicates=[3, 4]) for key in "ab"]
    assert report(registry, *figures) == Reported(2, 0)
    series = registry.sql("SELECT id, changed_at FROM series ORDER BY id")
    assert report(registry, *figures) == Reported(0, 2)
    assert registry.sql("SELECT id, changed_at FROM series ORDER BY id") == series
    assert report(registry, figures[0], figures[0], a_figure(artifact, key="c")) == Reported(1, 2)
    assert report(registry, figures[0], by="another").accepted == 1
    for change in ({"value": 4}, {"batch": 2}, {"replicates": None}, {"environment": PLACE | {"cores": 2}}):
        with pytest.raises(Conflict, match="nothing of the report was stored: b") as caught:
            report(registry, a_figure(artifact, key="new"), figures[1] | change)
        assert [item.path for item in caught.value.details] == ["measurements[1].key"]
        assert caught.value.context == {"keys": ["b"]}
    assert registry.sql("SELECT count(*) FROM measurements WHERE key = 'new'") == [(0,)]
    with pytest.raises(InvalidInput) as caught_too:
        report(registry, a_figure(artifact, key="n"), a_figure(artifact, key="n", value=9))
    assert caught_too.value.details[0].path == "measurements[1].key"


def test_one_batch_delivered_by_several_at_once_is_kept_once(registry: Registry) -> None:
    artifact = registry.published()
    figures = [a_figure(artifact, key=f"k{n}", batch=n % 7 + 1) for n in range(200)]
    orders = [figures, figures[::-1], figures[100:] + figures[:100], figures[::2] + figures[1::2]]
    ready = Barrier(len(orders))

    def deliver(order: list[dict[str, Any]]) -> Reported:
        ready.wait()
        return report(registry, *order)

    with ThreadPoolExecutor(len(orders)) as pool:
        told = list(pool.map(deliver, orders))
    assert sum(one.accepted for one in told) == 200
    assert {one.accepted + one.duplicates for one in told} == {200}
    assert registry.sql("SELECT count(*), count(DISTINCT key) FROM measurements WHERE source = 'report'") == [
        (200, 200)
    ]
    assert registry.sql(
        "SELECT sum(count) FROM series_points p JOIN series s ON s.id = p.series_id WHERE batch <> 2"
    ) == [(sum(n % 7 + 1 != 2 for n in range(200)),)]


def test_five_thousand_figures_take_seconds(registry: Registry) -> None:
    artifact = registry.published()
    figures = [
        a_figure(artifact, key=f"k{n}", batch=n % 100 + 1, replicates=[3.0, 4.0], environment="a")
        for n in range(5000)
    ]
    began = time.monotonic()
    assert report(registry, *figures, environments={"a": PLACE}).accepted == 5000
    assert time.monotonic() - began < 20
    assert report(registry, *figures, environments={"a": PLACE}).duplicates == 5000
    assert registry.sql(
        "SELECT count(*), sum(count) FROM series_points p JOIN series s ON s.id = p.series_id WHERE "
        "batch <> 2"
    ) == [(99, 4950)]
    places = refused_many(registry, figures + figures[:1])
    assert places == {"measurements": "too many items"}


def refused_many(registry: Registry, figures: list[dict[str, Any]]) -> dict[str, str]:
    with pytest.raises(InvalidInput) as caught:
        report(registry, *figures)
    return {item.path: item.message for item in caught.value.details}


def test_a_machine_of_a_report_says_the_same_fields_as_every_other() -> None:
    assert set(ReportedEnvironment.model_fields) == set(encode(a_config().environment))


def post(api: FlaskClient, bearer: dict[str, str], data: bytes) -> Any:
    return api.post("/api/v1/measurements", data=data, headers=bearer | {"Content-Type": "application/json"})


def test_the_api_takes_reports_and_refuses_what_is_none(api: FlaskClient, bearer: dict[str, str]) -> None:
    for body, status, where in (
        (b"", 422, "document"),
        (b"[]", 422, "document"),
        (b'{"measurements": [{"value": NaN}]}', 422, "measurements[0].value"),
        (b'{"measurements": [{"value": 1e999}]}', 422, "measurements[0].value"),
        (b"[" * 100_000, 422, "document"),
        (b"{}", 422, "measurements"),
        (b" " * (8 << 20) + b"{}", 413, None),
    ):
        response = post(api, bearer, body)
        assert response.status_code == status, body[:50]
        if where:
            assert (from_dict(response.get_json(force=True)).where or "").startswith(where)
    assert post(api, {}, b"{}").status_code == 401


_WORDS = st.sampled_from(
    [
        "key",
        "artifact",
        "metric",
        "value",
        "unit",
        "environment",
        "batch",
        "samples",
        "replicates",
        "measured_at",
        "latency_p50",
        "ms",
        NOWHERE,
        "a/b@1",
        "2026-01-01T00:00:00Z",
        "cores",
        "torch",
        "cpu_model",
        "implementation",
        "target",
    ]
)
_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9) | _WORDS,
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(_WORDS | st.text(max_size=9), inner, max_size=6)
    ),
    max_leaves=25,
)
_PLACES = st.fixed_dictionaries({}, optional=dict.fromkeys([*PLACE, "gpu", "cpu_level"], _JSON)) | st.just(
    PLACE
)
_FIGURES = st.builds(
    lambda changes, right: a_figure(NOWHERE) | changes if right else changes,
    st.dictionaries(_WORDS, _JSON | _PLACES, max_size=5),
    st.booleans(),
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    document=st.fixed_dictionaries(
        {"measurements": st.lists(_FIGURES, max_size=4) | _JSON},
        optional={"environments": _JSON | st.dictionaries(_WORDS, _PLACES)},
    )
)
def test_no_document_makes_the_server_fail(api: FlaskClient, bearer: dict[str, str], document: Any) -> None:
    response = api.post("/api/v1/measurements", json=document, headers=bearer)
    assert response.status_code == 422, response.get_data(as_text=True)
    assert from_dict(response.get_json(force=True)).where
