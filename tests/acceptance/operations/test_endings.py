"""Whoever starts processes ends them: `demo`, `up` and `worker` by signals and by their own or their parent's death."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pt2hub.cli.operations import temporary_server
from support.plane import descendants
from support.running import Up, clean_environ, processes_of, wait_for_none
from support.working import READY_SECONDS, until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.working import Works

NOOP = {"PT2HUB_TOOLCHAIN": "noop", "PT2HUB_ISOLATION": "process"}
PATIENCE = 60.0
_DEMO = [sys.executable, "-m", "pt2hub", "demo"]


@pytest.fixture
def place() -> Iterator[Path]:
    """A directory for temporary files, short enough for a socket; what a test leaves running there is killed."""
    with tempfile.TemporaryDirectory(prefix="e", ignore_cleanup_errors=True) as name:
        yield Path(name)
        for pid in processes_of(Path(name)):
            os.kill(pid, signal.SIGKILL)


def demo(place: Path, **environ: str) -> subprocess.Popen[str]:
    """A demo that runs until its server compiles; everything that it starts is known by its directory."""
    process = subprocess.Popen(
        _DEMO,
        env={**clean_environ(place / "unused"), "TMPDIR": str(place), **environ},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    until(lambda: runs(place, "pt2hub_workers") or process.poll() is not None, PATIENCE)
    assert process.poll() is None, process.communicate()[0]
    return process


def runs(place: Path, words: str) -> bool:
    return any(words in arguments for arguments in processes_of(place).values())


def homes(place: Path) -> list[Path]:
    return list(place.glob("pt2hub-demo-*"))


def test_a_killed_demo_leaves_no_process_the_next_one_removes_its_home_and_one_that_is_ended_its_own(
    place: Path,
) -> None:
    process = demo(place)
    (left,) = homes(place)
    process.kill()
    process.communicate(timeout=PATIENCE)
    assert wait_for_none(place, seconds=PATIENCE) == {}
    assert left.exists(), "there was nobody to remove it"

    second = demo(place)
    (own,) = homes(place)
    assert own != left
    second.send_signal(signal.SIGTERM)
    said = second.communicate(timeout=PATIENCE)[0]
    assert second.returncode == 128 + signal.SIGTERM, said
    assert "Traceback" not in said
    assert processes_of(place) == {}
    assert homes(place) == []


def test_the_home_of_a_trial_that_runs_is_not_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with temporary_server.temporary_home("trial-") as first:
        made = temporary_server.TemporaryServer(first)
        with temporary_server.temporary_home("trial-") as second:
            assert (first.exists(), second.exists()) == (True, True)
        inherits = subprocess.Popen(["sleep", "60"], pass_fds=(made._lock,))
        os.close(made._lock)  # as when the process of the trial is killed
        with temporary_server.temporary_home("trial-"):
            assert first.exists(), "its server still runs"
        inherits.kill()
        inherits.wait()
        with temporary_server.temporary_home("trial-"):
            assert not first.exists()


def test_an_up_that_is_killed_or_ended_leaves_neither_api_nor_worker_nor_database(place: Path) -> None:
    up = Up(place / "home", worker=True, environ=NOOP).wait_ready()
    started = processes_of(place)
    assert all(any(words in line for line in started.values()) for words in ("serve", "_workers", "postgres"))
    up.end(signal.SIGKILL)
    assert wait_for_none(place, seconds=PATIENCE) == {}
    again = Up(place / "home", worker=True, environ=NOOP).wait_ready()
    assert runs(place, "pt2hub_workers")
    assert again.end(signal.SIGHUP) == (0, "")
    assert processes_of(place) == {}


def test_a_worker_that_is_ended_in_a_build_hands_it_back(works: Works) -> None:
    worker = works.noop("--drain-seconds", "0", PT2HUB_NOOP_PAUSES="compile=60")
    build = works.publish(targets=["torch0.0-cpu-x86_64"])
    works.await_step(build, "compile")
    worker.signal(signal.SIGHUP)
    assert worker.wait() == 0, worker.output
    assert "Traceback" not in worker.output
    assert works.outcomes(build) == ["handed_back"]


@pytest.mark.compiles
def test_a_worker_that_is_ended_takes_the_processes_of_its_builds_along(works: Works) -> None:
    codes = {signal.SIGTERM: 0, signal.SIGKILL: -signal.SIGKILL}
    workers = {number: works.start("--drain-seconds", "0", ready=False) for number in codes}
    for number, worker in workers.items():
        worker.await_output("worker ready", READY_SECONDS)
        until(lambda: len(descendants({worker.process.pid})) > 2)  # noqa: B023  # children that wait for a build
        below = descendants({worker.process.pid})
        worker.signal(number)
        assert worker.wait() == codes[number], worker.output
        until(lambda: not [pid for pid in below if lives(pid)], PATIENCE)  # noqa: B023


def lives(pid: int) -> bool:
    """Whether a process does more than wait to be reaped."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def test_a_worker_that_is_told_to_stop_before_it_began_ends_with_0(works: Works) -> None:
    """From the start of its interpreter on: before any handler could stand, and after."""
    codes = []
    for seconds in (0.0, 0.2, 0.5, 0.9):
        worker = works.start(ready=False, PT2HUB_TOOLCHAIN="noop")
        until(lambda: b"pt2hub_workers" in Path(f"/proc/{worker.process.pid}/cmdline").read_bytes())  # noqa: B023
        time.sleep(seconds)
        worker.signal()
        codes.append(worker.wait())
        assert "Traceback" not in worker.output
    assert codes == [0] * 4
