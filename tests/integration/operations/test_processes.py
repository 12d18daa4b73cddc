from __future__ import annotations

import os
import re
import signal
import sys
import time
from typing import TYPE_CHECKING

import pytest

from pt2hub.system.processes import Child, shorten, spawn, tail
from support.working import until

if TYPE_CHECKING:
    from pathlib import Path

STUBBORN = """
import os, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
if os.fork() == 0:
    print(os.getpid(), flush=True)
time.sleep(60)
"""


def python(code: str, log: Path) -> Child:
    return spawn([sys.executable, "-c", code], log=log, environ=os.environ)


def lives(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as file:  # noqa: PTH123  # no path of ours
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def ended(child: Child) -> int:
    deadline = time.monotonic() + 20
    while (code := child.exit_code()) is None:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return code


@pytest.mark.parametrize(
    ("code", "expected"),
    [("raise SystemExit(3)", 3), ("import os; os.kill(os.getpid(), 9)", -9), ("import os; os.abort()", -6)],
)
def test_the_exit_code_is_told_before_and_after_the_end(tmp_path: Path, code: str, expected: int) -> None:
    child = python(code, tmp_path / "log")
    assert ended(child) == expected
    assert child.stop((signal.SIGTERM, 1)) == expected
    assert child.exit_code() == expected


def test_a_child_that_ignores_sigterm_is_killed_with_its_own_children(tmp_path: Path) -> None:
    child = python(STUBBORN, tmp_path / "log")
    deadline = time.monotonic() + 20
    while not tail(child.log) and time.monotonic() < deadline:
        time.sleep(0.01)
    grandchild = int(tail(child.log))
    assert lives(grandchild)
    began = time.monotonic()
    assert child.stop((signal.SIGTERM, 0.2)) == -signal.SIGKILL
    assert time.monotonic() - began < 5
    until(lambda: not lives(grandchild), 5)


def test_children_that_a_dead_child_left_are_killed(tmp_path: Path) -> None:
    code = "import os, time\npid = os.fork()\nprint(pid, flush=True) if pid else time.sleep(60)"
    child = python(code, tmp_path / "log")
    assert ended(child) == 0
    grandchild = int(tail(child.log))
    assert lives(grandchild)
    child.stop()
    until(lambda: not lives(grandchild), 5)


def test_the_tail_of_a_childs_log_begins_with_the_child(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("of an earlier run\n")
    child = python("print('new')", log)
    child.stop((signal.SIGCONT, 20))
    assert tail(log, start=child.log_start) == "new"
    log.write_text("x\n")  # it was put aside meanwhile
    assert tail(log, start=child.log_start) == "x"


def test_a_long_log_is_put_aside_at_the_next_start(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with log.open("wb") as file:
        file.truncate(17 << 20)
    python("print('new')", log).stop((signal.SIGCONT, 20))
    assert tail(log) == "new"
    assert (tmp_path / "log.1").stat().st_size == 17 << 20


WRITING = """
import os, time
def write(number):
    os.write(1, b"%d %s\\n" % (number, b"x" * 90))
def wait_until_shorter_than(limit):  # who shortens it may come late, on a busy machine
    while os.fstat(1).st_size > limit:
        time.sleep(0.01)
for number in range(1, 20000):
    write(number)
    if number % 200 == 0:
        time.sleep(0.01)
        wait_until_shorter_than(500_000)
wait_until_shorter_than(200_000)  # nobody is about to shorten it: this line cannot fall into that gap
write(20000)
"""


def test_a_long_log_is_put_aside_while_the_child_goes_on_writing(tmp_path: Path) -> None:
    log, aside = tmp_path / "log", tmp_path / "log.1"
    child = python(WRITING, log)
    longest, deadline = 0, time.monotonic() + 60
    while child.exit_code() is None:
        assert time.monotonic() < deadline
        longest = max(longest, log.stat().st_size if log.exists() else 0)
        shorten(log, limit=200_000)
        time.sleep(0.005)
    assert child.stop() == 0
    assert longest < 1_000_000  # all that was written is 1.9 MB
    assert sorted(path.name for path in tmp_path.iterdir()) == ["log", "log.1"]
    # The file that was put aside may end within a line.
    whole = re.compile(r"(\d+) x{90}\n")
    kept = [int(number) for path in (aside, log) for number in whole.findall(path.read_text())]
    assert kept[-1] == 20_000
    assert kept == sorted(kept)
    assert aside.stat().st_size > 200_000


def test_a_log_that_is_short_or_missing_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "log").write_text("short")
    shorten(tmp_path / "log")
    shorten(tmp_path / "none")
    assert [path.name for path in tmp_path.iterdir()] == ["log"]


def test_a_child_without_a_log_writes_to_our_own_output(capfd: pytest.CaptureFixture[str]) -> None:
    code = "import sys; print('out'); print('err', file=sys.stderr)"
    child = spawn([sys.executable, "-c", code], log=None, environ=os.environ)
    assert ended(child) == 0
    child.stop()
    assert capfd.readouterr() == ("out\n", "err\n")
