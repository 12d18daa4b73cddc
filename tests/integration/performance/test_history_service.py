"""Histories, lists of what was measured and the front page's sparklines, over a real PostgreSQL."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
import sqlalchemy

from pt2hub.domain.performance.measurements import (
    RUN_SCHEMA,
    Measurement,
    MeasurementRun,
    Pair,
    environment_class,
)
from pt2hub.domain.performance.metrics import SeriesFilter
from pt2hub.domain.tokens import Actor
from pt2hub.errors import InvalidInput, NotFound, UnknownMetric, UnknownTarget
from pt2hub.server.db import engine as engines
from pt2hub.server.db.stores.performance.measurements import PerformanceStore
from support.figures import Run, latency, measured, transaction, versions
from support.registry import ENVIRONMENT, GPU, V3, V4

if TYPE_CHECKING:
    from pt2hub.domain.digests import Digest
    from pt2hub.wire.performance import HistoryView, SeriesView
    from support.registry import Registry

MODEL = "vision/resnet18"
FASTER = replace(ENVIRONMENT, cpu_model="Xeon")


def history(registry: Registry, metric: str = "latency_p50", **wanted: Any) -> HistoryView:
    paging = {name: wanted.pop(name) for name in ("before", "limit") if name in wanted}
    return registry.services.performance.history(MODEL, SeriesFilter(metric, **wanted), **paging)


def values(series: SeriesView) -> list[tuple[int, float]]:
    return [(point.number, point.value) for point in series.points]


def many_points(registry: Registry, artifact: Digest, count: int) -> None:
    """A series as long as of so many versions, whose artifacts nobody looks at."""
    registry.sql(
        "INSERT INTO series_points SELECT id, number, %s, 10 + number %% 2, 9, 12, 1, now() "
        "FROM series, generate_series(2, %s::int) AS number WHERE batch = 8",
        artifact,
        count,
    )


# -- series --------------------------------------------------------------------------------------------------


def test_batches_subjects_and_units_are_series_of_their_own(registry: Registry) -> None:
    one, two = versions(registry, 2)
    measured(registry, one, latency(5), latency(50, batch=16), latency(5, unit="us"))
    measured(registry, two, latency(6), latency(60, batch=16))
    found = {(item.batch, item.unit): values(item) for item in history(registry).series}
    assert found == {
        (2, "ms"): [(1, 10.5), (2, 10.5)],  # of the builds themselves
        (8, "ms"): [(1, 5), (2, 6)],
        (16, "ms"): [(1, 50), (2, 60)],
        (8, "us"): [(1, 5)],
    }
    assert {item.implementation for item in history(registry).series} == {"artifact"}
    (eager,) = history(registry, implementation="eager").series
    assert (eager.implementation, eager.batch, values(eager)) == ("eager", 2, [(1, 10.5), (2, 10.5)])
    (small,) = history(registry, batch=16, target=V4).series
    assert (small.batch, small.target, values(small)) == (16, V4, [(1, 50), (2, 60)])


def test_another_environment_begins_a_series_and_is_no_change(registry: Registry) -> None:
    one, two, three = versions(registry, 3)
    measured(registry, one, latency(5))
    measured(registry, two, latency(5))
    measured(registry, three, latency(9), run=Run(environment=FASTER, day=1))
    new, old = history(registry, batch=8).series  # those with the newest figures first
    assert (values(new), values(old)) == ([(3, 9)], [(1, 5), (2, 5)])
    assert new.environment["cpu_model"] == "Xeon"
    assert "memory_bytes" not in old.environment
    assert new.changes == old.changes == ()
    (again,) = history(registry, batch=8, environment=old.class_digest[:20]).series
    assert again == old
    more_memory = replace(ENVIRONMENT, memory_bytes=1 << 40)
    measured(registry, three, latency(6), run=Run(environment=more_memory))
    assert values(history(registry, batch=8).series[1]) == [(1, 5), (2, 5), (3, 6)]


def test_a_point_is_the_figure_of_the_latest_run_and_spans_the_replicates_of_all(registry: Registry) -> None:
    (one,) = versions(registry, 1)
    for day, figure in ((2, latency(7, 8, 11)), (1, latency(4, 5, 9)), (0, latency(6))):
        measured(registry, one, figure, run=Run(day=day))
    (series,) = history(registry, batch=8).series
    (point,) = series.points
    assert (point.value, point.low, point.high, point.count) == (8, 4, 11, 3)
    assert (point.artifact, point.measured_at) == (one, "2026-12-03T10:00:00Z")


def test_every_service_says_the_same_figure_of_an_artifact_that_was_measured_twice(
    registry: Registry,
) -> None:
    one, two = versions(registry, 2)
    measured(registry, one, latency(4, 5, 9), run=Run(day=1))
    measured(registry, one, latency(7, 8, 11), run=Run(day=2))
    services = registry.services
    inspected = {(item.metric, item.batch): item for item in services.inspection.artifact(one).measurements}
    found = inspected["latency_p50", 8]
    assert (found.value, found.low, found.high, found.measured_at) == (8, 4, 11, "2026-12-03T10:00:00Z")
    assert [(run.value, run.measured_at, run.source) for run in found.runs] == [
        (8, "2026-12-03T10:00:00Z", "again"),
        (5, "2026-12-02T10:00:00Z", "again"),
    ]
    assert {run.environment["cpu_model"] for run in found.runs} == {ENVIRONMENT.cpu_model}
    measured(registry, two, latency(8, 8, 8))
    (compared,) = (
        item
        for item in services.comparisons.compare(f"{MODEL}@1", f"{MODEL}@2").metrics
        if (item.metric, item.batch) == ("latency_p50", 8)
    )
    assert compared.before == 8
    (series,) = (item for item in services.performance.series(MODEL).series if item.batch == 8)
    assert series.values[0] == 8


def test_a_point_of_reports_alone_is_their_median_and_a_run_counts_more_than_any(registry: Registry) -> None:
    (one,) = versions(registry, 1)
    measured(registry, one, latency(1000))
    registry.sql("UPDATE measurements SET run = NULL, source = 'report' WHERE value = 1000")
    registry.sql(
        "INSERT INTO measurements (series_id, number, artifact, environment, source, value, measured_at) "
        "SELECT series_id, number, artifact, environment, source, 7, measured_at + interval '1 minute' "
        "FROM measurements, generate_series(1, 2) WHERE value = 1000"
    )
    with transaction(registry) as session:
        PerformanceStore(session).sum_up(
            registry.sql("SELECT series_id, number FROM measurements WHERE value = 1000")
        )
    ((value,),) = registry.sql(
        "SELECT value FROM series_points AS p JOIN series AS s ON s.id = p.series_id WHERE s.batch = 8"
    )
    assert value == 7
    (series,) = history(registry, batch=8).series
    assert series.reported
    measured(registry, one, latency(9))  # taken before the reports, and no report
    (series,) = history(registry, batch=8).series
    assert (series.points[0].value, series.reported) == (9, False)
    registry.sql(
        "INSERT INTO measurements (series_id, number, artifact, environment, source, value, measured_at) "
        "SELECT series_id, number, artifact, environment, source, 7, measured_at + count * interval '1 minute' "
        "FROM measurements, generate_series(2, 9) AS count WHERE value = 1000"
    )
    inspected = registry.services.inspection.artifact(one).measurements
    (found,) = (item for item in inspected if (item.metric, item.batch) == ("latency_p50", 8))
    assert [run.value for run in found.runs] == [7, 7, 7, 7, 7, found.value]
    assert found.measured_at == found.runs[-1].measured_at


def test_a_point_spans_its_latest_200_figures(registry: Registry) -> None:
    (one,) = versions(registry, 1)
    measured(registry, one, latency(1000))
    registry.sql(
        "INSERT INTO measurements (series_id, number, artifact, environment, source, value, measured_at) "
        "SELECT series_id, number, artifact, environment, source, 7, measured_at + interval '1 minute' "
        "FROM measurements, generate_series(1, 1000) WHERE value = 1000"
    )
    measured(registry, one, latency(9), run=Run(day=1))
    (series,) = history(registry, batch=8).series
    assert [(point.value, point.low, point.high, point.count) for point in series.points] == [(9, 7, 9, 200)]


def test_points_come_newest_first_page_by_page_each_page_oldest_first(registry: Registry) -> None:
    (one,) = versions(registry, 1)
    measured(registry, one, latency(10))
    many_points(registry, one, 3000)
    found: list[int] = []
    before: int | None = None
    while True:
        (series,) = history(registry, batch=8, before=before, limit=1000).series
        numbers = [point.number for point in series.points]
        assert numbers == sorted(numbers)
        found = numbers + found
        if not series.more:
            break
        before = numbers[0]
    assert found == list(range(1, 3001))
    assert [point.number for point in history(registry, batch=8, limit=2).series[0].points] == [2999, 3000]


def test_flagged_changes_within_the_points_are_told_with_the_usual_noise(registry: Registry) -> None:
    (one,) = versions(registry, 1)
    measured(registry, one, latency(10))
    many_points(registry, one, 20)
    registry.sql(
        "INSERT INTO performance_events (series_id, model_id, kind, number, before, outcome, ratio, method) "
        "SELECT id, model_id, 'change_point', number, number - 1, 'worse', 1.2, 'series' "
        "FROM series, (VALUES (3), (15)) AS events (number) WHERE batch = 8"
    )
    (series,) = history(registry, batch=8, limit=10).series
    (change,) = series.changes
    assert (change.number, change.before, change.outcome, change.ratio) == (15, 14, "worse", 1.2)
    assert series.better == "lower"
    assert series.noise == pytest.approx(1.4826 * 0.0953, rel=0.1)  # each is 10 % from its neighbour


def test_a_free_metric_has_no_direction_before_the_policy_says_one(registry: Registry) -> None:
    artifacts = versions(registry, 12)
    for number, artifact in enumerate(artifacts):
        figure = Measurement("tokens", (100.0 + number % 2) * (2 if number > 5 else 1), "1/s", "artifact")
        measured(registry, artifact, figure)
    (series,) = history(registry, "tokens").series
    assert (series.better, series.batch) == (None, None)
    assert [(item.number, item.before, item.outcome) for item in series.changes] == [(7, 6, "same")]
    registry.services.policies.put(
        MODEL, {"metrics": {"tokens": {"better": "higher"}}}, revision=0, by=Actor("ci", admin=True)
    )
    assert history(registry, "tokens").series[0].better == "higher"


# -- what there is none of -----------------------------------------------------------------------------------


def test_a_model_without_figures_has_empty_histories(registry: Registry) -> None:
    registry.submit()
    view = history(registry)
    assert view.series == ()
    assert f"pt2hub measure {MODEL}" in str(view)
    assert registry.services.performance.series(MODEL).series == ()
    assert registry.services.performance.trends([MODEL]) == {MODEL: ()}


def test_a_known_metric_that_was_never_measured_is_no_mistake(registry: Registry) -> None:
    versions(registry, 1)
    assert history(registry, "first_inference").series == ()


@pytest.mark.parametrize(
    ("wanted", "error", "words"),
    [
        ({"metric": "latncy_p50"}, UnknownMetric, "Did you mean latency_p50"),
        ({"metric": "Latency_P50"}, UnknownMetric, "Did you mean latency_p50"),
        ({"metric": "=1+1"}, UnknownMetric, "known metrics are latency_p50"),
        ({"target": "cpu"}, UnknownTarget, ""),
        ({"target": V3}, NotFound, f"There are measurements for: {V4}"),
        ({"batch": 3}, NotFound, "There are measurements for: 2"),
        ({"implementation": "eagre"}, NotFound, "Did you mean eager"),
        ({"environment": "sha256:0"}, NotFound, "There are measurements for: sha256:"),
        ({"environment": "EPYC"}, InvalidInput, "class_digest"),
        ({"metric": "load_time", "target": V3}, NotFound, V4),
    ],
)
def test_what_matches_nothing_is_refused_with_what_there_is(
    registry: Registry, wanted: dict[str, Any], error: type[Exception], words: str
) -> None:
    versions(registry, 1)
    with pytest.raises(error) as caught:
        history(registry, **wanted)
    assert words in str(caught.value)


def test_an_unknown_model_is_named_with_near_ones(registry: Registry) -> None:
    versions(registry, 1)
    for ask in (registry.services.performance.series, lambda name: history_of(registry, name)):
        with pytest.raises(NotFound, match=f"Did you mean {MODEL}"):
            ask("vision/resnet81")


def history_of(registry: Registry, name: str) -> HistoryView:
    return registry.services.performance.history(name, SeriesFilter("latency_p50"))


# -- lists and the front page --------------------------------------------------------------------------------


def test_the_series_of_a_model_are_listed_with_their_last_values(registry: Registry) -> None:
    one, two = versions(registry, 2)
    measured(registry, one, latency(5), Measurement("tokens", 3.0, "1/s", "artifact"))
    measured(registry, two, latency(6), Measurement("load_time", 3.0, "ms", "artifact"))
    found = registry.services.performance.series(MODEL).series
    assert [(item.metric, item.batch, item.implementation, item.values) for item in found] == [
        ("latency_p50", 2, "artifact", (10.5, 10.5)),
        ("latency_p50", 2, "eager", (10.5, 10.5)),
        ("latency_p50", 2, "torch_compile", (10.5, 10.5)),
        ("latency_p50", 8, "artifact", (5.0, 6.0)),
        ("load_time", None, "artifact", (3.0,)),
        ("tokens", None, "artifact", (3.0,)),
    ]
    assert (found[3].newest, found[3].value, found[3].measured_at) == (2, 6.0, "2026-12-01T10:00:00Z")


def test_a_sparkline_is_of_the_example_batch_and_the_newest_environment(registry: Registry) -> None:
    one, two = versions(registry, 2)
    for artifact, value in ((one, 5), (two, 6)):
        figures = [latency(value, batch=2), latency(99), latency(99, batch=16)]
        measured(registry, artifact, *figures, run=Run(environment=FASTER, day=value))
    (trend,) = registry.services.performance.trends([MODEL])[MODEL]
    series = trend.series
    assert (series.batch, series.class_digest) == (2, environment_class(FASTER))
    assert (series.values, series.newest, series.value) == ((5.0, 6.0), 2, 6.0)


def test_each_target_has_a_sparkline_and_a_model_without_the_example_batch_another(
    registry: Registry,
) -> None:
    view = registry.submit(targets=[V4, GPU], model="a/one")
    for build, code in zip(view.builds, (b"cpu", b"gpu"), strict=True):
        claim = registry.claim(build.id, f"worker-{build.target}")
        registry.services.builds.publish(claim, registry.publication(claim, code=code))
    registry.sql("UPDATE series SET batch = 32")  # the example is 2
    trends = registry.services.performance.trends(["a/one"])["a/one"]
    assert [(item.series.target, item.series.batch) for item in trends] == [(GPU, 32), (V4, 32)]


def test_the_baseline_is_the_newest_earlier_artifact_of_the_target(registry: Registry) -> None:
    one, two = versions(registry, 2)
    registry.submit(checks={"tolerance": 0.2})  # a third version that has no artifact yet
    baseline = registry.services.performance.baseline
    assert [baseline(MODEL, number, V4) for number in (1, 2, 3, 4)] == [None, one, two, two]
    assert baseline(MODEL, 3, V3) is None
    assert baseline("vision/other", 3, V4) is None


# -- adding figures ------------------------------------------------------------------------------------------


def test_figures_that_come_at_once_for_one_point_are_all_in_it(registry: Registry) -> None:
    (one,) = versions(registry, 1)
    begun = threading.Event()

    def add_later() -> None:
        begun.set()
        measured(registry, one, latency(30))

    with transaction(registry) as session:
        PerformanceStore(session).add_run(one, _run("first", latency(10), latency(70, batch=16)))
        other = threading.Thread(target=add_later)
        other.start()
        begun.wait()
        other.join(0.3)
        assert other.is_alive(), "it waits for the series"
    other.join(10)
    assert not other.is_alive()
    (series,) = history(registry, batch=8).series
    assert [(point.value, point.low, point.high, point.count) for point in series.points] == [(30, 10, 30, 2)]


def test_a_run_with_forty_figures_and_a_baseline_takes_few_statements(registry: Registry) -> None:
    one, two = versions(registry, 2)
    figures = [latency(5, 6, 7, batch=batch) for batch in range(10, 50)]
    pairs = [Pair("latency_p50", "ms", [1.0, 1.1, 1.2], batch) for batch in range(10, 50)]
    run = replace(_run("big", *figures), baseline=one, baseline_measurements=figures[:5], pairs=pairs)
    statements: list[str] = []
    engine = engines.create(registry.database_url)
    sqlalchemy.event.listen(engine, "before_cursor_execute", lambda *said: statements.append(said[2]))
    with engines.Sessions(engine).begin() as session:
        PerformanceStore(session).add_run(two, run)
    engine.dispose()
    assert len(statements) == 6, statements
    assert registry.sql(
        "SELECT count(*) FROM series_points JOIN series ON id = series_id WHERE batch > 9"
    ) == [(45,)]
    assert registry.sql("SELECT count(*) FROM measurement_pairs") == [(40,)]


def test_a_run_that_comes_twice_changes_nothing(registry: Registry) -> None:
    (one,) = versions(registry, 1)
    for _ in range(2):
        with transaction(registry) as session:
            PerformanceStore(session).add_run(one, _run("same", latency(5)))
    (series,) = history(registry, batch=8).series
    assert [point.count for point in series.points] == [1]


def _run(name: str, *figures: Measurement) -> MeasurementRun:
    return MeasurementRun(
        schema=RUN_SCHEMA,
        id=name,
        source="again",
        measured_at="2026-12-01T10:00:00+00:00",
        environment=ENVIRONMENT,
        conditions={},
        measurements=list(figures),
    )
