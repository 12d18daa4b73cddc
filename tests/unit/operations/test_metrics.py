"""Metrics as Prometheus reads them: by its own parser, in both formats."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

from pt2hub.domain.statistics import Durations, QueueStatistics, Statistics, WorkerHeartbeat
from pt2hub.server.api.resources.metrics import exposition
from pt2hub.version import __version__

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from prometheus_client.core import Metric

V4 = "torch2.13-cpu-x86_64_v4"
STATISTICS = Statistics(
    queues=(QueueStatistics(V4, 3, 12.5, 1, 2, {"idle": 1, "busy": 1, "draining": 0, "lost": 1}, 4, 1),),
    heartbeats=(WorkerHeartbeat('w"1\\\n', V4, 0.5),),
    attempts={(V4, "succeeded"): 7, (V4, "lost"): 1},
    failures={(V4, "worker_lost"): 1},
    successes={(V4, "true"): 4, (V4, "false"): 3},
    steps={"compile": Durations().plus(30.0, 2, 40.0).plus(float("inf"), 1, 5000.0)},
    measuring_attempts={(V4, "succeeded"): 5},
    measuring_failures={(V4, "artifact_crashed"): 2},
)
OPENMETRICS = "application/openmetrics-text; version=1.0.0"


@pytest.mark.parametrize(("accept", "parse"), [("", parse_text), (OPENMETRICS, parse_openmetrics)])
def test_prometheus_reads_every_figure(accept: str, parse: Callable[[str], Iterable[Metric]]) -> None:
    body, media_type = exposition(STATISTICS, accept)
    assert media_type.startswith("application/openmetrics-text" if accept else "text/plain")
    families = {family.name: family for family in parse(body.decode())}
    samples = {
        (sample.name, *sorted(sample.labels.values())): sample.value
        for family in families.values()
        for sample in family.samples
    }
    assert samples["pt2hub_info", __version__] == 1
    assert samples["pt2hub_builds_queued", V4] == 3
    assert samples["pt2hub_build_queue_oldest_seconds", V4] == 12.5
    assert samples["pt2hub_builds_running", V4] == 1
    assert samples["pt2hub_worker_slots", V4] == 2
    assert (samples["pt2hub_measuring_queued", V4], samples["pt2hub_measuring_running", V4]) == (4, 1)
    assert samples["pt2hub_measuring_attempts_total", "succeeded", V4] == 5
    assert samples["pt2hub_measuring_failures_total", "artifact_crashed", V4] == 2
    assert samples["pt2hub_workers", "lost", V4] == 1
    assert samples["pt2hub_worker_heartbeat_age_seconds", V4, 'w"1\\\n'] == 0.5
    assert samples["pt2hub_build_attempts_total", "succeeded", V4] == 7
    assert samples["pt2hub_build_failures_total", V4, "worker_lost"] == 1
    assert samples["pt2hub_builds_succeeded_total", V4, "true"] == 4
    assert samples["pt2hub_build_step_seconds_count", "compile"] == 3
    assert samples["pt2hub_build_step_seconds_sum", "compile"] == 5040
    buckets = [s.value for s in families["pt2hub_build_step_seconds"].samples if s.name.endswith("_bucket")]
    assert buckets == sorted(buckets), "each bucket holds those before it"
    assert (samples["pt2hub_build_step_seconds_bucket", "30.0", "compile"], buckets[-1]) == (2, 3)
    assert all(family.documentation for family in families.values())


def test_times_counted_by_a_release_with_other_bounds_fall_into_the_next_one() -> None:
    assert Durations().plus(0.2, 5, 1.0) == Durations().plus(0.25, 5, 1.0)
