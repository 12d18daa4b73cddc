"""Attempts at measuring jobs: what they fetch, measure and keep, and how they end."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from pt2hub.domain.tokens import Actor
from pt2hub.errors import NotFound, WorkerLost
from pt2hub.server.blobs.keys import StorageKey
from pt2hub.server.services.blobs.documents import read_manifest
from pt2hub_workers.builds.noop_toolchain import NoopToolchain
from pt2hub_workers.operations.cancellation import CancellationToken
from pt2hub_workers.operations.device_lock import DeviceLock

if TYPE_CHECKING:
    from pt2hub.domain.digests import Digest
    from pt2hub.wire.responses import BuildView
    from support.attempts import AttemptBench


@pytest.fixture
def artifacts(attempts: AttemptBench) -> list[Digest]:
    """Of two versions of one model."""
    return [built(attempts, checks={"tolerance": tolerance}) for tolerance in (0.01, 0.02)]


def built(attempts: AttemptBench, **changes: Any) -> Digest:
    """The artifact of one more version."""
    version = attempts.submit(**changes)
    attempts.attempt(version)
    digest = attempts.services.builds.view(version.builds[0].id).artifact
    assert digest is not None
    return digest


def order(attempts: AttemptBench, reference: str = "crash/net@2", **options: Any) -> BuildView:
    (job,) = attempts.services.measuring_jobs.measure(reference, by=Actor("ci"), **options).builds
    return job


def log_of(attempts: AttemptBench, job: BuildView) -> str:
    return "\n".join(line.text for line in attempts.services.logs.lines(job.id)[1])


def runs_of(attempts: AttemptBench, artifact: Digest) -> set[str]:
    """The runs that have figures of an artifact."""
    with psycopg.connect(attempts.services.database_url) as connection:
        rows = connection.execute("SELECT DISTINCT run FROM measurements WHERE artifact = %s", (artifact,))
        return {row[0] for row in rows}


def run(attempts: AttemptBench, job: BuildView, token: CancellationToken | None = None) -> BuildView:
    attempts.run(job.id, NoopToolchain(attempts.scratch), token)
    return attempts.services.builds.view(job.id)


def test_a_job_times_the_artifact_beside_the_one_before_it_and_keeps_a_run_of_each_time(
    attempts: AttemptBench, artifacts: list[Digest]
) -> None:
    before, own = artifacts
    built = runs_of(attempts, own)
    done = run(attempts, job := order(attempts, repeat=2))

    assert done.state == "succeeded"
    assert [(step.name, step.state) for step in done.steps] == [
        (name, "done") for name in ("fetch", "measure", "publish")
    ]
    new = {f"{job.id}:1:1", f"{job.id}:1:2"}
    assert runs_of(attempts, own) == built | new
    assert new < runs_of(attempts, before)
    measurements = attempts.services.resolve.artifact(own).measurements
    again = {item.metric for item in measurements if item.source == "again"}
    assert {"latency_p50", "throughput"} <= again
    assert not {"code_bytes", "compile_time"} & again, "nothing was built"
    log = log_of(attempts, job)
    assert f"Benchmark of {own}, baseline {before}" in log
    assert "run 2 of 2" in log
    assert [path.name for path in attempts.scratch.iterdir()] == []


def test_any_two_versions_get_figures_of_the_same_processes(
    attempts: AttemptBench, artifacts: list[Digest]
) -> None:
    first, _ = artifacts
    third = built(attempts, checks={"tolerance": 0.03})
    for after, before, own, other in ((3, 1, third, first), (1, 3, first, third)):
        done = run(attempts, job := order(attempts, f"crash/net@{after}", baseline=f"crash/net@{before}"))
        assert (done.state, done.measures, done.baseline) == ("succeeded", own, other)
        assert f"Benchmark of {own}, baseline {other}" in log_of(attempts, job)
        assert f"{job.id}:1:1" in runs_of(attempts, other)
    found = attempts.services.comparisons.compare("crash/net@1", "crash/net@3")
    assert {item.method for item in found.metrics if item.metric == "latency_p50"} == {"paired"}
    run(attempts, order(attempts))
    found = attempts.services.comparisons.compare("crash/net@2", "crash/net@1")
    assert {item.method for item in found.metrics if item.metric == "latency_p50"} == {"paired"}


def test_an_artifact_with_other_inputs_is_left_out_with_a_word(
    attempts: AttemptBench, artifacts: list[Digest]
) -> None:
    wide = [{"name": "x", "shape": ["batch", 9], "dtype": "float32", "generate": {"normal": {}}}]
    own = built(attempts, inputs=wide)
    done = run(attempts, job := order(attempts, "crash/net@3", baseline="crash/net@1"))
    assert (done.state, done.baseline) == ("succeeded", artifacts[0])
    assert f"Benchmark of {own}, without baseline {artifacts[0]}: the inputs differ: x was" in log_of(
        attempts, job
    )
    assert f"{job.id}:1:1" in runs_of(attempts, own) - runs_of(attempts, artifacts[0])


def test_reindexing_brings_back_what_was_measured_later(
    attempts: AttemptBench, artifacts: list[Digest]
) -> None:
    run(attempts, order(attempts, "crash/net@1"))
    run(attempts, order(attempts, "crash/net@2", repeat=2))
    views = [attempts.services.resolve.artifact(digest) for digest in artifacts]
    report = attempts.services.reindex.reindex()
    assert (report["added"], report["unreadable"]) == (0, {})
    assert [attempts.services.resolve.artifact(digest) for digest in artifacts] == views


def test_an_artifact_whose_bytes_are_gone_fails_the_job_and_says_so(
    attempts: AttemptBench, artifacts: list[Digest]
) -> None:
    storage = attempts.services.storage
    config = read_manifest(storage, artifacts[1]).config.digest
    blobs = attempts.scratch.parent / "blobs"
    (blobs / StorageKey.blob(config).path).unlink()
    with pytest.raises(NotFound, match=config):
        run(attempts, order(attempts))
    with pytest.raises(NotFound, match=config):
        run(attempts, order(attempts, "crash/net@1", baseline="crash/net@2"))


@pytest.mark.usefixtures("artifacts")
def test_a_halt_ends_the_wait_for_the_device(attempts: AttemptBench) -> None:
    token, device = CancellationToken(), DeviceLock(attempts.scratch.parent / "device.lock")
    threading.Timer(0.2, lambda: token.set("cancelled")).start()
    with device.exclusive(threading.Event()), pytest.raises(WorkerLost):
        run(attempts, order(attempts), token)
