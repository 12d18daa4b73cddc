"""The journal: what a build says reaches the database in order, bounded, without secrets, over outages."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

import structlog

from pt2hub.domain.builds import Claim, LogLine, StepReport
from pt2hub.domain.digests import digest_bytes
from pt2hub.domain.targets import parse_target
from pt2hub.errors import DatabaseUnavailable, InternalError, Pt2hubError, StaleAttempt
from pt2hub.system.redaction import HIDDEN, Redactor
from pt2hub_workers.builds import journal, log_limit
from pt2hub_workers.builds.journal import Journal
from pt2hub_workers.builds.log_limit import HEAD_BYTES, LINE_BYTES, TAIL_BYTES, LogLimit

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import pytest

CLAIM = Claim(
    build="b1",
    attempt=2,
    worker="w1",
    version_id=1,
    model="team/net",
    number=1,
    identity=digest_bytes(b"net"),
    spec={},
    request={},
    target=parse_target("torch2.13-cpu-x86_64_v3"),
    pins={},
)


class Database:
    """Takes reports as the database does; `refusals` come first."""

    def __init__(self, *refusals: Pt2hubError) -> None:
        self.refusals = list(refusals)
        self.reports = 0
        self.steps: list[StepReport] = []
        self.lines: list[LogLine] = []
        self.on_report: Callable[[], None] = lambda: None

    def report(self, claim: Claim, steps: Sequence[StepReport], lines: Sequence[LogLine]) -> None:
        assert claim == CLAIM
        self.on_report()
        if self.refusals:
            raise self.refusals.pop(0)
        self.reports += 1
        self.steps += steps
        self.lines += lines

    @property
    def texts(self) -> list[str]:
        return [line.text for line in self.lines]


def test_lines_and_steps_arrive_in_order_and_few_reports() -> None:
    database = Database()
    written = Journal(database, CLAIM, offset=100.0)
    with written.time_step("fetch"):
        for number in range(500):
            written.line(f"line {number}")
    written.step("export", "running", detail="tracing")
    written.fail_step()
    written.close()
    took = [f"fetch took {seconds:.2f} s" for _, seconds in written.timings]
    assert database.texts == [*(f"line {n}" for n in range(500)), *took, "tracing"]
    assert [line.seq for line in database.lines] == list(range(1, 503))
    assert {line.step for line in database.lines[:501]} == {"fetch"}
    assert [(step.name, step.state) for step in database.steps[-2:]] == [
        ("fetch", "done"),
        ("export", "failed"),
    ]
    assert database.steps[-1].detail == "tracing"  # what came before it was sent stays
    assert database.reports <= 3
    assert abs(database.lines[0].at - time.time() - 100) < 50  # by the database's clock
    assert abs(database.steps[-2].started - time.time() - 100) < 50


def test_what_the_database_does_not_take_is_sent_later_and_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal, "RETRY_SECONDS", 0.01)
    database = Database(*[DatabaseUnavailable()] * 5)
    written = Journal(database, CLAIM)
    written.step("fetch", "running")
    written.line("one")
    while len(database.refusals) > 2:
        time.sleep(0.005)
    written.step("fetch", "done", seconds=1.0)
    written.line("two")
    written.close()
    assert database.texts == ["one", "fetch took 1.00 s", "two"]
    assert [(step.state, step.seconds) for step in database.steps] == [("done", 1.0)]


def test_a_database_that_stays_away_is_given_up_after_the_time_for_it() -> None:
    database = Database(*[DatabaseUnavailable()] * 1000)
    written = Journal(database, CLAIM)
    written.line("never stored")
    with structlog.testing.capture_logs() as logs:
        began = time.monotonic()
        written.close(timeout=0.2)
    assert time.monotonic() - began < 10
    assert (logs[-1]["event"], logs[-1]["lines"]) == ("the end of the build's log could not be stored", 1)


def test_a_batch_that_the_database_refuses_holds_up_no_other() -> None:
    database = Database(InternalError("no such column"))
    written = Journal(database, CLAIM)
    written.line("refused")
    while database.refusals:
        time.sleep(0.005)
    written.line("taken")
    written.close()
    assert database.texts == ["taken"]


def test_an_overtaken_attempt_is_told_once_and_writes_no_more() -> None:
    told: list[str] = []
    database = Database(StaleAttempt())
    written = Journal(database, CLAIM, on_stale=lambda: told.append("overtaken"))
    written.line("late")
    while not told:
        time.sleep(0.005)
    written.line("later")
    written.step("compile", "done", seconds=1.0)
    written.close()
    assert (told, database.lines, database.steps) == (["overtaken"], [], [])


def test_a_step_that_moves_on_while_it_is_sent_is_sent_again() -> None:
    database = Database()
    sending, go_on = threading.Event(), threading.Event()

    def hold() -> None:
        sending.set()
        go_on.wait(5)

    database.on_report = hold
    written = Journal(database, CLAIM)
    written.step("export", "running")
    assert sending.wait(5)
    written.step("export", "done", seconds=0.5)
    go_on.set()
    written.close()
    assert [step.state for step in database.steps] == ["running", "done"]


def test_secrets_are_in_no_line_and_no_detail() -> None:
    database = Database()
    written = Journal(database, CLAIM, redactor=Redactor(["battery-staple"]))
    written.add_output("password=battery-staple")
    written.line("storage said battery-staple", "error")
    written.step("fetch", "running", detail="as battery-staple")
    written.close()
    assert database.texts == [f"password={HIDDEN}", f"storage said {HIDDEN}", f"as {HIDDEN}"]
    assert database.steps[0].detail == f"as {HIDDEN}"


def test_printed_lines_are_told_apart_and_a_long_one_is_cut() -> None:
    database = Database()
    written = Journal(database, CLAIM)
    written.add_output("AUTOTUNE mm(2x2, 2x2)")
    written.add_output("hello")
    written.add_output("x" * 20_000)
    written.add_output("Traceback (most recent call last):")
    written.close()
    assert [(line.level, len(line.text)) for line in database.lines] == [
        ("compiler", 21),
        ("output", 5),
        ("output", log_limit.MAX_TEXT),
        ("output", 34),
    ]


def test_what_the_worker_logs_meanwhile_carries_the_step() -> None:
    written = Journal(Database(), CLAIM)
    written.step("compile", "running")
    assert structlog.contextvars.get_contextvars() == {"step": "compile"}
    written.close()
    assert structlog.contextvars.get_contextvars() == {}


def test_a_hundred_megabytes_keep_their_beginning_and_their_end() -> None:
    database = Database()
    most = [0]
    written = Journal(database, CLAIM)
    text = "y" * 10_000 + " "
    count = 100 * (1 << 20) // 10_000
    for number in range(count):
        written.add_output(f"{text}{number}")
        if number % 1000 == 0:
            waiting = written._lines
            most[0] = max(
                most[0], sum(len(line.text) for line in list(waiting._waiting)) + waiting._tail_bytes
            )
        if number == count // 2:
            written.step("compile", "done", seconds=1.0)
            written.line("a word of our own", "warning")
    written.close()
    sizes = [len(line.text) + LINE_BYTES for line in database.lines]
    ours = [line for line in database.lines if line.level in ("info", "warning")]
    assert HEAD_BYTES + TAIL_BYTES - 20_000 < sum(sizes) < HEAD_BYTES + TAIL_BYTES + 20_000
    assert most[0] < 2 * (HEAD_BYTES + TAIL_BYTES)
    assert [line.seq for line in database.lines] == list(range(1, len(sizes) + 1))
    assert [line.text for line in ours][1:3] == ["compile took 1.00 s", "a word of our own"]
    kept = len(sizes) - len(ours)
    assert (
        ours[0].text
        == "The log reached 8 MiB. Of the output from here on, the last 1 MiB are kept, at the end of the log."
    )
    assert ours[3].text == (
        f"{count - kept} lines are left out here ({(count - kept) * log_limit.MAX_TEXT} bytes)."
    )


def test_the_last_lines_of_a_flood_are_its_end() -> None:
    lines = LogLimit(str)
    for number in range(200_000):
        lines.add(f"{number:0100}", at=0.0, step="compile", level="output")
    lines.close()
    waiting = list(lines._waiting)
    assert [line.seq for line in waiting] == list(range(1, len(waiting) + 1))
    assert int(waiting[0].text) == 0
    assert int(waiting[-1].text) == 199_999
    tail = waiting[-(TAIL_BYTES // (100 + LINE_BYTES)) :]
    assert [int(line.text) for line in tail] == list(range(200_000 - len(tail), 200_000))


def test_a_batch_is_bounded_by_lines_and_by_bytes() -> None:
    lines = LogLimit(str)
    for number in range(5000):
        lines.add("z" * (8000 if number < 500 else 1), at=0.0, step="", level="info")
    first = lines.batch()
    assert sum(len(line.text) for line in first) <= 1 << 20
    lines.forget(500)
    assert len(lines.batch()) == 2000


def test_a_flush_returns_when_all_is_stored_the_end_of_a_flood_too() -> None:
    database = Database()
    written = Journal(database, CLAIM)
    for number in range(1500):
        written.add_output(f"{number:08192}")
    written.line("it failed", "error")
    assert written.flush()
    assert [int(text[-4:]) for text in database.texts[-100:]] == list(range(1400, 1500))
    assert "it failed" in database.texts
    database.refusals = [DatabaseUnavailable()] * 1000
    written.line("said later")
    assert not written.flush(0.05)
    database.refusals.clear()
    written.close()
    assert database.texts[-1] == "said later"
