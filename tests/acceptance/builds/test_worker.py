"""`pt2hub worker` as a real process: how it starts, refuses to start, is steered and ends."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pt2hub.domain.digests import digest_json
from pt2hub.domain.tokens import Actor
from pt2hub.server.db import migrations, worker_role
from pt2hub.server.db.embedded import EmbeddedPostgres
from support.headers import PLACE
from support.working import WorkerProcess, environ_of, until

if TYPE_CHECKING:
    from support.working import Works

NOOP = "torch0.0-cpu-x86_64"
TEN_MINUTES = 600.0
TINY = "support.tiny_models"
INSIDE = "pt2hub_workers.inside"
INTERFERING: dict[str, tuple[dict[str, Any], str]] = {
    "closing": ({"factory": f"{TINY}:closing"}, "lost its channel to the worker"),
    "muting": ({"factory": f"{TINY}:muting"}, "The model's code closed the channel"),
    "asking": (
        {"factory": f"{TINY}:patching", "kwargs": {"what": f"{INSIDE}.operations.channel:Channel.ask"}},
        f"replaced functions of pt2hub: {INSIDE}.operations.channel.Channel.ask",
    ),
    "keying": (
        {
            "factory": f"{TINY}:patching",
            "kwargs": {"what": f"{INSIDE}.builds.compilation:compute_program_key"},
        },
        f"replaced functions of pt2hub: {INSIDE}.builds.compilation.compute_program_key",
    ),
    "unused": (  # nothing fails for it: it is found at the end
        {"factory": f"{TINY}:patching", "kwargs": {"what": f"{INSIDE}.builds.compilation:_dtypes"}},
        f"replaced functions of pt2hub: {INSIDE}.builds.compilation._dtypes",
    ),
}
"""Models that break their build's process: their source, and what the error says."""


def test_a_drained_worker_hands_back_what_it_cannot_finish_and_finishes_what_it_can(works: Works) -> None:
    patient = works.noop("--drain-seconds", "600", PT2HUB_NOOP_PAUSES="compile=600")
    build = works.publish(targets=[NOOP])
    works.await_step(build, "compile")

    patient.signal(signal.SIGINT)
    until(lambda: works.workers()[0].state == "draining")
    patient.signal(signal.SIGINT)  # a second signal hands back at once

    assert patient.wait(10) == 0
    assert works.outcomes(build) == ["handed_back"]
    assert "Traceback" not in patient.output

    late = works.noop("--drain-seconds", "0.5", PT2HUB_NOOP_PAUSES="compile=600")
    until(lambda: works.at_step(build, "compile", attempt=2))

    late.signal()

    assert late.wait() == 0
    view = works.view(build)
    assert (view.state, view.failures, works.outcomes(build)) == ("queued", 0, ["handed_back"] * 2)
    assert works.jobs(build)[-1][1] == "todo"

    punctual = works.noop("--drain-seconds", "30", PT2HUB_NOOP_PAUSES="compile=1.5")
    until(lambda: works.at_step(build, "compile", attempt=3))

    punctual.signal()
    until(lambda: "draining" in {worker.state for worker in works.workers()})
    later = works.publish(seed=2, targets=[NOOP])

    assert punctual.wait() == 0
    assert (works.view(build).state, works.view(build).attempt) == ("succeeded", 3)
    assert (works.view(later).state, works.view(later).attempt) == ("queued", 0)
    assert {worker.state for worker in works.workers()} == {"left"}


def test_a_worker_does_as_many_builds_at_a_time_as_it_says(works: Works) -> None:
    works.noop("--concurrency", "2", PT2HUB_NOOP_PAUSES="compile=600")
    first, second, third = (works.publish(seed=seed, targets=[NOOP]) for seed in (1, 2, 3))
    for build in (first, second):
        works.await_step(build, "compile")

    (worker,) = works.workers()
    assert {build.id for build in worker.builds} == {first, second}
    assert works.view(third).state == "queued"
    works.services.builds.cancel(first, Actor("test"))
    works.await_step(third, "compile")


@pytest.mark.compiles
def test_a_worker_confines_builds_ends_cancelled_ones_at_once_and_publishes_no_model_that_interferes(
    works: Works,
) -> None:
    rare = {"PT2HUB_HEARTBEAT_SECONDS": "60", "PT2HUB_LOST_WORKER_SECONDS": "600"}
    worker = works.start(**rare)  # nothing but the notification can be the cause of the cancelled build's end
    (registered,) = works.workers()
    (said,) = [line for line in worker.lines if line["event"] == "sandbox profile of models' code"]
    assert registered.isolation == said["document"]["level"] == "sandbox"
    assert registered.isolation_profile == said["profile"] == digest_json(said["document"])
    assert str(PLACE) in said["document"]["readable"]

    factory = {"factory": "support.tiny_models:sleeping", "kwargs": {"note": "/tmp/note"}, "seed": 1}
    build = works.publish(source=factory)
    until(lambda: _sleepers(worker.process.pid))
    (sleeper,) = _sleepers(worker.process.pid)
    namespace = _namespace(sleeper)
    assert namespace != _namespace(os.getpid())
    assert len(_living_in(namespace)) >= 2  # the build's process, too

    began = time.monotonic()
    works.services.builds.cancel(build, Actor("test"))
    until(lambda: not _living_in(namespace), 20)
    took = time.monotonic() - began

    print(f"cancel to the last process's end: {took * 1000:.0f} ms")
    assert took < 5  # some tenths of a second; a collection of the suite's heap takes over one
    assert works.view(build).state == "cancelled"
    assert works.outcomes(build) == ["cancelled"]
    until(lambda: [line for line in works.services.logs.lines(build)[1] if "all its processes" in line.text])

    builds = {name: works.publish(source=source) for name, (source, _) in INTERFERING.items()}
    for name, build in builds.items():
        view = works.await_state(build, "failed", "succeeded")
        error = view.error or {}
        assert (view.state, view.artifact) == ("failed", None), name
        assert error["code"] == "model_interferes", (name, error)
        assert INTERFERING[name][1] in error["message"], (name, error)
        assert error["hint"], name
        assert len(view.attempts) == 1, "it would end the same way again"
    assert works.sql("SELECT count(*) FROM artifacts") == [(0,)]

    worker.signal()
    assert worker.wait() == 0


def test_a_worker_without_a_sandbox_is_refused_by_a_server_that_demands_one(works: Works) -> None:
    works.services.isolation.allow("sandbox")
    worker = works.start("--isolation", "process", ready=False)

    assert worker.wait() == 1
    assert "requires workers to run models' code in a sandbox" in worker.output
    assert "apt-get install bubblewrap" in worker.output
    assert "Traceback" not in worker.output
    assert works.workers() == []


def test_a_machine_that_cannot_confine_says_so_before_anything_else(works: Works) -> None:
    worker = works.start(ready=False, PT2HUB_BWRAP="/bin/false")

    assert worker.wait() == 1
    assert "bubblewrap (/bin/false) cannot create a sandbox" in worker.output
    assert "Traceback" not in worker.output


def test_a_clock_ten_minutes_off_changes_nothing(works: Works) -> None:
    site = works.folder / "site"
    site.mkdir()
    (site / "sitecustomize.py").write_text(
        f"import time\nreal = time.time\ntime.time = lambda: real() + {TEN_MINUTES}\n"
    )
    path = f"{site}{os.pathsep}{works.environ['PYTHONPATH']}"
    quick = {"PT2HUB_HEARTBEAT_SECONDS": "0.3", "PT2HUB_LOST_WORKER_SECONDS": "3"}
    worker = works.noop(PT2HUB_NOOP_PAUSES="compile=4", PYTHONPATH=path, **quick)
    build = works.publish(targets=[NOOP])

    view = works.await_state(build, "succeeded", "failed")

    now = time.time()
    assert (view.state, view.attempt) == ("succeeded", 1)
    assert works.workers()[0].clock_skew == pytest.approx(TEN_MINUTES, abs=5)
    assert all(abs(line.at - now) < 30 for line in works.services.logs.lines(build)[1])
    stamps = works.sql("SELECT abs(extract(epoch FROM now() - started_at)) FROM build_steps")
    assert stamps
    assert all(seconds < 30 for (seconds,) in stamps)
    assert "clock is off" in worker.output


def test_a_worker_on_an_older_schema_says_which_and_what_to_do(tmp_path: Path, database_url: str) -> None:
    worker = WorkerProcess(environ_of(tmp_path, database_url), tmp_path, "--toolchain", "noop")

    assert worker.wait() == 1
    assert "schema is empty; this pt2hub needs revision" in worker.output
    assert "pt2hub admin migrate" in worker.output
    assert "Traceback" not in worker.output


def test_a_worker_on_a_newer_schema_refuses_it(works: Works) -> None:
    works.sql("UPDATE alembic_version SET version_num = '9999_from_the_future'")
    worker = works.start("--toolchain", "noop", ready=False)

    assert worker.wait() == 1
    assert "9999_from_the_future" in worker.output
    assert "Traceback" not in worker.output


@pytest.mark.parametrize(
    ("options", "hint"),
    [
        (("--toolchain", "noop", "--target", "nonsense"), f"Use one of: auto, {NOOP}."),
        (("--target", "torch2.13-cu130-sm90a"), "Use one of: auto, torch"),
    ],
)
def test_a_target_that_the_machine_cannot_be_is_refused_with_what_it_can(
    works: Works, options: tuple[str, ...], hint: str
) -> None:
    worker = works.start(*options, ready=False)

    assert worker.wait() == 1
    assert f"this machine cannot build for '{options[-1]}'" in worker.output or "no-op" in worker.output
    assert hint in worker.output
    assert works.workers() == []


def test_a_worker_waits_for_a_database_that_starts_after_it(tmp_path: Path) -> None:
    database = EmbeddedPostgres(tmp_path / "pg", durable=False)
    with database as started:
        migrations.upgrade(started.url)
        worker_role.ensure(started.url)
    worker = WorkerProcess(environ_of(tmp_path, database.url), tmp_path, "--toolchain", "noop")
    worker.await_output("waiting for the database")
    with database:
        worker.await_output("worker ready")
        worker.signal()
        assert worker.wait() == 0


def test_without_a_database_named_the_one_of_a_running_up_is_found(tmp_path: Path) -> None:
    environ = environ_of(tmp_path, "")
    alone = WorkerProcess(environ, tmp_path, "--toolchain", "noop")
    assert alone.wait() == 1
    assert "no `pt2hub up` runs on" in alone.output

    with EmbeddedPostgres(tmp_path / "home" / "server" / "db", durable=False) as database:
        migrations.upgrade(database.url)
        worker_role.ensure(database.url)
        worker = WorkerProcess(environ, tmp_path, "--toolchain", "noop")
        worker.await_output("worker ready")
        worker.signal()
        assert worker.wait() == 0


def test_a_database_without_its_storage_is_refused(works: Works) -> None:
    worker = works.start("--toolchain", "noop", ready=False, PT2HUB_STORAGE="")

    assert worker.wait() == 1
    assert "needs the server's storage" in worker.output
    assert worker.output.rstrip().endswith("  [bad_configuration]")


def test_the_check_says_whether_a_worker_of_this_machine_is_alive(works: Works) -> None:
    def check() -> tuple[int, str]:
        done = subprocess.run(
            [sys.executable, "-m", "pt2hub", "worker", "--check"],
            env=works.environ,
            capture_output=True,
            text=True,
            check=False,
        )
        return done.returncode, (done.stdout + done.stderr).strip()

    nobody, sentence = check()
    assert (nobody, len(sentence.splitlines())) == (1, 1)
    assert "no worker is alive on" in sentence
    worker = works.noop()
    assert check()[0] == 0
    worker.signal()
    worker.wait()
    assert check()[0] == 1


def test_a_signal_while_it_starts_ends_it_without_a_word(works: Works) -> None:
    worker = works.start(ready=False)  # the real toolchain: it asks torch first, which takes seconds
    until(lambda: len(_children(worker.process.pid)) > 0)
    worker.signal(signal.SIGINT)

    assert worker.wait() == 0
    assert "Traceback" not in worker.output


def _sleepers(worker: int) -> list[int]:
    """Programs that a factory started, as this machine numbers them; inside their sandbox they have other numbers."""
    return [
        pid
        for pid in _below(worker)
        if Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[:2] == [b"sleep", b"600"]
    ]


def _below(pid: int) -> list[int]:
    try:
        children = _children(pid)
    except OSError:  # it has just ended
        return []
    return [found for child in children for found in (child, *_below(child))]


def _namespace(pid: int) -> str:
    return str(Path(f"/proc/{pid}/ns/pid").readlink())


def _living_in(namespace: str) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):  # it has just ended
                state = (entry / "stat").read_text().rpartition(")")[2].split()[0]
                if state != "Z" and _namespace(int(entry.name)) == namespace:
                    found.append(int(entry.name))
    return found


def _children(pid: int) -> list[int]:
    tasks = Path(f"/proc/{pid}/task").glob(
        "*/children"
    )  # a worker's children are started by a thread of its own
    return [int(word) for task in tasks for word in task.read_text().split()]
