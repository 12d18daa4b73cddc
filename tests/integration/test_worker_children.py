"""The dialogue with children that misbehave; real processes, none of them with torch."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING

import pytest

from pt2hub_workers import children, sandbox
from pt2hub_workers.children import Child, ChildDied, ChildHung
from pt2hub_workers.device import Device
from pt2hub_workers.halting import Halt, Halted
from pt2hub_workers.inside.channel import CHANNEL_FD
from pt2hub_workers.pool import Pool

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

CHANNEL = f"int(os.environ['{CHANNEL_FD}'])"
SECONDS = 20.0
READY = f'os.write({CHANNEL}, b\'{{"event": "ready"}}\\n\'); time.sleep(60)'
"""A child that is warm at once."""


@pytest.fixture
def child_that(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Child]:
    """Starts a child that runs the given statements in place of pt2hub's own."""

    def start(statements: str) -> Child:
        popen = subprocess.Popen

        def other(command: list[str], **options: object) -> subprocess.Popen[bytes]:
            assert command[1:3] == ["-m", "pt2hub_workers.inside.child"]
            program = f"import os, signal, time\n{statements}"
            return popen([sys.executable, "-c", program], **options)  # type: ignore[call-overload,no-any-return]  # the same options

        monkeypatch.setattr(sandbox.subprocess, "Popen", other)
        return Child("gate", {})

    return start


def _work(child: Child, seconds: float = SECONDS) -> list[str]:
    printed: list[str] = []
    child.work({}, on_event=print, on_output=printed.append, seconds=seconds, halt=Halt())
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
        "os.fork() or time.sleep(60)\nprint('last words', flush=True)\nos.kill(os.getpid(), signal.SIGABRT)"
    )

    with pytest.raises(ChildDied) as caught:
        child.work({}, on_event=print, on_output=printed.append, seconds=SECONDS, halt=Halt())

    assert caught.value.signal_name == "SIGABRT"
    assert printed == ["last words"]
    assert time.monotonic() - started < SECONDS / 2


def test_a_child_that_closes_its_channel_and_lives_on_is_ended(
    child_that: Callable[[str], Child], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sandbox, "EXIT_SECONDS", 0.5)
    child = child_that(f"os.read({CHANNEL}, 9); os.close({CHANNEL}); time.sleep(60)")

    with pytest.raises(ChildDied) as caught:
        _work(child)

    assert not child.alive
    assert not caught.value.from_outside  # it was us: another attempt would end the same way
    assert "lived on and was killed" in str(caught.value)


def test_a_child_that_never_reads_what_it_is_sent_holds_its_slot_for_a_while_only(
    child_that: Callable[[str], Child], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sandbox, "EXIT_SECONDS", 0.1)
    monkeypatch.setattr(sandbox, "SEND_SECONDS", 1)
    child = child_that("time.sleep(60)")

    with pytest.raises(ChildDied):
        child.work({"long": "x" * (8 << 20)}, on_event=print, on_output=print, seconds=SECONDS, halt=Halt())

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
        child.work({}, on_event=print, on_output=printed.append, seconds=SECONDS, halt=Halt())

    heard = len(printed)
    assert heard > 0
    time.sleep(0.3)
    assert len(printed) == heard
    mine = [thread for thread in threading.enumerate() if thread.name == f"gate-{child.pid}"]
    assert len(mine) == 1  # who reads on; who waits for messages has ended


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
    halt, dead_meanwhile = Halt(), list[bool]()

    def answer(_: object) -> None:
        halt.set("cancelled")
        time.sleep(0.3)
        dead_meanwhile.append(not child.alive)

    with pytest.raises(Halted):
        child.work({}, on_event=answer, on_output=print, seconds=SECONDS, halt=halt)

    assert dead_meanwhile == [True]


def test_a_halt_ends_the_wait_for_a_silent_child_at_once(child_that: Callable[[str], Child]) -> None:
    child, halt = child_that("time.sleep(60)"), Halt()
    halted = list[float]()

    def stop() -> None:
        halted.append(time.monotonic())
        halt.set("stopping")

    threading.Timer(0.3, stop).start()
    with pytest.raises(Halted):
        child.work({}, on_event=print, on_output=print, seconds=SECONDS, halt=halt)

    assert time.monotonic() - halted[0] < 0.15
    assert not child.alive


def test_waiting_for_the_device_is_no_time_of_the_build(child_that: Callable[[str], Child]) -> None:
    asks, says = (
        '{"event": "ask", "question": "device"}',
        '{"event": "result", "value": 7}',
    )
    child = child_that(
        f"os.write({CHANNEL}, b'{asks}\\n'); os.read({CHANNEL}, 999)\n"
        f"os.read({CHANNEL}, 999); os.write({CHANNEL}, b'{says}\\n'); time.sleep(60)"
    )

    def wait(_: object) -> None:
        time.sleep(1.2)

    assert child.work({}, on_event=wait, on_output=print, seconds=1.0, halt=Halt()) == 7


@pytest.mark.parametrize(("number", "outside"), [("SIGKILL", True), ("SIGTERM", True), ("SIGSEGV", False)])
def test_a_signal_that_no_fault_raises_came_from_outside(
    child_that: Callable[[str], Child], number: str, *, outside: bool
) -> None:
    with pytest.raises(ChildDied) as caught:
        _work(child_that(f"os.kill(os.getpid(), signal.{number})"))

    assert (caught.value.signal_name, caught.value.from_outside) == (number, outside)


def test_children_are_not_started_while_someone_measures(
    child_that: Callable[[str], Child], tmp_path: Path
) -> None:
    child_that(READY).kill()  # from here on every child is of that kind
    device = Device(tmp_path / "device")
    pool = Pool({}, device=device, spares=2)
    with device.exclusive(threading.Event()):
        pool.refill()
        assert not pool.wait_warm(0.5)
        own = pool.take("build")  # what cannot wait is started at once
        own.kill()
    assert pool.wait_warm(SECONDS)
    first, second = pool.take("gate"), pool.take("gate")
    assert (first.warm, second.warm, first is second) == (True, True, False)
    pool.close()
    first.kill()
    second.kill()


def test_a_pool_that_is_closed_while_it_waits_for_the_device_starts_nothing(
    child_that: Callable[[str], Child], tmp_path: Path
) -> None:
    child_that(READY).kill()
    device = Device(tmp_path / "device")
    pool = Pool({}, device=device)
    with device.exclusive(threading.Event()):
        pool.refill()
        pool.close()
    assert not pool.wait_warm(0.3)
