"""The device's lock among real processes."""

from __future__ import annotations

import itertools
import os
import signal
import stat
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pt2hub.errors import BadConfiguration, WorkerLost
from pt2hub_workers.operations import device_lock as device_module
from pt2hub_workers.operations.device_lock import POLL_SECONDS, DeviceLock, device_path

if TYPE_CHECKING:
    from collections.abc import Iterator

_PRELUDE = """
import sys, threading, time
from pathlib import Path
from pt2hub_workers.operations.device_lock import DeviceLock
device, halt = DeviceLock(Path(sys.argv[1])), threading.Event()
def say(word):
    print(f"{word} {time.monotonic():.6f}", flush=True)
"""
_HOLDER = """
with getattr(device, sys.argv[2])(halt):
    say("held")
    sys.stdin.read()
"""
_SHARING = """
end = time.monotonic() + 60
while time.monotonic() < end:
    with device.shared(halt):
        say("shared")
        time.sleep(0.03)
"""
_ATTEMPT = """
say("ready")
sys.stdin.readline()
for _ in range(6):
    with device.shared(halt) as hold:
        say("shared")
        time.sleep(0.002)
        hold.become("exclusive")
        say("exclusive")
        time.sleep(0.004)
        say("left")
        hold.become("shared")
        say("shared")
        time.sleep(0.002)
        say("left")
"""


class _Process:
    """A process that uses a device and says when."""

    def __init__(self, path: Path, program: str, *arguments: str) -> None:
        self._popen = subprocess.Popen(
            [sys.executable, "-c", _PRELUDE + program, str(path), *arguments],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def heard(self) -> tuple[str, float]:
        """The next thing it says, and when."""
        assert self._popen.stdout is not None
        word, moment = self._popen.stdout.readline().split()
        return word, float(moment)

    def go(self) -> None:
        """Lets an attempt begin."""
        assert self._popen.stdin is not None
        self._popen.stdin.write("\n")
        self._popen.stdin.flush()

    def rest(self) -> list[tuple[str, float]]:
        """Everything it says until it ends well."""
        output, _ = self._popen.communicate(timeout=60)
        assert self._popen.returncode == 0
        return [(word, float(moment)) for word, moment in map(str.split, output.splitlines())]

    def let_go(self) -> None:
        """Ends a holder."""
        self._popen.communicate(timeout=20)

    @property
    def pid(self) -> int:
        """Its number."""
        return self._popen.pid

    def signal(self, number: signal.Signals) -> None:
        """Stops it, or lets it go on."""
        self._popen.send_signal(number)

    def kill(self) -> None:
        """Ends it without a chance to give anything up."""
        self._popen.send_signal(signal.SIGKILL)
        self._popen.communicate(timeout=20)


@contextmanager
def _running(path: Path, program: str, *arguments: str) -> Iterator[_Process]:
    process = _Process(path, program, *arguments)
    try:
        yield process
    finally:
        process.kill()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A lock's file of its own."""
    return tmp_path / "device.lock"


def test_what_is_timed_never_overlaps_anything_and_attempts_that_change_modes_never_block_each_other(
    path: Path,
) -> None:
    DeviceLock(path)
    processes = [_Process(path, _ATTEMPT) for _ in range(4)]
    for process in processes:
        assert process.heard()[0] == "ready"
    for process in processes:
        process.go()

    spans = [span for process in processes for span in _spans(process.rest())]

    alone = [span for span in spans if span[0] == "exclusive"]
    assert len(alone) == 4 * 6
    for mine in alone:
        others = [other for other in spans if other is not mine]
        assert not [other for other in others if other[1] < mine[2] and mine[1] < other[2]]


def _spans(said: list[tuple[str, float]]) -> list[tuple[str, float, float]]:
    """What was held, from when to when; a share that is followed by a wait counts as an instant."""
    found = []
    for (word, begin), (following, end) in itertools.pairwise(said):
        if word != "left":
            found.append((word, begin, end if following == "left" else begin))
    return found


def test_who_waits_to_be_alone_is_not_starved_by_ever_new_shares(path: Path) -> None:
    with _running(path, _SHARING) as first, _running(path, _SHARING) as second:
        first.heard()
        second.heard()
        began = time.monotonic()

        with DeviceLock(path).exclusive(threading.Event()) as hold:
            assert hold.mode == "exclusive"

        assert time.monotonic() - began < 5.0


@pytest.mark.parametrize("mode", ["shared", "exclusive"])
def test_a_killed_process_holds_nothing(path: Path, mode: str) -> None:
    with _running(path, _HOLDER, mode) as holder:
        holder.heard()
        threading.Timer(0.1, holder.signal, [signal.SIGKILL]).start()
        began = time.monotonic()

        with DeviceLock(path).exclusive(threading.Event()):
            assert time.monotonic() - began < 5.0


@pytest.mark.parametrize(
    ("theirs", "mine"), [("shared", "exclusive"), ("exclusive", "shared"), ("exclusive", "exclusive")]
)
def test_a_stopped_process_is_named_and_does_not_keep_the_device_for_ever(
    path: Path, monkeypatch: pytest.MonkeyPatch, theirs: str, mine: str
) -> None:
    monkeypatch.setattr(device_module, "POLLS_PER_CHECK", 5)
    told = list[str]()
    with _running(path, _HOLDER, theirs) as holder:
        holder.heard()

        def stop(user: str) -> None:
            told.append(user)
            if len(told) == 1:
                holder.signal(signal.SIGSTOP)

        with getattr(DeviceLock(path), mine)(threading.Event(), stop) as hold:
            assert told == [f"process {holder.pid} uses it", f"process {holder.pid} (stopped) uses it"]
            holder.signal(signal.SIGCONT)
            holder.let_go()  # what it gives up then is no more than its own
            with _running(path, _HOLDER, "shared") as later:
                assert hold.mode == mine
                if mine == "exclusive":
                    before = time.monotonic()
                    threading.Timer(0.2, hold.release).start()
                    assert later.heard()[1] > before + 0.1


def test_one_living_holder_is_waited_for_whoever_else_is_stopped(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(device_module, "POLLS_PER_CHECK", 2)
    monkeypatch.setattr(device_module, "STOPPED_CHECKS", 2)
    with _running(path, _HOLDER, "shared") as holder, _running(path, _HOLDER, "shared") as other:
        holder.heard()
        other.heard()
        holder.signal(signal.SIGSTOP)
        began = time.monotonic()
        letting = threading.Timer(0.5, other.let_go)
        letting.start()

        with DeviceLock(path).exclusive(threading.Event()):
            assert time.monotonic() - began > 0.5
        letting.join()  # the process ends some time after it has let go


def test_a_halt_ends_the_wait_within_a_moment_and_nothing_is_held_then(path: Path) -> None:
    device, token = DeviceLock(path), threading.Event()
    with _running(path, _HOLDER, "exclusive") as holder:
        holder.heard()
        threading.Timer(0.1, token.set).start()
        began = time.monotonic()
        with pytest.raises(WorkerLost, match="while it waited for the device"), device.shared(token):
            pass
        assert time.monotonic() - began < 5.0
        holder.let_go()
    with device.exclusive(threading.Event()):
        pass


def test_a_halt_in_the_middle_of_a_change_leaves_the_device_to_others(path: Path) -> None:
    device, token = DeviceLock(path), threading.Event()
    with _running(path, _HOLDER, "shared") as holder:
        holder.heard()
        with device.shared(token) as hold:
            threading.Timer(0.1, token.set).start()
            with pytest.raises(WorkerLost):
                hold.become("exclusive")
            assert hold.mode is None
            with device.shared(threading.Event()):
                pass


def test_threads_of_one_worker_exclude_each_other_as_processes_do(path: Path) -> None:
    device, inside, most = DeviceLock(path), 0, 0

    def slot() -> None:
        nonlocal inside, most
        for _ in range(3):
            with device.exclusive(threading.Event()):
                inside += 1
                most = max(most, inside)
                time.sleep(0.002)
                inside -= 1

    threads = [threading.Thread(target=slot) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == 1


def test_a_free_device_costs_next_to_nothing(path: Path) -> None:
    device, token, took = DeviceLock(path), threading.Event(), list[float]()
    for _ in range(100):
        began = time.perf_counter()
        with device.shared(token) as hold:
            hold.become("exclusive")
        took.append(time.perf_counter() - began)
    assert statistics.median(took) < POLL_SECONDS / 4  # it takes some 50 microseconds


def test_workers_of_other_users_may_take_the_same_lock(path: Path) -> None:
    before = os.umask(0o077)
    try:
        DeviceLock(path)
    finally:
        os.umask(before)
    for file in path.parent.iterdir():
        assert stat.S_IMODE(file.stat().st_mode) == 0o666
    assert len(list(path.parent.iterdir())) == 2


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")
def test_workers_of_two_users_exclude_each_other() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o1777)
        path = folder / "device.lock"
        program = "import os; os.setuid(65534); say('came')" + _HOLDER
        with (
            DeviceLock(path).exclusive(threading.Event()) as hold,
            _running(path, program, "shared") as other,
        ):
            assert other.heard()[0] == "came"
            time.sleep(0.1)
            left = time.monotonic()
            hold.release()
            word, moment = other.heard()
            assert word == "held"
            assert moment >= left
            other.let_go()


def test_a_lock_that_is_a_link_or_cannot_be_opened_is_refused_by_name(tmp_path: Path) -> None:
    link = tmp_path / "link.lock"
    link.symlink_to(tmp_path / "elsewhere")
    for path in (link, tmp_path / "missing" / "device.lock", tmp_path):
        with pytest.raises(BadConfiguration) as caught:
            DeviceLock(path)
        assert caught.value.where == str(path)
    assert not (tmp_path / "elsewhere").exists()


def test_each_device_of_a_machine_has_a_lock_of_its_own() -> None:
    assert device_path("cpu").name == "pt2hub-device-cpu.lock"
    assert device_path("GPU-6c1e/../x").name == "pt2hub-device-GPU-6c1e----x.lock"


_YIELDING = """
say("ready")
sys.stdin.readline()
with device.shared(halt, yields=True) as hold:
    for _ in range(3):
        hold.become("exclusive")
        say("exclusive")
        time.sleep(0.3)
        say("left")
        hold.become("shared")
"""
_BUILD = """
say("ready")
sys.stdin.readline()
say("waits")
with getattr(device, sys.argv[2])(halt):
    say("held")
    time.sleep(0.2)
    say("gone")
"""


@pytest.mark.parametrize("mode", ["shared", "exclusive"])
def test_a_build_that_waits_has_the_device_before_the_next_timed_block(path: Path, mode: str) -> None:
    with _running(path, _YIELDING) as benchmark, _running(path, _BUILD, mode) as build:
        assert [benchmark.heard()[0], build.heard()[0]] == ["ready", "ready"]
        benchmark.go()
        assert benchmark.heard()[0] == "exclusive"
        build.go()
        told = sorted([*benchmark.rest(), *build.rest()], key=lambda said: said[1])
    words = [word for word, _ in told]
    # The first block ends, the build has the device, and only then the second block begins.
    assert words[:4] == ["waits", "left", "held", "gone"]
    assert words[4:] == ["exclusive", "left"] * 2


def test_who_yields_waits_behind_nobody_at_the_turnstile_and_keeps_nobody_out(path: Path) -> None:
    device, token = DeviceLock(path), threading.Event()
    begun = threading.Event()

    def benchmark() -> None:
        with device.shared(token, yields=True) as hold:
            begun.set()
            hold.become("exclusive")
            hold.release()

    with device.shared(token):
        waiting = threading.Thread(target=benchmark)
        waiting.start()
        assert begun.wait(5)
        time.sleep(5 * POLL_SECONDS)
        began = time.monotonic()
        with device.shared(token):  # who asks for all of the device at the turnstile would keep this one out
            assert time.monotonic() - began < 5.0
        assert waiting.is_alive()
    waiting.join(5)
    assert not waiting.is_alive()


def test_a_halt_ends_the_wait_of_who_yields(path: Path) -> None:
    device, token = DeviceLock(path), threading.Event()
    threading.Timer(0.2, token.set).start()
    with (
        device.shared(threading.Event()),
        device.shared(token, yields=True) as hold,
        pytest.raises(WorkerLost),
    ):
        hold.become("exclusive")
