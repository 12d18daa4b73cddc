"""Builds cancelled, retried, queued again and failing: every transition, and what happens when two meet."""

from __future__ import annotations

import threading
import time
from functools import partial
from typing import TYPE_CHECKING

import pytest

from pt2hub.domain.builds import MAX_FAILURES, LogLine, StepReport, backoff
from pt2hub.domain.tokens import Actor
from pt2hub.errors import (
    BuildActive,
    BuildOver,
    CompileFailed,
    InvalidInput,
    NotFound,
    Pt2hubError,
    StaleAttempt,
    StorageUnavailable,
)
from pt2hub.rendering.waits import format_note
from support.registry import V4

if TYPE_CHECKING:
    from collections.abc import Callable

    from pt2hub.domain.builds import Claim
    from support.registry import Registry


def ready(registry: Registry, build: str) -> None:
    """Lets the pause before a build's next attempt be over."""
    registry.sql("UPDATE builds SET not_before = now() - interval '1 s' WHERE id = %s", build)


def attempts(registry: Registry, build: str) -> list[tuple[int, str, str | None, str | None]]:
    view = registry.services.builds.view(build)
    return [(item.number, item.worker, item.outcome, item.code) for item in view.attempts]


def at_once(*calls: Callable[[], object]) -> list[object]:
    """What calls made at the same moment return or raise, in their order."""
    barrier = threading.Barrier(len(calls))
    results: list[object] = [None] * len(calls)

    def run(place: int) -> None:
        barrier.wait()
        try:
            results[place] = calls[place]()
        except Pt2hubError as error:
            results[place] = error

    threads = [threading.Thread(target=run, args=(place,)) for place in range(len(calls))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


# -- cancel --------------------------------------------------------------------------------------------------


def test_a_queued_build_is_cancelled_and_its_job_goes(registry: Registry) -> None:
    (build,) = registry.submit().builds
    view = registry.services.builds.cancel(build.id, Actor("alice"))
    assert (view.state, view.cancellation, view.error, view.position) == (
        "cancelled",
        "cancelled by alice",
        None,
        None,
    )
    assert view.finished_at
    assert registry.jobs(build.id) == []
    registry.worker("w1")
    assert registry.services.builds.claim(build.id, "w1") is None


def test_a_running_build_is_cancelled_at_once_and_its_attempt_is_refused(registry: Registry) -> None:
    claim = registry.claim(registry.submit().builds[0].id)
    registry.step(claim, "compile", "running")
    view = registry.services.builds.cancel(claim.build, Actor("alice"))
    assert view.state == "cancelled"
    assert [step.state for step in view.steps] == ["cancelled"]
    (attempt,) = view.attempts
    assert (attempt.outcome, attempt.message) == ("cancelled", "cancelled by alice")
    assert attempt.ended_at
    assert registry.services.workers.beat("w1", {claim.build: 1}) == (claim.build,)
    with pytest.raises(StaleAttempt):
        registry.services.builds.publish(claim, registry.publication(claim))
    registry.services.builds.report(claim, [], [LogLine(1, 0.0, "compile", "info", "last words")])


def test_cancelling_twice_changes_nothing(registry: Registry) -> None:
    (build,) = registry.submit().builds
    first = registry.services.builds.cancel(build.id, Actor("alice"))
    assert registry.services.builds.cancel(build.id, Actor("bob")) == first


def test_a_finished_build_cannot_be_cancelled(registry: Registry) -> None:
    builds = registry.services.builds
    done = registry.claim(registry.submit().builds[0].id)
    builds.publish(done, registry.publication(done))
    with pytest.raises(BuildOver, match="has succeeded and cannot be cancelled") as caught:
        builds.cancel(done.build, Actor("alice"))
    assert "an artifact" in (caught.value.hint or "").lower()
    failed = registry.claim(registry.submit(model="vision/other").builds[0].id)
    builds.fail(failed, CompileFailed())
    with pytest.raises(BuildOver) as caught:
        builds.cancel(failed.build, Actor("alice"))
    assert f"pt2hub retry {failed.build}" in (caught.value.hint or "")


# -- retry ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("end", ["fail", "cancel"])
def test_a_build_that_is_over_is_retried_as_if_new(registry: Registry, end: str) -> None:
    builds = registry.services.builds
    claim = registry.claim(registry.submit().builds[0].id)
    builds.retry_later(claim, StorageUnavailable())
    ready(registry, claim.build)
    second = registry.claim(claim.build)
    if end == "fail":
        builds.fail(second, CompileFailed())
    else:
        builds.cancel(claim.build, Actor("alice"))
    view = builds.retry(claim.build, Actor("bob"), priority=7)
    assert (view.state, view.failures, view.priority, view.error, view.wait) == ("queued", 0, 7, None, None)
    assert (view.finished_at, view.not_before, view.position) == (None, None, 1)
    assert registry.jobs(claim.build) == [(V4, "todo")]
    with pytest.raises(StaleAttempt):
        builds.publish(second, registry.publication(second))
    third = registry.claim(claim.build, "w3")
    assert third.attempt == 3
    builds.publish(third, registry.publication(third))
    assert [outcome for _, _, outcome, _ in attempts(registry, claim.build)][-1] == "succeeded"


def test_what_waits_runs_or_succeeded_is_not_retried(registry: Registry) -> None:
    builds = registry.services.builds
    (build,) = registry.submit().builds
    with pytest.raises(BuildActive, match="is already queued"):
        builds.retry(build.id, Actor("alice"))
    claim = registry.claim(build.id)
    with pytest.raises(BuildActive, match="already running") as caught:
        builds.retry(build.id, Actor("alice"))
    assert f"pt2hub cancel {build.id}" in (caught.value.hint or "")
    builds.publish(claim, registry.publication(claim))
    with pytest.raises(BuildOver, match="cannot be retried"):
        builds.retry(build.id, Actor("alice"))


def test_a_retry_with_a_priority_that_there_is_not_is_refused(registry: Registry) -> None:
    with pytest.raises(InvalidInput):
        registry.services.builds.retry("b0", Actor("alice"), priority=101)


# -- queued again by an operator -----------------------------------------------------------------------------


def test_an_operator_takes_a_running_build_from_its_worker(registry: Registry) -> None:
    builds = registry.services.builds
    claim = registry.claim(registry.submit().builds[0].id)
    view = builds.requeue(claim.build, Actor("root"))
    assert (view.state, view.failures, view.worker) == ("queued", 0, "w1")
    assert (view.attempts[0].outcome, view.attempts[0].message) == ("handed_back", "queued again by root")
    with pytest.raises(BuildActive):
        builds.requeue(claim.build, Actor("root"))
    builds.cancel(claim.build, Actor("root"))
    with pytest.raises(BuildOver):
        builds.requeue(claim.build, Actor("root"))


@pytest.mark.parametrize("name", ["cancel", "retry", "requeue"])
def test_a_build_that_there_is_not_cannot_be_steered(registry: Registry, name: str) -> None:
    with pytest.raises(NotFound, match="Build 'b0' not found"):
        getattr(registry.services.builds, name)("b0", "alice")


# -- transient failures --------------------------------------------------------------------------------------


def test_a_transient_failure_waits_and_says_until_when_and_why(registry: Registry) -> None:
    builds = registry.services.builds
    claim = registry.claim(registry.submit().builds[0].id)
    builds.retry_later(claim, StorageUnavailable("no answer"))
    view = builds.view(claim.build)
    assert (view.state, view.failures, view.error, view.position) == ("queued", 1, None, 1)
    assert view.not_before
    assert format_note(view).startswith("waits until 20")
    assert format_note(view).endswith("after attempt 1 ended with storage_unavailable")
    assert attempts(registry, claim.build) == [(1, "w1", "retried", "storage_unavailable")]
    assert builds.claim(claim.build, "w1") is None  # a job that came too early
    (pause, same) = registry.sql(
        "SELECT extract(epoch FROM b.not_before - b.queued_at)::float, b.not_before = j.scheduled_at "
        "FROM builds b JOIN procrastinate_jobs j ON j.args ->> 'build_id' = b.id"
    )[0]
    assert pause == pytest.approx(backoff(1).total_seconds(), abs=0.1)
    assert same
    with pytest.raises(StaleAttempt):
        builds.retry_later(claim, StorageUnavailable())
    ready(registry, claim.build)
    assert registry.claim(claim.build).attempt == 2


def test_too_many_transient_failures_end_the_build_with_the_last_error(registry: Registry) -> None:
    builds = registry.services.builds
    (build,) = registry.submit().builds
    for number in range(MAX_FAILURES):
        assert builds.view(build.id).state == "queued"
        ready(registry, build.id)
        builds.retry_later(registry.claim(build.id), StorageUnavailable(f"time {number + 1}"))
    view = builds.view(build.id)
    assert (view.state, view.failures) == ("failed", MAX_FAILURES)
    assert (view.error or {})["message"] == f"time {MAX_FAILURES}"
    outcomes = [outcome for _, _, outcome, _ in attempts(registry, build.id)]
    assert outcomes == ["retried"] * (MAX_FAILURES - 1) + ["failed"]


def test_handing_back_counts_no_failure(registry: Registry) -> None:
    builds = registry.services.builds
    (build,) = registry.submit().builds
    for _ in range(MAX_FAILURES + 1):
        builds.hand_back(registry.claim(build.id))
    view = builds.view(build.id)
    assert (view.state, view.failures, view.attempt) == ("queued", 0, MAX_FAILURES + 1)


def test_a_failed_attempt_keeps_its_error_and_its_last_step(registry: Registry) -> None:
    claim = registry.claim(registry.submit().builds[0].id)
    registry.step(claim, "fetch", "done", seconds=0.1)
    registry.step(claim, "compile", "running")
    registry.services.builds.fail(claim, CompileFailed("no compiler"))
    view = registry.services.builds.view(claim.build)
    assert [(step.name, step.state) for step in view.steps] == [("fetch", "done"), ("compile", "failed")]
    assert [(item.outcome, item.code, item.message) for item in view.attempts] == [
        ("failed", "compile_failed", "no compiler")
    ]
    assert view.worker == "w1"


def test_whoever_sees_a_build_succeed_sees_all_of_its_steps_and_they_change_no_more(
    registry: Registry,
) -> None:
    claim = registry.claim(registry.submit().builds[0].id)
    registry.step(claim, "verify", "running")
    unsent = [
        StepReport("verify", "done", time.time(), 2.0),
        StepReport("upload", "done", time.time(), 0.1),
        StepReport("publish", "running", time.time()),
    ]
    registry.services.builds.publish(claim, registry.publication(claim), unsent)
    seen = registry.services.builds.view(claim.build).steps
    assert [(step.name, step.state) for step in seen] == [
        ("verify", "done"),
        ("upload", "done"),
        ("publish", "done"),
    ]
    registry.services.builds.report(claim, [*unsent, StepReport("publish", "done", time.time(), 9.0)], [])
    assert registry.services.builds.view(claim.build).steps == seen


def test_the_last_step_of_a_success_is_over_though_its_worker_died_right_after(registry: Registry) -> None:
    claim = registry.claim(registry.submit().builds[0].id)
    registry.step(claim, "publish", "running")
    registry.services.builds.publish(claim, registry.publication(claim))
    (step,) = registry.services.builds.view(claim.build).steps
    assert step.state == "done"
    assert step.seconds is not None


def test_an_attempt_says_whether_code_was_reused(registry: Registry) -> None:
    for model, provenance in (("vision/a", {}), ("vision/b", {"code_reused_from": "sha256:" + "0" * 64})):
        claim = registry.claim(registry.submit(model=model).builds[0].id)
        registry.services.builds.publish(claim, registry.publication(claim, provenance=provenance))
    assert registry.sql("SELECT reused FROM build_attempts ORDER BY started_at") == [(False,), (True,)]


# -- what happens at the same time ---------------------------------------------------------------------------


def races(registry: Registry, times: int = 8) -> list[Claim]:
    return [
        registry.claim(registry.submit(model=f"vision/race{number}").builds[0].id, f"w{number}")
        for number in range(times)
    ]


def one_state(registry: Registry, build: str) -> str:
    """The build's state, with the artifact, the attempt and the jobs that belong to it and no others."""
    view = registry.services.builds.view(build)
    artifacts = registry.sql("SELECT count(*) FROM artifacts WHERE build_id = %s", build)[0][0]
    running = sum(item.ended_at is None for item in view.attempts)
    assert artifacts == (view.state == "succeeded")
    assert running == (view.state == "running")
    assert len(registry.jobs(build)) == (view.state == "queued")
    return view.state


def drop_jobs(registry: Registry) -> None:
    """The jobs that led to claims so far: a consumer would have taken them."""
    registry.sql("DELETE FROM procrastinate_jobs")


def test_cancel_against_publish_ends_in_one_of_them(registry: Registry) -> None:
    builds = registry.services.builds
    for claim in races(registry):
        drop_jobs(registry)
        publication = registry.publication(claim, code=claim.build.encode())
        cancelled, published = at_once(
            partial(builds.cancel, claim.build, Actor("alice")),
            partial(builds.publish, claim, publication),
        )
        state = one_state(registry, claim.build)
        assert isinstance(cancelled, BuildOver) == (state == "succeeded")
        assert isinstance(published, StaleAttempt) == (state == "cancelled")


def test_retry_against_retry_queues_once(registry: Registry) -> None:
    builds = registry.services.builds
    for claim in races(registry):
        drop_jobs(registry)
        builds.fail(claim, CompileFailed())
        results = at_once(*[partial(builds.retry, claim.build, Actor("alice"))] * 3)
        assert sorted(type(result).__name__ for result in results) == [
            "BuildActive",
            "BuildActive",
            "BuildView",
        ]
        assert one_state(registry, claim.build) == "queued"


def test_the_same_publication_twice_at_once_is_one_artifact(registry: Registry) -> None:
    builds = registry.services.builds
    for claim in races(registry, 4):
        drop_jobs(registry)
        publication = registry.publication(claim, code=claim.build.encode())
        call = partial(builds.publish, claim, publication)
        assert at_once(call, call) == [None, None]
        assert one_state(registry, claim.build) == "succeeded"


def test_claims_of_one_build_at_once_give_it_to_one_worker(registry: Registry) -> None:
    builds = registry.services.builds
    workers = [registry.worker(f"w{number}") for number in range(4)]
    for number in range(6):
        (build,) = registry.submit(model=f"vision/race{number}").builds
        drop_jobs(registry)
        results = at_once(*[partial(builds.claim, build.id, worker) for worker in workers])
        assert sum(result is not None for result in results) == 1
        assert one_state(registry, build.id) == "running"


def test_cancel_against_claim_ends_cancelled(registry: Registry) -> None:
    builds = registry.services.builds
    registry.worker("w1")
    for number in range(8):
        (build,) = registry.submit(model=f"vision/race{number}").builds
        cancelled, _ = at_once(
            partial(builds.cancel, build.id, Actor("alice")),
            partial(builds.claim, build.id, "w1"),
        )
        assert not isinstance(cancelled, Pt2hubError)
        assert one_state(registry, build.id) == "cancelled"


def test_reaping_against_publishing_gives_one_artifact_or_another_attempt(registry: Registry) -> None:
    builds, maintenance = registry.services.builds, registry.services.maintenance
    for claim in races(registry):
        drop_jobs(registry)
        registry.silence(claim.worker)
        publication = registry.publication(claim, code=claim.build.encode())
        lost, published = at_once(
            maintenance.requeue_lost,
            partial(builds.publish, claim, publication),
        )
        state = one_state(registry, claim.build)
        assert (state == "queued") == isinstance(published, StaleAttempt)
        assert (claim.build in lost) == (state == "queued")  # type: ignore[operator]  # a list of ids


def test_beat_against_claim_takes_nothing_from_a_worker(registry: Registry) -> None:
    registry.worker("w1")
    workers, builds = registry.services.workers, registry.services.builds
    for number in range(6):
        (build,) = registry.submit(model=f"vision/race{number}").builds
        drop_jobs(registry)
        told, claim = at_once(partial(workers.beat, "w1", {}), partial(builds.claim, build.id, "w1"))
        assert told == ()
        assert claim is not None
        assert one_state(registry, build.id) == "running"
