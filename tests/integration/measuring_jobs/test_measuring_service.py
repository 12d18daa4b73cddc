"""Measuring jobs: they wait, run and end as builds do, and are counted apart from them."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import pytest

from pt2hub.domain.builds import MEASURE_PRIORITY, BuildFilter, BuildKind, BuildState, StepReport
from pt2hub.domain.performance.measurements import Pair
from pt2hub.domain.tokens import Actor
from pt2hub.errors import (
    BlobGone,
    BuildOver,
    InvalidInput,
    NotFound,
    NotReady,
    Pt2hubError,
    StaleAttempt,
    StorageUnavailable,
)
from pt2hub.rendering.waits import format_note
from pt2hub.wire.responses import WaitReason
from support.registry import GPU, V3, V4
from support.remeasuring import a_later_run, measured, remeasure

if TYPE_CHECKING:
    from pt2hub.domain.digests import Digest
    from pt2hub.wire.responses import BuildView, VersionView
    from support.registry import Registry

MODEL = "vision/resnet18"


def on_two_targets(registry: Registry) -> tuple[VersionView, list[Digest]]:
    """A version with artifacts for two targets and none for a third one."""
    version = registry.submit(targets=[V4, V3, GPU])
    digests = []
    for place, build in enumerate(version.builds[:2]):
        claim = registry.claim(build.id, f"w{place}")
        publication = registry.publication(claim, code=str(place).encode())
        registry.services.builds.publish(claim, publication)
        digests.append(publication.manifest.digest)
    return version, digests


def order(registry: Registry, reference: str = f"{MODEL}@1", **options: Any) -> list[BuildView]:
    return list(registry.services.measuring_jobs.measure(reference, by=Actor("ci"), **options).builds)


def figures(registry: Registry, artifact: Digest) -> list[tuple[str, str, float]]:
    found = registry.services.resolve.artifact(artifact).measurements
    return [(item.source, item.metric, item.value) for item in found if item.implementation == "artifact"]


def test_a_job_of_each_artifact_is_queued_behind_the_builds_and_leaves_the_version_as_it_is(
    registry: Registry,
) -> None:
    version, digests = on_two_targets(registry)
    before = registry.services.publish.version(MODEL, 1)
    jobs = order(registry)
    assert [(job.kind, job.target, job.measures, job.state, job.priority) for job in jobs] == [
        ("measure", target, digest, "queued", MEASURE_PRIORITY)
        for target, digest in zip((V4, V3), digests, strict=True)
    ]
    assert [registry.jobs(job.id) for job in jobs] == [[(V4, "todo")], [(V3, "todo")]]
    after = registry.services.publish.version(MODEL, 1)
    assert (after.readiness, [build.id for build in after.builds]) == (
        before.readiness,
        [build.id for build in before.builds],
    )
    other = registry.submit(checks={"tolerance": 0.01}).builds[0]
    assert [registry.services.builds.view(it).position for it in (other.id, jobs[0].id)] == [1, 2]
    found = registry.services.catalog.builds(BuildFilter(model=MODEL, number=1, kind=BuildKind.MEASURE))
    assert {item.id for item in found.builds} == {job.id for job in jobs}
    found = registry.services.catalog.builds(BuildFilter(number=1, model=MODEL, kind=BuildKind.BUILD))
    assert {item.id for item in found.builds} == {build.id for build in version.builds}


def test_lists_and_references_know_a_versions_builds_and_not_its_measuring_jobs(registry: Registry) -> None:
    on_two_targets(registry)
    resolved = registry.services.resolve.resolve(f"{MODEL}@1")
    for job in order(registry):
        registry.services.builds.cancel(job.id, Actor("ci"))
    (summary,) = registry.services.catalog.versions(MODEL).versions
    assert summary.targets == {V4: "succeeded", V3: "succeeded", GPU: "queued"}
    assert registry.services.resolve.resolve(f"{MODEL}@1") == resolved
    again = registry.submit(targets=[V4, V3, GPU], priority=50)
    assert (again.created, len(again.builds)) == (False, 3)


def test_asking_again_joins_the_job_that_waits_and_raises_it(registry: Registry) -> None:
    on_two_targets(registry)
    (first,) = order(registry, target=V4, repeat=3)
    (joined,) = order(registry, target=V4, repeat=2, priority=5)
    (lower,) = order(registry, f"{MODEL}@{first.measures}", priority=-50)
    assert joined.id == lower.id == first.id
    assert (joined.priority, lower.priority) == (5, 5)
    assert registry.sql(
        "SELECT priority FROM procrastinate_jobs WHERE args ->> 'build_id' = %s", first.id
    ) == [(5,)]
    registry.submit(targets=[V4, V3, GPU], priority=50)
    assert registry.services.builds.view(first.id).priority == 5, "a submission raises builds"
    claim = registry.claim(first.id)
    assert claim.request == {
        "target": V4,
        "artifact": first.measures,
        "repeat": 3,
        "by": "ci",
        "single_process": False,
        "baseline": None,
    }
    (another,) = order(registry, target=V4)
    assert another.id != first.id, "one that runs already began before"


def test_a_job_beside_a_named_version_is_another_one_and_joined_by_its_like(registry: Registry) -> None:
    digests = [
        registry.published(registry.submit(checks={"tolerance": 0.001 * seed}), code=str(seed).encode())
        for seed in (1, 2, 3)
    ]
    (plain,) = order(registry, f"{MODEL}@3")
    (first,) = order(registry, f"{MODEL}@3", baseline=f"{MODEL}@1")
    (second,) = order(registry, f"{MODEL}@3", baseline=f"{MODEL}@2", repeat=2)
    assert len({plain.id, first.id, second.id}) == 3
    (joined,) = order(registry, f"{MODEL}@3", baseline=f"{MODEL}@{digests[0]}", priority=3)
    assert (joined.id, joined.priority) == (first.id, 3)
    assert order(registry, f"{MODEL}@3")[0].id == plain.id
    assert [job.baseline for job in (plain, joined, second)] == [None, *digests[:2]]
    claim = registry.claim(first.id)
    assert (claim.request["artifact"], claim.request["baseline"]) == (digests[2], digests[0])
    (older,) = order(registry, f"{MODEL}@1", baseline=f"{MODEL}@3")
    assert (older.measures, older.baseline) == (digests[0], digests[2])


def test_only_targets_that_both_have_are_measured_beside_each_other(registry: Registry) -> None:
    _, digests = on_two_targets(registry)
    later = registry.published(registry.submit(checks={"tolerance": 0.01}), code=b"later")
    assert [(job.target, job.baseline) for job in order(registry, baseline=f"{MODEL}@2")] == [(V4, later)]
    (job,) = order(registry, f"{MODEL}@2", baseline=f"{MODEL}@1")
    assert job.baseline == digests[0]
    own = registry.published(registry.submit(model="vision/other"), code=b"of the same team")
    (job,) = order(registry, f"{MODEL}@2", baseline="vision/other@1")
    assert job.baseline == own


def test_what_cannot_run_beside_an_artifact_is_refused_and_said(registry: Registry) -> None:
    on_two_targets(registry)
    registry.published(registry.submit(checks={"tolerance": 0.01}), code=b"later")
    registry.published(registry.submit(model="audio/net"), code=b"of strangers")
    jobs = registry.sql("SELECT count(*) FROM builds WHERE kind = 'measure'")
    refused: list[tuple[str, dict[str, Any], type[Pt2hubError], str]] = [
        (f"{MODEL}@1", {"baseline": "audio/net@1"}, InvalidInput, "belong to different teams"),
        (f"{MODEL}@1", {"baseline": "audio/nothing"}, InvalidInput, "belong to different teams"),
        (f"{MODEL}@1", {"baseline": f"{MODEL}@1"}, InvalidInput, "are the same artifact"),
        (f"{MODEL}@1", {"baseline": "vision"}, InvalidInput, "invalid model name"),
        (f"{MODEL}@1", {"baseline": ""}, InvalidInput, "invalid model name"),
        (f"{MODEL}@1", {"baseline": f"{MODEL}@9"}, NotFound, "Version vision/resnet18@9 not found"),
        (f"{MODEL}@1", {"baseline": f"{MODEL}@2", "target": V3}, NotFound, f"has no artifact for {V3}"),
    ]
    for reference, options, error, says in refused:
        with pytest.raises(error) as caught:
            order(registry, reference, **options)
        assert says in str(caught.value)
        assert caught.value.where == "baseline"
    assert registry.sql("SELECT count(*) FROM builds WHERE kind = 'measure'") == jobs


def test_many_who_ask_at_once_share_one_job(registry: Registry) -> None:
    registry.published()
    found: list[str] = []
    threads = [
        threading.Thread(target=lambda: found.extend(job.id for job in order(registry))) for _ in range(6)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (len(found), len(set(found))) == (6, 1)


def test_what_a_job_finds_is_kept_with_the_artifact(registry: Registry) -> None:
    before = registry.published()
    digest = registry.published(registry.submit(checks={"tolerance": 0.01}), code=b"other")
    (job,) = order(registry, f"{MODEL}@2", repeat=2)
    claim = registry.claim(job.id)
    assert (claim.kind, claim.number) == (BuildKind.MEASURE, 2)
    registry.step(claim, "measure", "running")
    beside = a_later_run(claim).measurements
    second = a_later_run(
        claim,
        2,
        11.0,
        baseline=before,
        baseline_measurements=beside,
        pairs=[Pair("latency_p50", "ms", [1.1, 1.2], 2)],
    )
    found = measured(registry, claim, a_later_run(claim), second)
    registry.services.measuring_jobs.record(claim, found, [StepReport("publish", "running", 0.0)])

    view = registry.services.builds.view(job.id)
    assert (view.state, view.artifact, view.attempts[0].outcome) == ("succeeded", None, "succeeded")
    assert {step.name: step.state for step in view.steps} == {"measure": "done", "publish": "done"}
    assert figures(registry, digest) == [
        ("build", "latency_p50", 10.5),
        ("again", "latency_p50", 10.0),
        ("again", "latency_p50", 11.0),
    ]
    assert figures(registry, before) == [("build", "latency_p50", 10.5), ("again", "latency_p50", 10.0)]
    assert registry.sql("SELECT artifact, baseline, ratios FROM measurement_pairs") == [
        (digest, before, [1.1, 1.2])
    ]
    referrers = registry.services.resolve.artifact(digest).referrers
    assert {item.manifest.digest for item in found} <= {item.digest for item in referrers}
    assert registry.sql("SELECT count(*) FROM blob_leases WHERE holder = %s", claim.holder) == [(0,)]
    kept = registry.sql(
        "SELECT count(*) FROM blob_references WHERE owner = %s AND digest = %s",
        f"artifact:{digest}",
        found[0].manifest.digest,
    )
    assert kept == [(1,)]


def test_the_same_result_may_come_twice_and_one_of_a_late_attempt_never(registry: Registry) -> None:
    digest = registry.published()
    (job,) = order(registry)
    late = registry.claim(job.id)
    from_late = measured(registry, late, a_later_run(late))
    registry.services.builds.retry_later(late, StorageUnavailable("no answer"))
    registry.sql("UPDATE builds SET not_before = NULL")
    claim = registry.claim(job.id, "w2")
    with pytest.raises(StaleAttempt):
        registry.services.measuring_jobs.record(late, from_late)
    found = measured(registry, claim, a_later_run(claim))
    registry.services.measuring_jobs.record(claim, found)
    registry.services.measuring_jobs.record(claim, found)
    with pytest.raises(StaleAttempt):
        registry.services.measuring_jobs.record(late, from_late)
    assert len(figures(registry, digest)) == 2
    with pytest.raises(BuildOver, match="has succeeded"):
        registry.services.builds.retry(job.id, Actor("ci"))


def test_a_result_whose_bytes_are_gone_leaves_nothing(registry: Registry) -> None:
    digest = registry.published()
    (job,) = order(registry)
    claim = registry.claim(job.id)
    found = measured(registry, claim, a_later_run(claim))
    registry.sql("UPDATE blobs SET state = 'deleting' WHERE digest = %s", found[0].manifest.digest)
    with pytest.raises(BlobGone):
        registry.services.measuring_jobs.record(claim, found)
    assert registry.services.builds.view(job.id).state == "running"
    assert len(figures(registry, digest)) == 1


def test_a_lost_worker_a_cancel_and_a_retry_are_as_for_builds(registry: Registry) -> None:
    registry.published()
    (job,) = order(registry)
    registry.claim(job.id, "w7")
    registry.silence("w7")
    assert registry.services.maintenance.requeue_lost() == [job.id]
    assert registry.services.builds.view(job.id).attempts[0].outcome == "lost"
    assert registry.services.builds.cancel(job.id, Actor("ci")).state == "cancelled"
    assert registry.jobs(job.id) == []
    assert registry.services.builds.retry(job.id, Actor("ci")).state == "queued"
    assert registry.services.builds.view(job.id).priority == MEASURE_PRIORITY


def test_what_cannot_be_measured_is_refused_with_what_can(registry: Registry) -> None:
    registry.published()
    registry.submit(checks={"tolerance": 0.01})
    refused: list[tuple[str, dict[str, Any], type[Pt2hubError], str]] = [
        (f"{MODEL}@9", {}, NotFound, "Version vision/resnet18@9 not found"),
        ("vision/resnet81", {}, NotFound, "Did you mean vision/resnet18"),
        ("vision", {}, InvalidInput, ""),
        (f"{MODEL}@2", {}, NotReady, "has no artifact yet"),
        (f"{MODEL}@1", {"target": V3}, NotFound, f"It has artifacts for {V4}."),
        (f"{MODEL}@1", {"target": "x" * 300}, NotFound, f"It has artifacts for {V4}."),
        (f"{MODEL}@1", {"repeat": 0}, InvalidInput, "between 1 and 20"),
        (f"{MODEL}@1", {"repeat": 21}, InvalidInput, "between 1 and 20"),
        (f"{MODEL}@1", {"priority": 101}, InvalidInput, "between -100 and 100"),
    ]
    for reference, options, error, says in refused:
        with pytest.raises(error) as caught:
            order(registry, reference, **options)
        assert says in str(caught.value)
    assert registry.sql("SELECT count(*) FROM builds WHERE kind = 'measure'") == [(0,)]


def test_a_target_that_no_worker_offers_is_queued_and_says_so(registry: Registry) -> None:
    registry.published()
    registry.silence("w1")
    (job,) = order(registry)
    assert (job.state, job.position) == ("queued", 1)
    assert "no live worker offers this target" in format_note(job)
    registry.sql("UPDATE builds SET worker_id = NULL")
    registry.sql("DELETE FROM workers")
    (job,) = order(registry)
    assert job.wait == WaitReason("never_offered")


def test_measuring_jobs_are_counted_apart_from_builds(registry: Registry) -> None:
    registry.published()
    builds = registry.services.statistics.snapshot()
    claim = remeasure(registry, f"{MODEL}@1")
    (second,) = order(registry)
    registry.services.builds.fail(registry.claim(second.id), InvalidInput("no figures"))
    for job in (*order(registry), *registry.submit(targets=[GPU]).builds[1:]):
        assert job.state == BuildState.QUEUED
    steps = [StepReport("measure", "done", 0.0, 3.0)]
    registry.services.builds.report(claim, steps, [])

    for _ in range(2):
        now = registry.services.statistics.snapshot()
        assert (now.attempts, now.failures) == (builds.attempts, builds.failures)
        assert (now.successes, now.steps) == (builds.successes, builds.steps)
        assert now.measuring_attempts == {(V4, "succeeded"): 1, (V4, "failed"): 1}
        assert now.measuring_failures == {(V4, "invalid_input"): 1}
        queues = {queue.target: queue for queue in now.queues}
        assert (queues[V4].queued, queues[V4].oldest_seconds, queues[V4].measuring_queued) == (0, 0.0, 1)
        assert (queues[GPU].queued, queues[GPU].measuring_queued) == (1, 0)
        registry.sql("UPDATE build_attempts SET ended_at = ended_at - interval '1 hour'")
        registry.services.statistics.add_up()
    assert registry.sql("SELECT count(*) FROM build_attempts WHERE NOT counted") == [(0,)]


def test_workers_say_which_of_what_they_have_is_measured_again(registry: Registry) -> None:
    registry.published()
    (job,) = order(registry)
    registry.claim(job.id)
    (worker,) = registry.services.workers.workers().workers
    assert [(item.id, item.kind) for item in worker.builds] == [(job.id, "measure")]
    registry.submit(targets=[V3])
    (target,) = [item for item in registry.services.workers.targets() if item.name == V4]
    assert (target.running, target.queued) == (1, 0)
