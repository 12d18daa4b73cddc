from __future__ import annotations

import threading
import time
from datetime import datetime
from typing import TYPE_CHECKING

import psycopg
import pytest
from sqlalchemy import Engine, event
from structlog.testing import capture_logs

from pt2hub.domain.builds import StepReport
from pt2hub.domain.digests import digest_bytes
from pt2hub.domain.tokens import Actor
from pt2hub.errors import CompileFailed, IsolationRefused, NotFound
from pt2hub.wire.workers import WorkerBuild
from support.registry import ENVIRONMENT, TOOLCHAIN, V3, V4, a_registration

if TYPE_CHECKING:
    from pt2hub.domain.workers import Required
    from support.registry import Registry


def live(registry: Registry) -> dict[str, int]:
    return {target.name: target.live_workers for target in registry.services.workers.targets()}


def states(registry: Registry, *, gone: bool = False) -> dict[str, str]:
    return {worker.id: worker.state for worker in registry.services.workers.workers(gone=gone).workers}


def test_a_registered_worker_is_described_in_sql(registry: Registry) -> None:
    registry.worker("w1")
    assert registry.sql(
        "SELECT w.id, t.device, t.arch, w.toolchain ->> 'compiler', (e.fields ->> 'cores')::int, "
        "w.packages ->> 'torchvision' "
        "FROM workers w JOIN targets t ON t.name = w.target JOIN environments e ON e.digest = w.environment"
    ) == [("w1", "cpu", "x86_64_v4", TOOLCHAIN.compiler, ENVIRONMENT.cores, "0.28.0")]


def test_targets_count_their_live_workers(registry: Registry) -> None:
    workers = registry.services.workers
    for name, target in (("w1", V4), ("w2", V4), ("w3", V3)):
        registry.worker(name, target)
    registry.silence("w3")
    assert live(registry) == {V3: 0, V4: 2}
    workers.beat("w3", {})
    workers.leave("w1")
    assert live(registry) == {V3: 1, V4: 1}


def test_a_heartbeat_does_not_bring_back_a_worker_that_left(registry: Registry) -> None:
    registry.worker("w1")
    registry.services.workers.leave("w1")
    registry.services.workers.beat("w1", {})  # its heart's last beat may come late
    assert live(registry) == {V4: 0}
    registry.worker("w1")
    assert live(registry) == {V4: 1}


def test_a_worker_nobody_knows_must_register(registry: Registry) -> None:
    with pytest.raises(NotFound):
        registry.services.workers.beat("w1", {})


def test_builds_of_a_silent_worker_go_back_to_the_queue(registry: Registry) -> None:
    view = registry.submit(targets=[V4, V3])
    lost = registry.claim(view.builds[0].id, "silent")
    kept = registry.claim(view.builds[1].id, "alive")
    registry.silence("silent")
    assert registry.services.maintenance.requeue_lost() == [lost.build]
    assert registry.services.maintenance.requeue_lost() == []
    states = [build.state for build in registry.services.publish.version(view.model, 1).builds]
    assert states == ["queued", "running"]
    assert registry.jobs(lost.build)[-1] == (V4, "todo")
    assert len(registry.jobs(kept.build)) == 1
    assert registry.claim(lost.build, "w3").attempt == 2


def test_builds_of_a_worker_that_left_go_back_at_once(registry: Registry) -> None:
    claim = registry.claim(registry.submit().builds[0].id)
    registry.services.workers.leave("w1")
    assert registry.services.maintenance.requeue_lost() == [claim.build]


def test_builds_that_are_over_stay_over(registry: Registry) -> None:
    claim = registry.claim(registry.submit().builds[0].id)
    registry.services.builds.fail(claim, CompileFailed())
    registry.silence("w1")
    assert registry.services.maintenance.requeue_lost() == []


def test_a_build_in_the_middle_of_its_publication_is_not_lost(registry: Registry) -> None:
    claim = registry.claim(registry.submit().builds[0].id)
    registry.silence("w1")
    with psycopg.connect(registry.database_url) as publishing:
        publishing.execute("UPDATE builds SET state = 'succeeded' WHERE id = %s", [claim.build])
        assert registry.services.maintenance.requeue_lost() == []
        publishing.commit()
    assert registry.services.maintenance.requeue_lost() == []


def test_a_queued_build_whose_job_was_lost_is_delivered_again(registry: Registry) -> None:
    (build,) = registry.submit().builds
    maintenance = registry.services.maintenance
    registry.sql("UPDATE builds SET queued_at = now() - interval '1 hour'")
    assert maintenance.requeue_lost() == []  # it waits for a worker; its job is there
    # A worker took the job and died before it claimed the build.
    registry.sql("INSERT INTO procrastinate_workers (last_heartbeat) VALUES (now())")
    registry.sql("UPDATE procrastinate_jobs SET status = 'doing', worker_id = 1")
    assert maintenance.requeue_lost() == []
    registry.sql("UPDATE procrastinate_workers SET last_heartbeat = now() - interval '1 hour'")
    assert maintenance.requeue_lost() == [build.id]
    assert registry.jobs(build.id) == [(V4, "doing"), (V4, "todo")]
    assert maintenance.requeue_lost() == []


def test_only_one_of_two_reapers_at_once_requeues(registry: Registry) -> None:
    claim = registry.claim(registry.submit().builds[0].id)
    registry.silence("w1")
    found: list[str] = []
    barrier = threading.Barrier(3)

    def reap() -> None:
        barrier.wait()
        found.extend(registry.services.maintenance.requeue_lost())

    threads = [threading.Thread(target=reap) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [claim.build]
    assert registry.jobs(claim.build) == [(V4, "todo")]


def test_life_and_death_go_by_the_databases_clock(
    registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time, "time", lambda: 0.0)  # a worker whose clock is in 1970
    registry.worker("w1")
    registry.services.workers.beat("w1", {})
    assert live(registry) == {V4: 1}
    assert registry.sql("SELECT now() - last_seen < interval '10 min' FROM workers") == [(True,)]


def test_targets_say_what_waits_and_what_could_run(registry: Registry) -> None:
    registry.worker("w1", concurrency=3)
    registry.worker("w2", concurrency=2)
    registry.worker("old", V3)
    registry.silence("old")
    first, _, _ = (registry.submit(model=f"vision/m{number}").builds[0].id for number in range(3))
    registry.services.builds.claim(first, "w1")
    registry.services.workers.drain("w2")
    v3, v4 = registry.services.workers.targets()
    assert (v4.live_workers, v4.slots, v4.queued, v4.running) == (2, 3, 2, 1)
    assert v4.oldest
    assert v4.last_seen
    assert (v3.live_workers, v3.slots, v3.queued, v3.oldest) == (0, 0, 0, None)
    assert v3.last_seen
    assert v3.last_seen < v4.last_seen


def test_workers_say_what_they_are_doing(registry: Registry) -> None:
    view = registry.submit(targets=[V4, V3])
    claim = registry.claim(view.builds[0].id, "busy")
    registry.step(claim, "fetch", "done", seconds=0.1)
    registry.step(claim, "compile", "running", detail="autotuning 3 of 9")
    registry.worker("idle", host="cpu-7", version="9.9", concurrency=4)
    idle, busy = registry.services.workers.workers().workers
    assert (idle.id, idle.state, idle.host, idle.version, idle.concurrency) == (
        "idle",
        "idle",
        "cpu-7",
        "9.9",
        4,
    )
    assert (idle.target, idle.builds, idle.toolchain["compiler"]) == (V4, (), TOOLCHAIN.compiler)
    assert idle.environment
    assert (busy.id, busy.state) == ("busy", "busy")
    assert busy.builds == (WorkerBuild(claim.build, view.model, 1, 1, "compile", "autotuning 3 of 9"),)


def test_workers_that_went_are_listed_on_request(registry: Registry) -> None:
    for name in ("idle", "draining", "lost", "left", "forgotten"):
        registry.worker(name)
    workers = registry.services.workers
    workers.drain("draining")
    workers.leave("left")
    registry.silence("lost")
    registry.sql("UPDATE workers SET last_seen = now() - interval '2 days' WHERE id = 'forgotten'")
    assert states(registry) == {"idle": "idle", "draining": "draining"}
    everyone = states(registry, gone=True)
    assert everyone == {"idle": "idle", "draining": "draining", "lost": "lost", "left": "left"}
    assert set(list(everyone)[:2]) == {"idle", "draining"}
    registry.worker("draining")  # a worker that registers again takes builds
    assert states(registry)["draining"] == "idle"


def test_the_list_of_workers_costs_the_same_however_long_it_is(registry: Registry) -> None:
    sent: list[str] = []

    def note(_connection: object, _cursor: object, statement: str, *_rest: object) -> None:
        sent.append(statement)

    def cost(workers: int) -> int:
        for number in range(workers):
            registry.claim(registry.submit(model=f"vision/m{number}-{workers}").builds[0].id, f"w{number}")
        sent.clear()
        registry.services.workers.workers(gone=True)
        return len(sent)

    event.listen(Engine, "before_cursor_execute", note)
    try:
        assert cost(1) == cost(5) == 2
    finally:
        event.remove(Engine, "before_cursor_execute", note)


def test_a_worker_whose_clock_is_ten_minutes_off_is_told_and_shown_and_works(registry: Registry) -> None:
    said = a_registration("w1", clock=time.time() + 600)
    with capture_logs() as logged:
        offset = registry.services.workers.register(said)
    (warning,) = logged
    assert "clock is off" in warning["event"]
    assert (warning["log_level"], warning["worker"]) == ("warning", "w1")
    assert warning["seconds_ahead"] == pytest.approx(600, abs=30)
    assert offset == pytest.approx(-600, abs=30)
    (worker,) = registry.services.workers.workers().workers
    assert worker.clock_skew == pytest.approx(600, abs=30)
    claim = registry.services.builds.claim(registry.submit().builds[0].id, "w1")
    assert claim
    step = StepReport("fetch", "running", said.clock + offset)  # as a worker corrects what it reports
    registry.services.builds.report(claim, [step], [])
    assert registry.services.workers.beat("w1", {claim.build: 1}) == ()
    assert registry.services.maintenance.requeue_lost() == []
    (shown,) = registry.services.builds.view(claim.build).steps
    started = datetime.fromisoformat(shown.started_at).timestamp()
    assert started == pytest.approx(time.time(), abs=60)
    registry.services.builds.publish(claim, registry.publication(claim))


def test_a_worker_without_a_sandbox_is_refused_until_the_operator_lets_it(registry: Registry) -> None:
    isolation = registry.services.isolation
    assert isolation.required_level() == "sandbox", "nobody decided"
    with pytest.raises(IsolationRefused, match="in a sandbox") as caught:
        registry.worker("w1", isolation="process")
    assert caught.value.where == "PT2HUB_ISOLATION"
    assert "apt-get install bubblewrap libseccomp2" in (caught.value.hint or "")
    assert states(registry) == {}
    isolation.allow("process")
    registry.worker("w1", isolation="process")
    isolation.allow("sandbox")
    with pytest.raises(IsolationRefused):
        registry.worker("w2", isolation="process")
    assert states(registry) == {"w1": "idle"}
    with pytest.raises(NotFound):  # a worker that is told so registers again, and is refused
        registry.services.workers.beat("w1", {})


@pytest.mark.parametrize("allowed", ["sandbox", "process"])
def test_a_worker_with_a_sandbox_or_without_models_is_always_taken(
    registry: Registry, allowed: Required
) -> None:
    registry.services.isolation.allow(allowed)
    profile = digest_bytes(b"profile")
    registry.worker("w1", isolation="sandbox", isolation_profile=profile)
    registry.worker("w2", isolation="none", isolation_profile=None)
    shown = {worker.id: worker for worker in registry.services.workers.workers().workers}
    assert {name: (worker.isolation, worker.isolation_profile) for name, worker in shown.items()} == {
        "w1": ("sandbox", profile),
        "w2": ("none", None),
    }


def test_what_was_decided_keeps_the_time_when_it_was_decided(registry: Registry) -> None:
    def standing() -> list[tuple[object, ...]]:
        return registry.sql("SELECT value, set_at FROM server_settings WHERE name = 'isolation'")

    registry.services.isolation.allow("process")
    first = standing()
    registry.services.isolation.allow("process")  # every start says it again
    assert standing() == first
    registry.services.isolation.allow("sandbox")
    ((value, _),) = standing()
    assert value == "sandbox"


def test_a_small_difference_of_clocks_is_nobodys_business(registry: Registry) -> None:
    with capture_logs() as logged:
        registry.worker("w1", clock=time.time() + 2)
    assert logged == []


def test_a_heartbeat_learns_which_builds_are_no_longer_the_workers(registry: Registry) -> None:
    workers, builds = registry.services.workers, registry.services.builds
    kept, cancelled, requeued = (
        registry.claim(registry.submit(model=f"vision/m{number}").builds[0].id) for number in range(3)
    )
    builds.cancel(cancelled.build, Actor("alice"))
    builds.requeue(requeued.build, Actor("root"))
    held = {claim.build: 1 for claim in (kept, cancelled, requeued)}
    assert set(workers.beat("w1", held)) == {cancelled.build, requeued.build}
    again = registry.claim(requeued.build)  # by the same worker: the first attempt is still not its own
    assert workers.beat("w1", {kept.build: 1, requeued.build: 1}) == (requeued.build,)
    assert workers.beat("w1", {kept.build: 1, requeued.build: again.attempt}) == ()
    assert builds.view(kept.build).state == "running"


def test_a_claim_whose_answer_was_lost_does_not_run_for_ever(registry: Registry) -> None:
    claim = registry.claim(registry.submit().builds[0].id)
    workers = registry.services.workers
    assert workers.beat("w1", {}) == ()
    assert registry.services.builds.view(claim.build).state == "running"  # the answer may be under way
    registry.sql("UPDATE builds SET started_at = now() - interval '1 hour'")
    assert workers.beat("w1", {claim.build: 1}) == ()
    assert workers.beat("w1", {}) == ()
    view = registry.services.builds.view(claim.build)
    assert (view.state, view.failures, view.attempts[0].outcome) == ("queued", 1, "lost")
    assert registry.jobs(claim.build) == [(V4, "todo")]
