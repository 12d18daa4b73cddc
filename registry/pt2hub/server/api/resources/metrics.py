"""Prometheus metrics. They are read from the database, so every API process returns the same."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flask import Response, request
from flask_openapi3.blueprint import APIBlueprint
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
)
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector, CollectorRegistry

from pt2hub.domain.statistics import STEP_BOUNDS
from pt2hub.server.api.context import container
from pt2hub.server.api.request_shapes import SERVER, TEXT
from pt2hub.version import __version__

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from prometheus_client.core import Metric

    from pt2hub.domain.statistics import Durations, QueueStatistics, ScrubStatistics, Statistics

routes = APIBlueprint("metrics", __name__, abp_tags=[SERVER])


@routes.get("/metrics", responses={200: {"content": TEXT}})
def metrics() -> Response:
    """Return Prometheus metrics of queues, workers, attempts and steps. They name no models."""
    body, media_type = exposition(container().statistics.snapshot(), request.headers.get("Accept", ""))
    return Response(body, content_type=media_type)


def exposition(statistics: Statistics, accept: str) -> tuple[bytes, str]:
    """Format statistics for a Prometheus scraper.

    Args:
        statistics: The statistics.
        accept: The request's `Accept` header.

    Returns:
        The text and its media type.
    """
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Collector(statistics))
    encoder, media_type = choose_encoder(accept)
    return encoder(registry), media_type


class _Collector(Collector):
    """Collector of Prometheus metric families from statistics."""

    def __init__(self, statistics: Statistics) -> None:
        self._statistics = statistics

    def collect(self) -> Iterator[Metric]:
        yield InfoMetricFamily("pt2hub", "Release of the server", value={"version": __version__})
        yield from _queues(self._statistics.queues)
        yield from self._workers()
        yield from self._sums()
        yield _steps(self._statistics.steps)
        yield from _scrub(self._statistics.scrub)

    def _workers(self) -> Iterator[Metric]:
        workers = GaugeMetricFamily(
            "pt2hub_workers", "Workers by state; lost ones for a day", labels=("target", "state")
        )
        for queue in self._statistics.queues:
            for state, count in queue.workers.items():
                workers.add_metric((queue.target, state), count)
        yield workers
        ages = GaugeMetricFamily(
            "pt2hub_worker_heartbeat_age_seconds",
            "Time since a live worker's last heartbeat",
            labels=("worker", "target"),
        )
        for beat in self._statistics.heartbeats:
            ages.add_metric((beat.worker, beat.target), beat.seconds)
        yield ages

    def _sums(self) -> Iterator[Metric]:
        given = self._statistics
        yield _counter("pt2hub_build_attempts", "Ended build attempts", "outcome", given.attempts)
        yield _counter(
            "pt2hub_build_failures", "Build attempts that ended with an error", "code", given.failures
        )
        yield _counter(
            "pt2hub_builds_succeeded",
            "Succeeded builds by reuse of compiled code",
            "reused",
            given.successes,
        )
        yield _counter(
            "pt2hub_measuring_attempts",
            "Ended attempts of measuring jobs",
            "outcome",
            given.measuring_attempts,
        )
        yield _counter(
            "pt2hub_measuring_failures",
            "Attempts of measuring jobs that ended with an error",
            "code",
            given.measuring_failures,
        )


def _queues(queues: tuple[QueueStatistics, ...]) -> Iterator[Metric]:
    figures = (
        ("pt2hub_builds_queued", "Queued builds", [queue.queued for queue in queues]),
        (
            "pt2hub_build_queue_oldest_seconds",
            "Waiting time of the oldest queued build",
            [queue.oldest_seconds for queue in queues],
        ),
        ("pt2hub_builds_running", "Running builds", [queue.running for queue in queues]),
        (
            "pt2hub_measuring_queued",
            "Queued measuring jobs, which have lower priority than builds",
            [queue.measuring_queued for queue in queues],
        ),
        (
            "pt2hub_measuring_running",
            "Running measuring jobs",
            [queue.measuring_running for queue in queues],
        ),
        (
            "pt2hub_worker_slots",
            "Builds and measuring jobs that live workers can run at a time, without draining workers",
            [queue.slots for queue in queues],
        ),
    )
    for name, text, values in figures:
        family = GaugeMetricFamily(name, text, labels=("target",))
        for queue, value in zip(queues, values, strict=True):
            family.add_metric((queue.target,), value)
        yield family


def _scrub(scrub: ScrubStatistics) -> Iterator[Metric]:
    yield CounterMetricFamily("pt2hub_blob_checks", "Stored blobs that scrubs read again", scrub.blobs)
    yield CounterMetricFamily("pt2hub_blob_check_bytes", "Bytes that scrubs read", scrub.bytes)
    yield GaugeMetricFamily("pt2hub_blobs_damaged", "Stored blobs that are damaged now", scrub.damaged)
    yield GaugeMetricFamily(
        "pt2hub_blob_check_oldest_seconds",
        "Time since the check of the blob that was not checked for longest: the length of a scrub's pass",
        scrub.oldest_seconds,
    )


def _counter(name: str, text: str, label: str, values: Mapping[tuple[str, str], int]) -> Metric:
    family = CounterMetricFamily(name, text, labels=("target", label))
    for labels, value in sorted(values.items()):
        family.add_metric(labels, value)
    return family


def _steps(steps: Mapping[str, Durations]) -> Metric:
    family = HistogramMetricFamily(
        "pt2hub_build_step_seconds", "Durations of successful build steps", labels=("step",)
    )
    for name, durations in sorted(steps.items()):
        so_far, buckets = 0, []
        for bound, count in zip((*map(str, STEP_BOUNDS), "+Inf"), durations.counts, strict=True):
            so_far += count
            buckets.append((bound, so_far))
        family.add_metric((name,), buckets, durations.seconds)
    return family
