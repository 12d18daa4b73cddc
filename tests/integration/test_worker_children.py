"""The dialogue with children that misbehave; real processes, none of them with torch."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING

import pytest

from pt2hub_workers import sandbox
from pt2hub_workers.children import Child, ChildDied, ChildHung
from pt2hub_workers.inside.channel import CHANNEL_FD

if TYPE_CHECKING:
    from collections.abc import Callable

CHANNEL = f"int(os.environ['{CHANNEL_FD}'])"
SECONDS = 20.0


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
    child.work({}, on_event=print, on_output=printed.append, seconds=seconds, stop=threading.Event())
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
        child.work({}, on_event=print, on_output=printed.append, seconds=SECONDS, stop=threading.Event())

    assert caught.value.signal_name == "SIGABRT"
    assert printed == ["last words"]
    assert time.monotonic() - started < SECONDS / 2


def test_a_child_that_closes_its_channel_and_lives_on_is_ended(
    child_that: Callable[[str], Child], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sandbox, "EXIT_SECONDS", 0.5)
    child = child_that(f"os.read({CHANNEL}, 9); os.close({CHANNEL}); time.sleep(60)")

    with pytest.raises(ChildDied):
        _work(child)

    assert not child.alive


def test_a_silent_child_is_ended_at_its_time_limit(child_that: Callable[[str], Child]) -> None:
    child = child_that("time.sleep(60)")

    with pytest.raises(ChildHung):
        _work(child, seconds=0.5)

    assert not child.alive
