"""The dialogue with children that misbehave; real processes, none of them with torch."""

from __future__ import annotations

import errno
import os
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from pt2hub_workers.children import child as children
from pt2hub_workers.children.child import Child, ChildDied, ChildHung
from pt2hub_workers.children.pool import Pool
from pt2hub_workers.operations.cancellation import CancellationToken, Cancelled
from pt2hub_workers.operations.device_lock import DeviceLock
from pt2hub_workers.sandbox import process_start as starting
from pt2hub_workers.sandbox.workspaces import Workspaces
from support.scripted import CHANNEL, JOB, READY, Script
from support.workbench import child_environ, launcher_of
from support.working import until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from pt2hub_workers.sandbox import Isolation, Launcher, Started
    from pt2hub_workers.sandbox.workspaces import Workspace

SECONDS = 20.0


def script(statements: str, level: Isolation = "process") -> Launcher:
    """What starts children that run the given statements in place of pt2hub's own."""
    return Script(launcher_of(level, {}), statements)  # type: ignore[return-value]  # as much of one as a child needs


@pytest.fixture
def child_that() -> Iterator[Callable[[str], Child]]:
    """Starts a child that runs the given statements."""
    made: list[Child] = []

    def start(statements: str) -> Child:
        made.append(Child("artifact", script(statements), environ={}))
        return made[-1]

    yield start
    for child in made:
        child.close()


def _work(child: Child, seconds: float = SECONDS) -> list[str]:
    printed: list[str] = []
    child.work({}, on_event=print, on_output=printed.append, seconds=seconds, token=CancellationToken())
    return printed


def test_a_child_killed_before_it_reads_its_job_is_reported_by_its_signal(
    child_that: Callable[[str], Child],
) -> None:
    with pytest.raises(ChildDied) as caught:
        _work(child_that("time.sleep(0.5); os.kill(os.getpid(), signal.SIGKILL)"))

    assert caught.value.signal_name == "SIGKILL"


def test_a_dead_child_is_noticed_although_a_process_it_forked_holds_the_channel(
    child_that: Callable[[str], Child],
) -> None:
    started, printed = time.monotonic(), list[str]()
    child = child_that(
        f"os.read({CHANNEL}, 9)\n"  # what it prints before its job comes is ignored
        "os.fork() or time.sleep(60)\nprint('last words', flush=True)\nos.kill(os.getpid(), signal.SIGABRT)"
    )

    with pytest.raises(ChildDied) as caught:
        child.work({}, on_event=print, on_output=printed.append, seconds=SECONDS, token=CancellationToken())

    assert caught.value.signal_name == "SIGABRT"
    assert printed == ["last words"]
    assert time.monotonic() - started < SECONDS / 2


def test_a_child_that_closes_its_channel_and_lives_on_is_ended(
    child_that: Callable[[str], Child], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(starting, "EXIT_SECONDS", 0.5)
    child = child_that(f"os.read({CHANNEL}, 9); os.close({CHANNEL}); time.sleep(60)")

    with pytest.raises(ChildDied) as caught:
        _work(child)

    assert not child.alive
    assert not caught.value.from_outside  # it was us: another attempt would end the same way
    assert "did not end and was killed" in str(caught.value)


def test_a_child_that_never_reads_what_it_is_sent_holds_its_slot_for_a_while_only(
    child_that: Callable[[str], Child], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(starting, "EXIT_SECONDS", 0.1)
    monkeypatch.setattr(starting, "SEND_SECONDS", 1)
    child = child_that("time.sleep(60)")

    with pytest.raises(ChildDied):
        child.work(
            {"long": "x" * (8 << 20)},
            on_event=print,
            on_output=print,
            seconds=SECONDS,
            token=CancellationToken(),
        )

    assert not child.alive


def test_what_a_process_that_left_the_group_prints_later_reaches_nobody(
    child_that: Callable[[str], Child], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(children, "LAST_WORDS_SECONDS", 0.2)
    printed = list[str]()
    child = child_that(
        "if os.fork() == 0:\n"
        "    os.setsid()\n"
        "    for _ in range(30): print('still here', flush=True); time.sleep(0.05)\n"
        "    os._exit(0)\n"
        "time.sleep(0.2); os.abort()"
    )

    with pytest.raises(ChildDied):
        child.work({}, on_event=print, on_output=printed.append, seconds=SECONDS, token=CancellationToken())

    heard = len(printed)
    assert heard > 0
    time.sleep(0.3)
    assert len(printed) == heard
    mine = [thread for thread in threading.enumerate() if thread.name == f"gate-{child.pid}"]
    assert (
        len(mine) <= 1
    )  # who reads on, where no control group ended what prints; who waits for messages has ended


def test_a_silent_child_is_ended_at_its_time_limit(child_that: Callable[[str], Child]) -> None:
    child = child_that("time.sleep(60)")

    with pytest.raises(ChildHung):
        _work(child, seconds=0.5)

    assert not child.alive


def test_a_halt_kills_the_child_although_its_parent_is_busy_with_a_question(
    child_that: Callable[[str], Child],
) -> None:
    asks = '{"event": "ask", "question": "weights"}'
    child = child_that(f"os.write({CHANNEL}, b'{asks}\\n'); time.sleep(60)")
    token, dead_meanwhile = CancellationToken(), threading.Event()

    def answer(_: object) -> None:
        token.set("cancelled")
        until(lambda: not child.alive, SECONDS)
        dead_meanwhile.set()

    with pytest.raises(Cancelled):
        child.work({}, on_event=answer, on_output=print, seconds=2 * SECONDS, token=token)

    assert dead_meanwhile.is_set()


def test_a_halt_ends_the_wait_for_a_silent_child_at_once(child_that: Callable[[str], Child]) -> None:
    child, token = child_that("time.sleep(60)"), CancellationToken()
    halted = list[float]()

    def stop() -> None:
        halted.append(time.monotonic())
        token.set("stopping")

    threading.Timer(0.3, stop).start()
    with pytest.raises(Cancelled):
        child.work({}, on_event=print, on_output=print, seconds=SECONDS, token=token)

    assert time.monotonic() - halted[0] < SECONDS / 4
    assert not child.alive


def test_waiting_for_the_device_is_no_time_of_the_build(
    child_that: Callable[[str], Child], monkeypatch: pytest.MonkeyPatch
) -> None:
    asks, says = (
        '{"event": "ask", "question": "device"}',
        '{"event": "result", "value": 7}',
    )
    child = child_that(
        f"{JOB}; os.write({CHANNEL}, b'{asks}\\n')\n"
        f"os.read({CHANNEL}, 999); os.write({CHANNEL}, b'{says}\\n'); time.sleep(60)"
    )

    ahead = [0.0]
    clock = SimpleNamespace(monotonic=lambda: time.monotonic() + ahead[0])
    monkeypatch.setattr(children, "time", clock)

    def wait(_: object) -> None:
        ahead[0] += 10 * SECONDS

    assert child.work({}, on_event=wait, on_output=print, seconds=SECONDS, token=CancellationToken()) == 7


def test_asking_for_the_device_again_and_again_is_time_of_the_build(
    child_that: Callable[[str], Child],
) -> None:
    asks = '{"event": "ask", "question": "device"}'
    child = child_that(f"while True: os.write({CHANNEL}, b'{asks}\\n'); os.read({CHANNEL}, 999)")
    began = time.monotonic()

    with pytest.raises(ChildHung):
        child.work(
            {}, on_event=lambda _: time.sleep(0.05), on_output=print, seconds=1.0, token=CancellationToken()
        )

    assert time.monotonic() - began < SECONDS / 2


@pytest.mark.parametrize(("number", "outside"), [("SIGKILL", True), ("SIGTERM", True), ("SIGSEGV", False)])
def test_a_signal_that_no_fault_raises_came_from_outside(
    child_that: Callable[[str], Child], number: str, *, outside: bool
) -> None:
    with pytest.raises(ChildDied) as caught:
        _work(child_that(f"os.kill(os.getpid(), signal.{number})"))

    assert (caught.value.signal_name, caught.value.from_outside) == (number, outside)


@pytest.mark.parametrize("level", ["process", "sandbox"])
def test_children_are_not_started_while_someone_measures(level: Isolation, tmp_path: Path) -> None:
    launcher, device = script(f"{READY}; time.sleep(60)", level), DeviceLock(tmp_path / "device")
    workspaces = Workspaces(tmp_path / "rooms", inside=launcher.inside)
    pool = Pool(launcher, workspaces, {}, device=device, spares=2)
    with device.exclusive(threading.Event()):
        pool.refill()
        assert not pool.wait_warm(0.5)
        own = pool.take("build")  # what cannot wait is started at once
        own.close()
    assert pool.wait_warm(SECONDS)
    first, second = pool.take("artifact"), pool.take("artifact")
    assert (first.warm, second.warm, first is second) == (True, True, False)
    assert first.workspace.host != second.workspace.host
    pool.close()
    first.close()
    second.close()
    assert list((tmp_path / "rooms").iterdir()) == []


def test_a_waiting_child_without_a_sandbox_holds_no_slot_so_that_builds_keep_their_path(
    tmp_path: Path,
) -> None:
    launcher, device = script(f"{READY}; time.sleep(60)"), DeviceLock(tmp_path / "device")
    pool = Pool(launcher, Workspaces(tmp_path / "rooms", inside=None), {}, device=device)
    pool.refill()
    assert pool.wait_warm(SECONDS)
    paths = []
    for _ in range(2):
        child = pool.take("build")
        paths.append(child.workspace.host)
        child.close()
    pool.close()
    assert paths == [tmp_path / "rooms" / "build-0"] * 2


@dataclass(frozen=True)
class _Failing(Script):
    """Starts one child, and no second."""

    started: list[str]

    def start(self, role: str, *, environ: Mapping[str, str], workspace: Workspace | None) -> Started:
        """Starts one."""
        self.started.append(role)
        if len(self.started) > 1:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return super().start(role, environ=environ, workspace=workspace)


def test_a_child_that_could_be_started_is_kept_though_the_next_one_could_not(tmp_path: Path) -> None:
    launcher: Any = _Failing(launcher_of("sandbox", {}), f"{READY}; time.sleep(60)", [])
    pool = Pool(
        launcher,
        Workspaces(tmp_path / "rooms", inside=launcher.inside),
        {},
        device=DeviceLock(tmp_path / "device"),
        spares=2,
    )
    pool.refill()
    until(lambda: len(launcher.started) == 2 and len(list((tmp_path / "rooms").glob("*.lock"))) == 1)

    first = pool.take("build")

    assert launcher.started == ["build", "build"]
    first.close()
    pool.close()
    assert list((tmp_path / "rooms").iterdir()) == []


@dataclass(frozen=True)
class _Noting(Script):
    """Notes the environment of what it starts."""

    environs: dict[str, Any]

    def start(self, role: str, *, environ: Mapping[str, str], workspace: Workspace | None) -> Started:
        """Starts one."""
        self.environs[role] = environ
        return super().start(role, environ=environ, workspace=workspace)


def test_threads_that_wait_leave_the_cores_to_others(tmp_path: Path) -> None:
    launcher: Any = _Noting(launcher_of("process", {}), f"{READY}; time.sleep(60)", {})
    workspaces, device = Workspaces(tmp_path / "rooms", inside=None), DeviceLock(tmp_path / "device")
    for given in ({}, {"GOMP_SPINCOUNT": "7"}):
        pool = Pool(launcher, workspaces, given, device=device)
        for role in ("build", "artifact", "measure"):
            pool.take(role).close()
        spins = {role: environ.get("GOMP_SPINCOUNT") for role, environ in launcher.environs.items()}
        assert spins == dict.fromkeys(("build", "artifact", "measure"), given.get("GOMP_SPINCOUNT", "1000"))


def test_a_pool_that_is_closed_while_it_waits_for_the_device_starts_nothing(tmp_path: Path) -> None:
    device = DeviceLock(tmp_path / "device")
    pool = Pool(script(READY), Workspaces(tmp_path / "rooms", inside=None), {}, device=device)
    with device.exclusive(threading.Event()):
        pool.refill()
        pool.close()
    assert not pool.wait_warm(0.3)


def test_a_judge_never_loads_torch(tmp_path: Path) -> None:
    launcher = launcher_of("process", {})
    workspace = Workspaces(tmp_path, inside=None).open("verify")
    judge = Child("verify", launcher, environ=child_environ(), workspace=workspace)
    assert judge.wait_warm(SECONDS)
    mapped = (Path("/proc") / str(judge.pid) / "maps").read_text()
    judge.close()

    assert "numpy" in mapped
    assert "libtorch" not in mapped
