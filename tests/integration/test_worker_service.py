from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

import psycopg
import pytest

from pt2hub.errors import CompileFailed, NotFound
from pt2hub.wire.shapes import TargetView
from support.registry import ENVIRONMENT, TOOLCHAIN, V3, V4

if TYPE_CHECKING:
    from support.registry import Registry


def test_a_registered_worker_is_described_in_sql(registry: Registry) -> None:
    registry.worker("w1")
    assert registry.sql(
        "SELECT w.id, t.device, t.arch, w.toolchain ->> 'compiler', e.cores, w.packages ->> 'torchvision' "
        "FROM workers w JOIN targets t ON t.name = w.target JOIN environments e ON e.digest = w.environment"
    ) == [("w1", "cpu", "x86_64_v4", TOOLCHAIN.compiler, ENVIRONMENT.cores, "0.28.0")]


def test_targets_count_their_live_workers(registry: Registry) -> None:
    workers = registry.services.workers
    for name, target in (("w1", V4), ("w2", V4), ("w3", V3)):
        registry.worker(name, target)
    registry.silence("w3")
    assert workers.targets() == [TargetView(V3, 0), TargetView(V4, 2)]
    workers.heartbeat("w3")
    workers.leave("w1")
    assert workers.targets() == [TargetView(V3, 1), TargetView(V4, 1)]


def test_a_heartbeat_does_not_bring_back_a_worker_that_left(registry: Registry) -> None:
    registry.worker("w1")
    registry.services.workers.leave("w1")
    registry.services.workers.heartbeat("w1")  # its heart's last beat may come late
    assert registry.services.workers.targets() == [TargetView(V4, 0)]
    registry.worker("w1")
    assert registry.services.workers.targets() == [TargetView(V4, 1)]


def test_a_worker_nobody_knows_must_register(registry: Registry) -> None:
    with pytest.raises(NotFound):
        registry.services.workers.heartbeat("w1")


def test_builds_of_a_silent_worker_go_back_to_the_queue(registry: Registry) -> None:
    view = registry.submit(targets=[V4, V3])
    lost = registry.claim(view.builds[0].id, "silent")
    kept = registry.claim(view.builds[1].id, "alive")
    registry.silence("silent")
    assert registry.services.workers.requeue_lost() == [lost.build]
    assert registry.services.workers.requeue_lost() == []
    states = [build.state for build in registry.services.publish.version(view.model, 1).builds]
    assert states == ["queued", "running"]
    assert registry.jobs(lost.build)[-1] == (V4, "todo")
    assert len(registry.jobs(kept.build)) == 1
    assert registry.claim(lost.build, "w3").attempt == 2


def test_builds_of_a_worker_that_left_go_back_at_once(registry: Registry) -> None:
    claim = registry.claim(registry.submit().builds[0].id)
    registry.services.workers.leave("w1")
    assert registry.services.workers.requeue_lost() == [claim.build]


def test_builds_that_are_over_stay_over(registry: Registry) -> None:
    claim = registry.claim(registry.submit().builds[0].id)
    registry.services.builds.fail(claim, CompileFailed())
    registry.silence("w1")
    assert registry.services.workers.requeue_lost() == []


def test_a_build_in_the_middle_of_its_publication_is_not_lost(registry: Registry) -> None:
    claim = registry.claim(registry.submit().builds[0].id)
    registry.silence("w1")
    with psycopg.connect(registry.database_url) as publishing:
        publishing.execute("UPDATE builds SET state = 'succeeded' WHERE id = %s", [claim.build])
        assert registry.services.workers.requeue_lost() == []
        publishing.commit()
    assert registry.services.workers.requeue_lost() == []


def test_a_queued_build_whose_job_was_lost_is_delivered_again(registry: Registry) -> None:
    (build,) = registry.submit().builds
    workers = registry.services.workers
    registry.sql("UPDATE builds SET queued_at = now() - interval '1 hour'")
    assert workers.requeue_lost() == []  # it waits for a worker; its job is there
    # A worker took the job and died before it claimed the build.
    registry.sql("INSERT INTO procrastinate_workers (last_heartbeat) VALUES (now())")
    registry.sql("UPDATE procrastinate_jobs SET status = 'doing', worker_id = 1")
    assert workers.requeue_lost() == []
    registry.sql("UPDATE procrastinate_workers SET last_heartbeat = now() - interval '1 hour'")
    assert workers.requeue_lost() == [build.id]
    assert registry.jobs(build.id) == [(V4, "doing"), (V4, "todo")]
    assert workers.requeue_lost() == []


def test_only_one_of_two_reapers_at_once_requeues(registry: Registry) -> None:
    claim = registry.claim(registry.submit().builds[0].id)
    registry.silence("w1")
    found: list[str] = []
    barrier = threading.Barrier(3)

    def reap() -> None:
        barrier.wait()
        found.extend(registry.services.workers.requeue_lost())

    threads = [threading.Thread(target=reap) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [claim.build]
    assert len(registry.jobs(claim.build)) == 2


def test_life_and_death_go_by_the_databases_clock(
    registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time, "time", lambda: 0.0)  # a worker whose clock is in 1970
    registry.worker("w1")
    registry.services.workers.heartbeat("w1")
    assert registry.services.workers.targets() == [TargetView(V4, 1)]
    assert registry.sql("SELECT now() - last_seen < interval '10 s' FROM workers") == [(True,)]
