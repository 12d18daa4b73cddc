from __future__ import annotations

import signal
import statistics
import subprocess
import sys
import threading
import time
from datetime import timedelta
from queue import Queue
from typing import TYPE_CHECKING

import psycopg
import pytest
from sqlalchemy import func, select, text

from pt2hub.errors import DatabaseUnavailable
from pt2hub.server.db import engine as engines
from pt2hub.server.db.queue import BuildConsumer, BuildQueue

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


class Consuming:
    """A consumer in a thread; what it hands over arrives in `seen` with its time."""

    def __init__(self, database_url: str, handler: Callable[[str], None] | None = None) -> None:
        self.seen: Queue[tuple[str, float, str]] = Queue()
        self._handler = handler
        self.consumer = BuildConsumer(database_url, queue="here", handler=self._handle)
        self.thread = threading.Thread(target=self.consumer.run)

    def _handle(self, build_id: str) -> None:
        self.seen.put((build_id, time.perf_counter(), threading.current_thread().name))
        if self._handler:
            self._handler(build_id)

    def next(self) -> str:
        return self.seen.get(timeout=10)[0]

    def stop(self) -> None:
        self.consumer.stop()
        self.thread.join(15)
        assert not self.thread.is_alive()


@pytest.fixture
def consuming(migrated_url: str) -> Iterator[Callable[..., Consuming]]:
    started: list[Consuming] = []

    def start(handler: Callable[[str], None] | None = None) -> Consuming:
        started.append(Consuming(migrated_url, handler))
        started[-1].thread.start()
        return started[-1]

    yield start
    for item in started:
        item.stop()


@pytest.fixture
def sessions(migrated_url: str) -> Iterator[engines.Sessions]:
    engine = engines.create(migrated_url)
    yield engines.Sessions(engine)
    engine.dispose()


@pytest.fixture
def queue(migrated_url: str) -> BuildQueue:
    return BuildQueue(migrated_url)


class Undone(Exception):
    """Ends a transaction."""


def cut_connections(database_url: str) -> None:
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute(
            "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity "
            "WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )


def defer(sessions: engines.Sessions, queue: BuildQueue, *builds: str, to: str = "here") -> float:
    with sessions.begin() as session:
        for build in builds:
            queue.defer(session, build, queue=to)
    return time.perf_counter()


def test_a_committed_build_starts_within_milliseconds(
    consuming: Callable[..., Consuming], sessions: engines.Sessions, queue: BuildQueue
) -> None:
    worker = consuming()
    defer(sessions, queue, "warm-up")
    worker.next()
    delays = []
    for number in range(20):
        time.sleep(0.02)  # let the worker come to rest: an idle one is meant
        committed = defer(sessions, queue, f"build-{number}")
        build, started, _ = worker.seen.get(timeout=10)
        assert build == f"build-{number}"
        delays.append(started - committed)
    # 2 ms by hand on an idle machine; the polling interval is 1 s, so this proves that NOTIFY woke it.
    assert statistics.median(delays) < 0.1


def test_a_rolled_back_build_never_starts(
    consuming: Callable[..., Consuming], sessions: engines.Sessions, queue: BuildQueue
) -> None:
    worker = consuming()

    def defer_and_fail() -> None:
        with sessions.begin() as session:
            queue.defer(session, "undone", queue="here")
            raise Undone

    with pytest.raises(Undone):
        defer_and_fail()
    defer(sessions, queue, "kept")
    assert worker.next() == "kept"
    assert worker.seen.empty()


def test_a_consumer_takes_only_its_own_targets_builds(
    consuming: Callable[..., Consuming], sessions: engines.Sessions, queue: BuildQueue
) -> None:
    defer(sessions, queue, "elsewhere", to="there")
    defer(sessions, queue, "mine")
    worker = consuming()
    assert worker.next() == "mine"
    assert worker.seen.empty()


def test_higher_priority_comes_first(
    consuming: Callable[..., Consuming], sessions: engines.Sessions, queue: BuildQueue
) -> None:
    with sessions.begin() as session:
        queue.defer(session, "low", queue="here", priority=0)
        queue.defer(session, "high", queue="here", priority=5)
    worker = consuming()
    assert [worker.next(), worker.next()] == ["high", "low"]


def test_a_build_that_must_wait_is_not_delivered_before_its_time(
    consuming: Callable[..., Consuming], sessions: engines.Sessions, queue: BuildQueue
) -> None:
    with sessions.begin() as session:
        due = session.scalars(select(func.now() + timedelta(hours=1))).one()
        queue.defer(session, "later", queue="here", priority=9, not_before=due)
        queue.defer(session, "now", queue="here")
    worker = consuming()
    assert worker.next() == "now"
    defer(sessions, queue, "next")
    assert worker.next() == "next"
    with sessions.begin() as session:
        session.execute(text("UPDATE procrastinate_jobs SET scheduled_at = now() WHERE status = 'todo'"))
    assert worker.next() == "later"


def test_a_build_put_further_ahead_comes_first(
    consuming: Callable[..., Consuming], sessions: engines.Sessions, queue: BuildQueue
) -> None:
    defer(sessions, queue, "first", "second", "third")
    with sessions.begin() as session:
        queue.raise_priority(session, ["third"], 5)
    worker = consuming()
    assert [worker.next() for _ in range(3)] == ["third", "first", "second"]


def test_a_build_that_was_withdrawn_never_comes(
    consuming: Callable[..., Consuming], sessions: engines.Sessions, queue: BuildQueue
) -> None:
    defer(sessions, queue, "withdrawn", "kept")
    with sessions.begin() as session:
        queue.withdraw(session, "withdrawn")
    worker = consuming()
    assert worker.next() == "kept"
    assert worker.seen.empty()


def test_a_consumer_struck_off_while_it_worked_begins_anew(
    consuming: Callable[..., Consuming], sessions: engines.Sessions, queue: BuildQueue, migrated_url: str
) -> None:
    goes_on = threading.Event()
    worker = consuming(lambda build: None if build != "long" else (goes_on.wait(10), None)[1])
    defer(sessions, queue, "long")
    assert worker.next() == "long"
    with psycopg.connect(migrated_url, autocommit=True) as connection:
        connection.execute("DELETE FROM procrastinate_workers")  # as after a long pause of its process
        with sessions.begin() as session:
            queue.sweep(session)
        assert connection.execute("SELECT count(*) FROM procrastinate_jobs").fetchall() == [(0,)]
    goes_on.set()
    defer(sessions, queue, "next")
    assert worker.next() == "next"


def test_a_handler_that_raises_is_logged_and_the_next_build_comes(
    consuming: Callable[..., Consuming],
    sessions: engines.Sessions,
    queue: BuildQueue,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def handler(build_id: str) -> None:
        if build_id == "broken":
            raise ValueError("no luck")

    worker = consuming(handler)
    defer(sessions, queue, "broken", "fine")
    assert [worker.next(), worker.next()] == ["broken", "fine"]
    worker.stop()
    assert worker.seen.empty()  # not repeated
    assert "no luck" in caplog.text


def test_the_handler_runs_in_a_thread_and_stopping_waits_for_it(
    consuming: Callable[..., Consuming], sessions: engines.Sessions, queue: BuildQueue
) -> None:
    goes_on, finished = threading.Event(), threading.Event()

    def handler(_build_id: str) -> None:
        goes_on.wait(10)
        finished.set()

    worker = consuming(handler)
    defer(sessions, queue, "slow", "next")
    _, _, thread = worker.seen.get(timeout=10)
    assert thread != worker.thread.name
    worker.consumer.stop()
    worker.thread.join(0.2)
    assert worker.thread.is_alive()
    goes_on.set()
    worker.stop()
    assert finished.is_set()
    assert worker.seen.empty()  # nothing new is begun after stop


def test_stop_before_run_ends_at_once(migrated_url: str) -> None:
    consumer = BuildConsumer(migrated_url, queue="here", handler=lambda _: None)
    consumer.stop()
    consumer.run()


def test_a_consumer_survives_the_loss_of_its_connections(
    consuming: Callable[..., Consuming], sessions: engines.Sessions, queue: BuildQueue, migrated_url: str
) -> None:
    worker = consuming()
    defer(sessions, queue, "before")
    assert worker.next() == "before"
    cut_connections(migrated_url)
    defer(sessions, queue, "after")
    assert worker.next() == "after"


def test_defer_reports_a_lost_database(
    sessions: engines.Sessions, queue: BuildQueue, migrated_url: str
) -> None:
    def defer_when_cut_off() -> None:
        with sessions.begin() as session:
            session.connection()
            cut_connections(migrated_url)
            queue.defer(session, "lost", queue="here")

    with pytest.raises(DatabaseUnavailable, match="lost"):
        defer_when_cut_off()


PROGRAM = """
import signal, sys
from pt2hub.server.db.queue import BuildConsumer
consumer = BuildConsumer(sys.argv[1], queue="here", handler=lambda build: print(build, flush=True))
signal.signal(signal.SIGTERM, lambda *_: consumer.stop())
print("ready", flush=True)
consumer.run()
print("over", flush=True)
"""


def test_stop_works_from_a_signal_handler(
    migrated_url: str, sessions: engines.Sessions, queue: BuildQueue
) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM, migrated_url], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout
        assert process.stdout.readline() == "ready\n"
        defer(sessions, queue, "one")
        assert process.stdout.readline() == "one\n"
        process.send_signal(signal.SIGTERM)
        assert process.stdout.read() == "over\n"
    assert process.returncode == 0
