"""What is counted: each attempt once, added up or not, and never less than before."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pt2hub.domain.builds import StepReport
from pt2hub.domain.statistics import STEP_BOUNDS
from pt2hub.domain.tokens import Actor
from pt2hub.errors import ExportFailed, StorageUnavailable
from support.registry import GPU, V4

if TYPE_CHECKING:
    from pt2hub.domain.builds import Claim
    from pt2hub.domain.statistics import QueueStatistics, Statistics
    from support.registry import Registry


def claimed(registry: Registry, seed: int = 0) -> Claim:
    """A running build of a further version."""
    version = registry.submit(source={"factory": "torchvision.models:resnet18", "seed": seed})
    return registry.claim(version.builds[0].id)


def sums(statistics: Statistics) -> tuple[object, ...]:
    return statistics.attempts, statistics.failures, statistics.successes, statistics.steps


def age(registry: Registry) -> None:
    """Lets everything that ended have ended an hour ago."""
    registry.sql("UPDATE build_attempts SET ended_at = ended_at - interval '1 hour'")


def queue_of(statistics: Statistics, target: str) -> QueueStatistics:
    return next(queue for queue in statistics.queues if queue.target == target)


def test_every_attempt_is_counted_once_whether_it_was_added_up_or_not(registry: Registry) -> None:
    builds = registry.services.builds
    done = claimed(registry)
    steps = [StepReport("fetch", "done", 0.0, 0.05), StepReport("compile", "done", 0.0, 12.0)]
    builds.report(done, [*steps, StepReport("verify", "failed", 0.0, 1.0)], [])
    builds.publish(done, registry.publication(done))
    builds.fail(claimed(registry, 1), ExportFailed("no graph"))
    again = claimed(registry, 2)
    builds.retry_later(again, StorageUnavailable("no answer"))
    builds.cancel(claimed(registry, 3).build, by=Actor("ci"))

    fresh = registry.services.statistics.snapshot()
    assert fresh.attempts == {
        (V4, "succeeded"): 1,
        (V4, "failed"): 1,
        (V4, "retried"): 1,
        (V4, "cancelled"): 1,
    }
    assert fresh.failures == {(V4, "export_failed"): 1, (V4, "storage_unavailable"): 1}
    assert fresh.successes == {(V4, "false"): 1}
    assert {name: sum(durations.counts) for name, durations in fresh.steps.items()} == {
        "fetch": 1,
        "compile": 1,
    }
    assert fresh.steps["compile"].counts[STEP_BOUNDS.index(30.0)] == 1
    assert fresh.steps["compile"].seconds == 12.0

    registry.services.statistics.add_up()
    assert registry.sql("SELECT count(*) FROM build_sums") == [(0,)], "last steps may still come"
    age(registry)
    registry.services.statistics.add_up()
    assert registry.sql("SELECT count(*) FROM build_attempts WHERE NOT counted") == [(0,)]
    assert sums(registry.services.statistics.snapshot()) == sums(fresh)

    builds.publish(other := claimed(registry, 4), registry.publication(other, code=b"other"))
    assert registry.services.statistics.snapshot().attempts[V4, "succeeded"] == 2
    age(registry)
    registry.services.statistics.add_up()
    assert registry.services.statistics.snapshot().attempts[V4, "succeeded"] == 2


def test_a_lost_worker_is_a_failure_with_its_code(registry: Registry) -> None:
    claimed(registry)
    registry.silence("w1")
    registry.services.maintenance.requeue_lost()
    statistics = registry.services.statistics.snapshot()
    assert statistics.attempts == {(V4, "lost"): 1}
    assert statistics.failures == {(V4, "worker_lost"): 1}
    assert queue_of(statistics, V4).workers == {"idle": 0, "busy": 0, "draining": 0, "lost": 1}
    assert statistics.heartbeats == ()


def test_the_queues_are_counted_by_target(registry: Registry) -> None:
    claimed(registry)
    registry.worker("w2", V4, concurrency=3)
    registry.worker("w3", V4, concurrency=8)
    registry.services.workers.drain("w3")
    registry.submit(targets=[V4, GPU], source={"factory": "torchvision.models:resnet18", "seed": 1})
    registry.sql("UPDATE builds SET queued_at = now() - interval '90 seconds' WHERE target = %s", GPU)
    statistics = registry.services.statistics.snapshot()
    mine, lonely = queue_of(statistics, V4), queue_of(statistics, GPU)
    assert (mine.queued, mine.running, mine.slots, mine.live) == (1, 1, 4, 3)
    assert mine.workers == {"idle": 1, "busy": 1, "draining": 1, "lost": 0}
    assert (lonely.queued, lonely.slots, lonely.live) == (1, 0, 0)
    assert 90 <= lonely.oldest_seconds < 200
    assert {beat.worker for beat in statistics.heartbeats} == {"w1", "w2", "w3"}
    assert all(0 <= beat.seconds < 60 for beat in statistics.heartbeats)


def test_builds_that_are_tried_again_and_again_are_named(registry: Registry) -> None:
    claim = claimed(registry)
    for _ in range(2):
        registry.services.builds.hand_back(claim)
        claim = registry.claim(claim.build)
    _, repeated = registry.services.statistics.queues()
    assert [(item.id, item.attempt, item.last, item.worker) for item in repeated] == [
        (claim.build, 3, "handed_back", "w1")
    ]
