"""Measuring jobs on real workers: what is found, and what becomes of a job whose worker is killed or told to stop."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from support.invariants import settled
from support.plane import Plane, until, used_in_turns

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Plane]:
    """PostgreSQL and the API for all tests of this file."""
    with Plane(tmp_path_factory.mktemp("plane")) as plane:
        yield plane


@pytest.fixture
def plane(shared: Plane) -> Iterator[Plane]:
    """PostgreSQL and the API; workers are the test's."""
    with used_in_turns(shared) as plane:
        yield plane


UNMEASURED = {"measure": {"processes": 0}}
OWN_RUNS = """
    SELECT DISTINCT run FROM measurements WHERE source = 'again' AND starts_with(run, %s) ORDER BY run"""
"""The runs of one job."""


def test_a_version_is_ready_before_it_is_measured_and_its_job_gives_way_to_a_build(plane: Plane) -> None:
    worker = plane.start_worker(PT2HUB_NOOP_PAUSES="measure=2")
    first = plane.submit("measured")
    assert plane.await_final(first) == "succeeded"
    (job,) = until(
        "the job is queued", lambda: plane.client.builds.list(model="crash/measured", kind="measure")
    )
    assert plane.client.versions.get("crash/measured", 1).readiness == "ready"
    plane.await_step(job.id, "measure")

    second = plane.submit("beside", **UNMEASURED)
    assert plane.await_final(second) == "succeeded"

    assert plane.await_final(job.id) == "succeeded"
    assert plane.outcomes(job.id) == ["postponed", "succeeded"]
    (began,) = plane.sql("SELECT started_at FROM build_attempts WHERE build_id = %s AND attempt = 2", job.id)
    (ended,) = plane.sql("SELECT ended_at FROM build_attempts WHERE build_id = %s", second)
    assert ended < began
    runs = plane.sql(OWN_RUNS, f"{job.id}:")
    assert runs == [(f"{job.id}:2:1",)]
    assert plane.end(worker) == 0
    assert settled(plane) == []


def test_a_job_outlives_its_workers_and_ends_when_it_is_cancelled(plane: Plane) -> None:
    first = plane.start_worker(slow="measure=1")
    build = plane.submit("outlived", **UNMEASURED)
    assert plane.await_final(build) == "succeeded"
    argv = [
        sys.executable,
        "-m",
        "pt2hub",
        "measure",
        "crash/outlived@1",
        "--repeat",
        "2",
        "--wait",
        "--json",
    ]
    environ = {**plane.environ, "PT2HUB_TOKEN": plane.token}
    waiting = subprocess.Popen(argv, env=environ, stdout=subprocess.PIPE, text=True)
    (job,) = until(
        "the job is queued", lambda: plane.client.builds.list(model="crash/outlived", kind="measure")
    )
    plane.await_step(job.id, "measure")
    plane.kill(first)
    second = plane.start_worker(slow="measure=600", PT2HUB_SLOW_UNTIL=str(plane.folder / "going"))
    plane.await_step(job.id, "measure", attempt=2)
    (plane.folder / "going").touch()

    document = json.loads(waiting.communicate(timeout=60)[0])
    assert (waiting.returncode, document["builds"][0]["state"]) == (0, "succeeded")
    assert plane.outcomes(job.id) == ["lost", "succeeded"]
    runs = plane.sql(OWN_RUNS, f"{job.id}:")
    assert runs == [(f"{job.id}:2:{number}",) for number in (1, 2)]

    (plane.folder / "going").unlink()
    (cancelled,) = plane.client.performance.measure("crash/outlived")
    plane.await_step(cancelled.id, "measure")
    plane.client.builds.cancel(cancelled.id)
    (plane.folder / "going").touch()
    (last,) = plane.client.performance.measure("crash/outlived")
    assert plane.await_final(last.id) == "succeeded"
    assert plane.outcomes(cancelled.id) == ["cancelled"]
    said = "publish took"  # the last lines come after the end
    until("the log is whole", lambda: any(said in line.text for line in plane.client.builds.logs(last.id)))
    assert plane.end(second) == 0
    assert settled(plane) == []
