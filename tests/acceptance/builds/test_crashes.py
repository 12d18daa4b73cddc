"""Every part of the build plane is killed while it works; each accepted build still ends once, and rightly.

Faults are noticed five times sooner here than by default; `benchmarks/chaos.py` measures the defaults, too.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING

import pytest

from pt2hub.domain.builds import MAX_FAILURES
from pt2hub.errors import Pt2hubError
from support.invariants import settled
from support.plane import PATIENCE, QUICK, Plane, database_template, noop_spec, until, used_in_turns
from support.running import processes_of
from support.workbench import tiny_spec

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

RECOVERY = 30.0
"""Seconds from the end of a fault until its build runs again."""


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The data that each PostgreSQL begins with."""
    return database_template(tmp_path_factory.mktemp("template"))


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory, template: Path) -> Iterator[Plane]:
    """PostgreSQL and the API for all tests of this file, each of which leaves them whole."""
    with Plane(tmp_path_factory.mktemp("plane"), template=template) as plane:
        yield plane


@pytest.fixture
def plane(shared: Plane) -> Iterator[Plane]:
    """PostgreSQL and the API; workers are the test's."""
    with used_in_turns(shared) as plane:
        yield plane


def test_a_build_whose_worker_is_killed_runs_again_elsewhere(plane: Plane) -> None:
    first = plane.start_worker(slow="compile=60")
    build = plane.submit("worker", seed=1)
    plane.await_step(build, "compile")
    plane.start_worker()
    plane.kill(first)
    plane.await_attempt(build, 2, seconds=RECOVERY)

    assert plane.await_final(build) == "succeeded"
    assert plane.outcomes(build) == ["lost", "succeeded"]
    assert settled(plane) == []


def test_a_worker_that_is_killed_after_its_publish_was_committed_has_published(plane: Plane) -> None:
    worker = plane.start_worker(slow="publish:done=60")
    build = plane.submit("published")
    assert plane.await_final(build) == "succeeded"
    plane.kill(worker)
    plane.start_worker()
    again = plane.submit("after")

    assert plane.await_final(again) == "succeeded"
    assert plane.outcomes(build) == ["succeeded"]
    assert settled(plane) == []


def test_a_build_that_takes_every_worker_down_fails_as_lost_and_meets_no_more(plane: Plane) -> None:
    build = plane.submit("poison", seed=2)
    for attempt in range(1, MAX_FAILURES + 1):
        worker = plane.start_worker(slow="compile=60", wait=False)
        plane.await_step(build, "compile", attempt=attempt)
        plane.kill(worker)
    assert plane.await_final(build, seconds=RECOVERY) == "failed"
    plane.start_worker()
    harmless = plane.submit("harmless")

    assert plane.await_final(harmless) == "succeeded"
    view = plane.build(build)
    assert view.error is not None
    assert (view.state, view.attempt, view.error["code"]) == ("failed", MAX_FAILURES, "worker_lost")
    assert plane.outcomes(build) == ["lost"] * MAX_FAILURES
    assert settled(plane) == []


@pytest.mark.parametrize("deaf", [False, True], ids=["that notices", "that notices nothing"])
def test_a_worker_frozen_beyond_its_heartbeat_publishes_nothing_when_it_wakes(
    plane: Plane, *, deaf: bool
) -> None:
    going = plane.folder / f"going-{deaf:d}"
    frozen = plane.start_worker(
        slow="publish=600", PT2HUB_SLOW_UNTIL=str(going), PT2HUB_DEAF="1" if deaf else ""
    )
    build = plane.submit(f"frozen-{deaf:d}")
    plane.await_step(build, "publish")
    other = plane.start_worker()
    plane.freeze(frozen)
    assert plane.await_final(build, seconds=RECOVERY) == "succeeded"
    assert plane.outcomes(build) == ["lost", "succeeded"]
    going.touch()
    plane.thaw(frozen)
    said = (
        '"code": "stale_attempt"' if deaf else '"reason": "overtaken"'
    )  # refused by the database, or halted
    until("the late worker stops", lambda: said in frozen.log)

    plane.end(other)
    again = plane.submit(f"again-{deaf:d}")  # the one that was frozen works on
    assert plane.await_final(again) == "succeeded"
    artifacts = "SELECT build_id, attempt FROM artifacts WHERE build_id IN (%s, %s) ORDER BY created_at"
    assert plane.sql(artifacts, build, again) == [(build, 2), (again, 1)]
    assert settled(plane) == []


def test_submissions_during_which_the_api_is_killed_are_whole_or_nothing(plane: Plane) -> None:
    plane.start_worker()
    before = len(plane.accepted)
    stop = threading.Event()
    refused: list[str] = []

    def submit_many(lane: int) -> None:
        for number in range(10_000):
            if stop.is_set():
                return
            try:
                plane.submit(f"lane{lane}-{number}")
                time.sleep(0.05)
            except Pt2hubError:
                refused.append(f"lane{lane}-{number}")
                time.sleep(0.2)

    lanes = [threading.Thread(target=submit_many, args=[lane]) for lane in range(3)]
    for lane in lanes:
        lane.start()
    for kills in range(1, 3):
        enough = len(plane.accepted) + 8
        until("submissions are taken", lambda: len(plane.accepted) >= enough)  # noqa: B023  # called at once
        plane.kill_api()
        until("one fails", lambda: len(refused) >= kills)  # noqa: B023  # called at once
        plane.start_api()
    stop.set()
    for lane in lanes:
        lane.join()

    for name in refused:  # the answer was lost, or there was none: sending it again is always right
        plane.submit(name)
    assert len(set(plane.accepted)) == len(plane.accepted)
    submitted = """
        FROM builds JOIN versions ON versions.id = version_id JOIN models ON models.id = model_id
        WHERE models.name LIKE 'crash/lane%%' AND"""
    builds = f"SELECT count(*), count(DISTINCT version_id) {submitted} kind = 'build'"
    assert plane.sql(builds) == [(len(plane.accepted) - before,) * 2]
    until("every build is over", lambda: not plane.sql("SELECT 1 FROM builds WHERE finished_at IS NULL"))
    assert plane.sql(f"SELECT DISTINCT state {submitted} true") == [("succeeded",)]
    assert settled(plane) == []


def test_a_publish_goes_on_without_the_api_and_its_client_waits_for_it(plane: Plane) -> None:
    plane.start_worker(slow="publish=2")
    spec = plane.folder / "spec.json"
    spec.write_text(json.dumps(noop_spec("waiting")))
    command = [sys.executable, "-m", "pt2hub", "publish", str(spec), "--wait", "--json"]
    environ = {**plane.environ, "PT2HUB_TOKEN": plane.token}
    client = subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    named = """
        SELECT builds.id FROM builds JOIN versions ON versions.id = version_id JOIN models ON models.id = model_id
        WHERE models.name = 'crash/waiting'"""
    build = str(until("the build is there", lambda: plane.sql(named))[0][0])
    plane.accepted.append(build)
    plane.await_step(build, "publish")
    plane.kill_api()
    assert plane.await_final(build) == "succeeded"
    assert client.poll() is None
    plane.start_api()
    out, err = client.communicate(timeout=PATIENCE)

    assert client.returncode == 0, err
    assert json.loads(out)["builds"][0]["state"] == "succeeded"
    assert plane.outcomes(build) == ["succeeded"]
    assert settled(plane) == []


def test_a_build_outlives_its_database_and_loses_no_work(plane: Plane) -> None:
    plane.start_worker(slow="compile=4")
    build = plane.submit("database", seed=4)
    plane.await_step(build, "compile")
    plane.start_worker()  # nobody may take the build for lost because the database was away
    plane.kill_database()
    time.sleep(2 * float(QUICK["PT2HUB_LOST_WORKER_SECONDS"]))
    plane.start_database()

    assert plane.await_final(build) == "succeeded"
    assert plane.outcomes(build) == ["succeeded"]
    until("the API answers again", plane.answers)
    after = plane.submit("after")
    assert plane.await_final(after, seconds=RECOVERY) == "succeeded"
    assert settled(plane) == []


def test_an_orderly_end_hands_a_build_back_at_once(plane: Plane) -> None:
    leaving = plane.start_worker(PT2HUB_NOOP_PAUSES="compile=600", PT2HUB_DRAIN_SECONDS="0.5")
    build = plane.submit("handed-back", seed=5)
    plane.await_step(build, "compile")
    plane.start_worker()
    plane.end(leaving)

    assert plane.await_final(build, seconds=RECOVERY) == "succeeded"
    assert plane.outcomes(build) == ["handed_back", "succeeded"]
    assert settled(plane) == []


@pytest.mark.compiles
def test_a_real_compile_outlives_the_death_of_its_child_and_of_its_worker(
    tmp_path: Path, template: Path
) -> None:
    patient = {
        "PT2HUB_HEARTBEAT_SECONDS": "1",
        "PT2HUB_LOST_WORKER_SECONDS": "8",
    }  # a compile takes all cores
    settings = {**patient, "PT2HUB_TOOLCHAIN": "aoti"}
    with Plane(tmp_path, settings=settings, template=template) as plane:
        first = plane.start_worker()
        version = plane.client.publish(tiny_spec(targets=["auto"], measure={"processes": 0}))
        build = version.builds[0].id
        plane.accepted.append(build)
        plane.await_step(build, "compile")
        (child,) = (
            pid
            for pid, arguments in processes_of(plane.folder).items()
            if arguments.strip().endswith("pt2hub_workers.inside.child build") and pid in plane.below(first)
        )
        plane.kill_pid(child)
        plane.await_step(build, "compile", attempt=2)
        plane.kill(first)  # with a compiler below it, which must not live on
        plane.start_worker()
        assert plane.await_final(build, seconds=4 * PATIENCE) == "succeeded"

        assert plane.outcomes(build) == ["retried", "lost", "succeeded"]
        assert settled(plane) == []
