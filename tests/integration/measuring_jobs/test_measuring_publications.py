"""A publication queues the job that measures its artifact, in its own transaction and once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from pt2hub.domain.builds import MEASURE_PRIORITY, PUBLICATION
from pt2hub.domain.tokens import Actor
from pt2hub.errors import BlobGone, BuildOver, StaleAttempt, StorageUnavailable
from support.registry import V4
from support.remeasuring import a_later_run, measured

if TYPE_CHECKING:
    from support.registry import Registry

MODEL = "vision/resnet18"
MEASURED = {"measure": {"processes": 2}}


def jobs_of(registry: Registry) -> list[tuple[Any, ...]]:
    return registry.sql(
        "SELECT id, state, priority, request FROM builds WHERE kind = 'measure' ORDER BY queued_at, id"
    )


def test_the_version_is_ready_and_its_measuring_job_is_queued_behind_every_build(registry: Registry) -> None:
    digest = registry.published(registry.submit(**MEASURED))

    ((job, state, priority, request),) = jobs_of(registry)
    assert registry.services.publish.version(MODEL, 1).readiness == "ready"
    assert (state, priority) == ("queued", MEASURE_PRIORITY)
    assert (request["artifact"], request["by"], request["single_process"]) == (digest, PUBLICATION, True)
    assert registry.jobs(job) == [(V4, "todo")]


def test_a_publication_whose_answer_was_lost_queues_no_second_job(registry: Registry) -> None:
    claim = registry.claim(registry.submit(**MEASURED).builds[0].id)
    publication = registry.publication(claim)
    registry.services.builds.publish(claim, publication)
    ((job, *_),) = jobs_of(registry)
    taken = registry.claim(job)
    registry.services.builds.publish(claim, publication)
    registry.services.measuring_jobs.record(taken, measured(registry, taken, a_later_run(taken)))
    registry.services.builds.publish(claim, publication)

    assert [(row[0], row[1]) for row in jobs_of(registry)] == [(job, "succeeded")]


def test_what_is_not_published_is_not_measured(registry: Registry) -> None:
    claim = registry.claim(registry.submit(**MEASURED).builds[0].id)
    publication = registry.publication(claim)
    registry.sql("DELETE FROM blobs WHERE digest = %s", publication.manifest.layers[0].digest)
    with pytest.raises(BlobGone):
        registry.services.builds.publish(claim, publication)
    registry.services.builds.retry_later(claim, StorageUnavailable("no answer"))
    with pytest.raises(StaleAttempt):
        registry.services.builds.publish(claim, publication)

    assert jobs_of(registry) == []
    queued = "SELECT count(*) FROM procrastinate_jobs WHERE args ->> 'build_id' <> %s"
    assert registry.sql(queued, claim.build) == [(0,)]


def test_a_spec_may_want_no_measurement_after_its_publication(registry: Registry) -> None:
    registry.published(registry.submit(measure={"processes": 0}))
    assert jobs_of(registry) == []

    (asked,) = registry.services.measuring_jobs.measure(f"{MODEL}@1", by=Actor("ci")).builds
    assert [row[0] for row in jobs_of(registry)] == [asked.id]


def test_who_asks_for_a_measurement_joins_the_job_of_the_publication_and_gets_the_full_one(
    registry: Registry,
) -> None:
    registry.published(registry.submit(**MEASURED))
    ((job, *_),) = jobs_of(registry)

    (asked,) = registry.services.measuring_jobs.measure(
        f"{MODEL}@1", by=Actor("ci"), repeat=2, priority=5
    ).builds

    assert asked.id == job
    ((_, _, priority, request),) = jobs_of(registry)
    assert (priority, request["repeat"], request["single_process"]) == (5, 2, False)


def test_the_job_of_a_publication_is_cancelled_and_retried_as_a_build_and_the_version_stays_ready(
    registry: Registry,
) -> None:
    registry.published(registry.submit(**MEASURED))
    ((job, *_),) = jobs_of(registry)
    claim = registry.claim(job)

    registry.services.builds.cancel(job, Actor("ci"))

    with pytest.raises(StaleAttempt):
        registry.services.measuring_jobs.record(claim, measured(registry, claim, a_later_run(claim)))
    assert registry.services.publish.version(MODEL, 1).readiness == "ready"
    assert registry.services.builds.retry(job, Actor("ci")).state == "queued"
    again = registry.claim(job)
    registry.services.measuring_jobs.record(again, measured(registry, again, a_later_run(again)))
    with pytest.raises(BuildOver):
        registry.services.builds.cancel(job, Actor("ci"))
