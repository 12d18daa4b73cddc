"""What the overseer learns from the database, and how soon; the attempts themselves are the test's."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

import psycopg
import pytest

from pt2hub.domain.builds import MEASURE_PRIORITY
from pt2hub.domain.tokens import Actor
from pt2hub.errors import StaleAttempt
from pt2hub_workers.operations.heartbeat import HeartbeatMonitor
from support.registry import V3, V4, a_registration

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pt2hub.domain.builds import Claim
    from pt2hub_workers.operations.cancellation import CancellationToken
    from support.registry import Registry

SOON = 5.0
"""Seconds within which a cancel must reach an attempt."""
NEVER = 3600.0
"""A heartbeat so rare that only notifications can have been the cause."""


@pytest.fixture
def overseer_of(registry: Registry) -> Iterator[Callable[..., HeartbeatMonitor]]:
    started: list[HeartbeatMonitor] = []

    def start(name: str = "w1", *, every: float = NEVER, slots: int = 1) -> HeartbeatMonitor:
        monitor = HeartbeatMonitor(
            registry.services,
            a_registration(name, concurrency=slots),
            database_url=registry.database_url,
            every=every,
            on_refused=lambda: None,
        )
        started.append(monitor)
        monitor.start()
        return monitor

    yield start
    for monitor in started:
        monitor.stop()


def claimed(registry: Registry, worker: str = "w1", **changes: object) -> Claim:
    build = registry.submit(**changes).builds[0].id
    claim = registry.services.builds.claim(build, worker)
    assert claim is not None
    return claim


def took(token: CancellationToken) -> float:
    began = time.monotonic()
    assert token.wait(10)
    return time.monotonic() - began


def test_a_cancel_reaches_the_attempt_by_a_notification(
    registry: Registry, overseer_of: Callable[..., HeartbeatMonitor]
) -> None:
    monitor = overseer_of()
    claim = claimed(registry)
    with monitor.track(claim) as token:
        assert not token.wait(1)  # the first look is over, and nothing is wrong
        registry.services.builds.cancel(claim.build, Actor("test"))

        assert took(token) < SOON
        assert token.reason == "cancelled"


def test_a_cancel_between_claim_and_watch_is_found_too(
    registry: Registry, overseer_of: Callable[..., HeartbeatMonitor]
) -> None:
    monitor = overseer_of()
    claim = claimed(registry)
    registry.services.builds.cancel(claim.build, Actor("test"))
    time.sleep(0.3)  # its notification is over and heard by nobody
    with monitor.track(claim) as token:
        assert took(token) < SOON
        assert token.reason == "cancelled"


def test_a_build_that_an_operator_queues_again_is_overtaken_and_another_slots_attempt_goes_on(
    registry: Registry, overseer_of: Callable[..., HeartbeatMonitor]
) -> None:
    monitor = overseer_of(every=0.1)
    claim, other = claimed(registry), claimed(registry, model="vision/other")
    with monitor.track(claim) as token, monitor.track(other) as untouched:
        registry.services.builds.requeue(claim.build, Actor("test"))
        assert took(token) < SOON
        assert token.reason == "overtaken"
        again = registry.services.builds.claim(claim.build, "w1")
        assert again is not None
        with monitor.track(again) as newer:
            assert not newer.wait(0.6)
        assert not untouched.is_set()


def test_the_same_worker_overtaking_itself_halts_the_older_attempt_without_asking(
    registry: Registry, overseer_of: Callable[..., HeartbeatMonitor]
) -> None:
    monitor = overseer_of()
    claim = claimed(registry)
    with monitor.track(claim) as token:
        registry.sql("UPDATE builds SET state = 'queued' WHERE id = %s", claim.build)  # unheard
        again = registry.services.builds.claim(claim.build, "w1")
        assert again is not None
        with monitor.track(again) as newer:
            assert token.reason == "overtaken"
            assert not newer.is_set()


def test_a_worker_that_the_database_forgot_registers_again(
    registry: Registry, overseer_of: Callable[..., HeartbeatMonitor]
) -> None:
    overseer_of(every=0.1)
    registry.sql("DELETE FROM workers")
    deadline = time.monotonic() + 20
    while not registry.services.workers.workers().workers:
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_a_worker_that_the_server_does_not_take_any_more_is_to_end(registry: Registry) -> None:
    registry.services.isolation.allow("process")
    said, ended = a_registration("w1", isolation="process", isolation_profile=None), threading.Semaphore(0)
    monitor = HeartbeatMonitor(
        registry.services, said, database_url=registry.database_url, every=0.1, on_refused=ended.release
    )
    monitor.start()
    try:
        assert not ended.acquire(timeout=0.5)
        registry.services.isolation.allow("sandbox")

        assert ended.acquire(timeout=20)
        assert monitor.refused is not None
        assert "sandbox" in monitor.refused.message
        assert not ended.acquire(timeout=0.5)  # told once
    finally:
        monitor.stop()


def test_a_cancel_is_heard_after_the_connections_were_cut(
    registry: Registry, overseer_of: Callable[..., HeartbeatMonitor]
) -> None:
    monitor = overseer_of()
    claim = claimed(registry)
    with monitor.track(claim) as token:
        assert not token.wait(0.6)
        with psycopg.connect(registry.database_url, autocommit=True) as connection:
            connection.execute(
                "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity "
                "WHERE datname = current_database() AND pid <> pg_backend_pid()"
            )
        registry.services.builds.cancel(claim.build, Actor("test"))  # while nobody listens

        assert token.wait(20)
        assert token.reason == "cancelled"


def test_what_is_claimed_while_the_worker_drains_is_halted_at_once(
    registry: Registry, overseer_of: Callable[..., HeartbeatMonitor]
) -> None:
    monitor = overseer_of()
    monitor.drain()
    assert monitor.wait_idle(0)
    with monitor.track(claimed(registry)) as token:
        assert token.reason == "stopping"
        assert not monitor.wait_idle(0.05)
        threading.Timer(0.1, monitor.cancel_all).start()
        assert monitor.ending.wait(5)


def test_a_publish_of_its_own_halts_nobody(
    registry: Registry, overseer_of: Callable[..., HeartbeatMonitor]
) -> None:
    monitor = overseer_of()
    claim = claimed(registry)
    with monitor.track(claim) as token:
        registry.services.builds.publish(claim, registry.publication(claim))
        assert not token.wait(1)


def measuring(registry: Registry, number: int = 1) -> Claim:
    """A measuring job that w1 has."""
    registry.published(registry.submit(measure={"processes": 1}, checks={"tolerance": number / 1000}))
    ((job,),) = registry.sql("SELECT id FROM builds WHERE kind = 'measure' AND state = 'queued'")
    claim = registry.services.builds.claim(job, "w1")
    assert claim is not None
    return claim


def test_a_measuring_job_gives_its_slot_to_a_build_that_is_queued(
    registry: Registry, overseer_of: Callable[..., HeartbeatMonitor]
) -> None:
    monitor = overseer_of()
    claim = measuring(registry)
    with monitor.track(claim) as token:
        assert not token.wait(1)  # there is no build
        registry.submit(model="vision/waiting")
        assert took(token) < SOON
        assert token.reason == "postponed"


def test_a_build_that_waited_before_the_job_began_is_found_too(
    registry: Registry, overseer_of: Callable[..., HeartbeatMonitor]
) -> None:
    monitor = overseer_of()
    claim = measuring(registry)
    registry.submit(model="vision/waiting")
    time.sleep(0.5)
    with monitor.track(claim) as token:
        assert took(token) < SOON
        assert token.reason == "postponed"


def test_no_job_gives_way_to_a_build_of_another_queue_or_lower_priority_or_to_one_that_a_slot_will_take(
    registry: Registry, overseer_of: Callable[..., HeartbeatMonitor]
) -> None:
    monitor = overseer_of(every=0.2)
    claim = measuring(registry)
    with monitor.track(claim) as token:
        registry.submit(model="vision/elsewhere", targets=[V3])
        registry.submit(model="vision/lower", priority=-50)
        waits = registry.submit(model="vision/taken").builds[0].id
        registry.sql("UPDATE procrastinate_jobs SET status = 'doing' WHERE args ->> 'build_id' = %s", waits)
        assert not token.wait(1.5)


def test_as_many_jobs_give_way_as_builds_wait_and_the_youngest_first(registry: Registry) -> None:
    jobs = [measuring(registry, number).build for number in (1, 2, 3)]
    builds = registry.services.builds
    assert builds.giving_way(jobs, V4) == []
    registry.submit(model="vision/waiting")
    time.sleep(0.3)
    assert builds.giving_way(jobs, V4) == jobs[2:]
    registry.submit(model="vision/waiting", targets=[V4, V3], checks={"tolerance": 0.1})
    time.sleep(0.3)
    assert set(builds.giving_way(jobs, V4)) == set(jobs[1:])
    assert builds.giving_way(jobs, V3) == []


def test_a_worker_with_a_free_slot_postpones_nothing_and_one_that_drains_hands_its_job_back(
    registry: Registry, overseer_of: Callable[..., HeartbeatMonitor]
) -> None:
    monitor = overseer_of("two", slots=2)
    claim = measuring(registry)
    with monitor.track(claim) as token:
        registry.submit(model="vision/waiting")
        assert not token.wait(1.5)
        monitor.drain()
        assert token.reason == "stopping"


def test_a_postponed_job_is_queued_behind_the_builds_and_its_attempt_does_not_count(
    registry: Registry,
) -> None:
    claim = measuring(registry)
    registry.services.builds.postpone(claim)
    view = registry.services.builds.view(claim.build)
    assert (view.state, view.failures, view.priority) == ("queued", 0, MEASURE_PRIORITY)
    assert [attempt.outcome for attempt in view.attempts] == ["postponed"]
    with pytest.raises(StaleAttempt):
        registry.services.builds.postpone(claim)
