"""Builds and logs as they change, over real sockets: from the server that runs in production to the reader."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import statistics
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from pt2hub.domain.builds import LogLine
from pt2hub.errors import CompileFailed, NotFound, QuotaExceeded
from pt2hub.server import waiters
from pt2hub.server.api import streams
from pt2hub.server.db.stores.builds.logs import NOISE
from pt2hub.server.gunicorn_server import THREADS
from pt2hub.wire.problems import from_dict
from support.api_process import ApiProcess, running_api
from support.working import until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager
    from pathlib import Path

    from pt2hub.domain.builds import Claim

PROMPT = 1.5
"""Seconds; what takes a tenth of them on an idle machine. Without notifications it would be two. Of several: a collection
of the suite's heap takes over one as well."""
MAX_WAITS = THREADS + 2
"""Streams that one address may follow here: more than there are threads."""


@pytest.fixture(scope="module")
def own_api(start_api: Callable[..., AbstractContextManager[ApiProcess]]) -> Iterator[ApiProcess]:
    """An API on which few requests may wait."""
    with start_api(PT2HUB_MAX_WAITS=str(MAX_WAITS)) as running:
        yield running


class Event(NamedTuple):
    name: str
    data: str


class Reader:
    """Somebody who follows, and when each event came."""

    def __init__(self, response: http.client.HTTPResponse) -> None:
        self.response = response
        self.pieces = b""
        self.events = self._read()

    def _read(self) -> Iterator[Event]:
        rest = b""
        while piece := self.response.read1(65536):
            self.pieces += piece
            *whole, rest = (rest + piece).split(b"\n\n")
            for text in whole:
                fields = dict(line.split(": ", 1) for line in text.decode().splitlines())
                if "event" in fields:  # else a comment, or the time until a reconnect
                    yield Event(fields["event"], fields["data"])

    def until(self, name: str, **said: Any) -> list[Event]:
        """The events up to one of a name that says this."""
        seen = []
        for event in self.events:
            seen.append(event)
            if event.name == name and said.items() <= json.loads(event.data).items():
                return seen
        raise AssertionError(f"the stream ended after {seen}")


@contextmanager
def following(port: int, path: str) -> Iterator[Reader]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    try:
        connection.request("GET", f"/api/v1/{path}")
        with connection.getresponse() as response:
            yield Reader(response)
    finally:
        connection.close()


def lines(first: int, last: int, text: str = "line") -> list[LogLine]:
    return [LogLine(seq, 0.0, "compile", "info", f"{text} {seq}") for seq in range(first, last + 1)]


def short_streams(monkeypatch: pytest.MonkeyPatch) -> None:
    """Streams of a moment that say twenty times that they live: the two that tests want come on any machine."""
    monkeypatch.setattr(streams, "STREAM_SECONDS", 1.5)
    monkeypatch.setattr(streams, "KEEP_ALIVE_SECONDS", 0.05)


def running(own_api: ApiProcess, name: str) -> Claim:
    return own_api.registry.claim(own_api.registry.submit(model=f"team/{name}").builds[0].id)


def test_lines_and_steps_are_told_when_they_are_written_and_the_end_when_it_comes(
    own_api: ApiProcess,
) -> None:
    builds = own_api.registry.services.builds
    queued = own_api.registry.submit(model="team/live").builds[0].id
    with following(own_api.port, f"builds/{queued}/events") as reader:
        assert reader.response.headers["Content-Type"] == "text/event-stream"
        reader.until("build", state="queued")
        claim = own_api.registry.claim(queued)
        reader.until("build", state="running")
        took = []
        for number in range(1, 6):
            written = time.monotonic()
            builds.report(claim, [], lines(number, number))
            reader.until("lines", attempt=1, seq=number)
            took.append(time.monotonic() - written)
        assert statistics.median(took) < PROMPT
        own_api.registry.step(claim, "export", "running", detail="tracing")
        build = json.loads(reader.until("build")[-1].data)
        assert [(step["name"], step["detail"]) for step in build["steps"]] == [("export", "tracing")]
        builds.report(claim, [], lines(6, 2000))
        told = reader.until("lines", attempt=1, seq=2000)
        assert len(told) == 1, "and not each line"
        builds.fail(claim, CompileFailed("no compiler"))
        builds.report(claim, [], lines(2001, 2001))  # its last words
        ended = reader.until("end")
        said = [json.loads(event.data) for event in ended if event.name == "lines"]
        assert said[-1] == {"attempt": 1, "seq": 2001}
        states = [json.loads(event.data)["state"] for event in ended if event.name == "build"]
        assert states[-1] == "failed"
        assert list(reader.events) == []


def test_a_summary_leaves_the_compilers_noise_out(own_api: ApiProcess) -> None:
    claim = running(own_api, "noisy")
    noise = [LogLine(seq, 0.0, "compile", "compiler", "noise") for seq in range(1, 2500)]
    own_api.registry.services.builds.report(
        claim, [], [*noise, LogLine(2500, 0.0, "compile", "info", "word")]
    )
    path = f"builds/{claim.build}"
    page = json.loads(own_api.ask("GET", f"/api/v1/{path}/logs?summary=true")[1])
    assert (page["attempt"], [line["seq"] for line in page["lines"]]) == (1, [2500])
    assert len(own_api.ask("GET", f"/api/v1/{path}/log")[1].splitlines()) == 2500


def test_a_page_of_lines_says_whether_more_may_come(own_api: ApiProcess) -> None:
    services, claim = own_api.registry.services, running(own_api, "complete")
    path = f"/api/v1/builds/{claim.build}/logs?after="

    def is_complete(after: int) -> bool:
        page = json.loads(own_api.ask("GET", f"{path}{after}")[1])
        assert isinstance(page["complete"], bool)
        return bool(page["complete"])

    services.builds.report(claim, [], lines(1, 2))
    assert not is_complete(2), "it runs"
    services.builds.fail(claim, CompileFailed("no"))
    until(lambda: is_complete(2), 20)
    assert not is_complete(1), "a line follows"


def test_only_so_many_follow_and_all_others_are_answered(own_api: ApiProcess) -> None:
    path = f"builds/{running(own_api, 'busy').build}"
    with ExitStack() as readers:
        for _ in range(MAX_WAITS):
            reader = readers.enter_context(following(own_api.port, f"{path}/events"))
            reader.until("build")
        response, body = own_api.ask("GET", f"/api/v1/{path}/events")
        assert (response.status, response.headers["Retry-After"]) == (429, "5")
        assert isinstance(from_dict(json.loads(body)), QuotaExceeded)
        for _ in range(THREADS):
            assert own_api.ask("GET", f"/api/v1/{path}")[0].status == 200
        states = (
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND state <> 'idle'"
        )
        assert own_api.registry.sql(states) == [
            (1,)
        ]  # this question itself: nobody waits within a transaction
    left = time.monotonic()
    while own_api.ask("HEAD", f"/api/v1/{path}/events")[0].status == 429:
        assert time.monotonic() - left < 20
        time.sleep(0.05)
    with ExitStack() as readers:
        deadline = time.monotonic() + 20
        taken = 0
        while taken < MAX_WAITS:  # every place was given back
            assert time.monotonic() < deadline
            reader = readers.enter_context(following(own_api.port, f"{path}/events"))
            if reader.response.status == 200:
                taken += 1
                reader.until("build")


def test_a_reader_that_stops_reading_does_not_keep_its_place(own_api: ApiProcess) -> None:
    claim = running(own_api, "stalled")
    own_api.registry.step(claim, "compile", "running", detail="x" * 8_000_000)
    path = f"/api/v1/builds/{claim.build}/events"
    with ExitStack() as readers:
        for _ in range(MAX_WAITS):
            reader = readers.enter_context(own_api.connect())
            reader.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            reader.sendall(own_api.head("GET", path))
            reader.recv(1)
        assert own_api.ask("HEAD", path)[0].status == 429
        began = time.monotonic()
        while own_api.ask("HEAD", path)[0].status == 429:
            assert time.monotonic() - began < 2 * streams.STALLED_SECONDS
            time.sleep(0.2)
    assert "Socket error" not in own_api.log


@pytest.mark.parametrize("path", ["builds/unknown/events", "builds/unknown/log"])
def test_what_does_not_exist_is_answered_before_a_stream_begins(own_api: ApiProcess, path: str) -> None:
    response, body = own_api.ask("GET", f"/api/v1/{path}")
    assert response.status == 404
    assert isinstance(from_dict(json.loads(body)), NotFound)


def test_an_attempt_that_never_was_is_answered_with_a_sentence(own_api: ApiProcess) -> None:
    build = running(own_api, "attempts").build
    response, body = own_api.ask("GET", f"/api/v1/builds/{build}/logs?attempt=3")
    assert response.status == 404
    assert json.loads(body)["detail"] == "Attempt 3 not found: it has 1 so far"
    assert json.loads(body)["hint"].endswith(f"/api/v1/builds/{build} lists its attempts.")
    assert own_api.ask("GET", f"/api/v1/builds/{build}/logs?attempt=0")[0].status == 422


def test_streams_and_waits_end_at_once_when_the_process_stops(tmp_path: Path, migrated_url: str) -> None:
    with running_api(tmp_path, migrated_url) as own_api:
        claim = running(own_api, "stopped")
        own_api.registry.services.builds.report(claim, [], lines(1, 1))
        moves = "models/team/stopped/aliases/prod/moves?after=0&wait=40"
        with (
            following(own_api.port, f"builds/{claim.build}/events") as reader,
            ThreadPoolExecutor() as threads,
        ):
            waits = threads.submit(own_api.ask, "GET", f"/api/v1/{moves}")
            reader.until("lines")
            time.sleep(0.5)  # until the wait is suspended
            assert not waits.done()
            began = time.monotonic()
            os.kill(own_api.pid, signal.SIGTERM)
            assert [
                event.name for event in reader.events if event.name not in ("build", "lines")
            ] == []  # a whole answer, no cut
            response, body = waits.result(20)
            assert (response.status, response.headers["Connection"], json.loads(body)["last"]) == (
                200,
                "close",
                0,
            )
            assert time.monotonic() - began < streams.STREAM_SECONDS / 3


def test_a_quiet_stream_says_that_it_lives_and_ends_after_a_while(
    url: str, container: Any, config: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from support.registry import Registry

    short_streams(monkeypatch)
    build = Registry(container, str(config.database_url)).submit().builds[0].id
    with following(int(url.rpartition(":")[2]), f"builds/{build}/events") as reader:
        assert [event.name for event in reader.events] == ["build"]
        assert reader.pieces.startswith(b"retry: 1000\n\n")
        assert reader.pieces.count(b": still here\n\n") >= 2


def test_a_stream_of_a_build_that_never_pauses_lives_and_ends_like_any_other(
    url: str, container: Any, config: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from support.registry import Registry

    short_streams(monkeypatch)
    registry = Registry(container, str(config.database_url))
    claim = registry.claim(registry.submit().builds[0].id)
    ended = threading.Event()

    def never_pause() -> None:
        seq = 0
        while not ended.wait(0.05):
            seq += 1
            container.builds.report(claim, [], [LogLine(seq, 0.0, "compile", NOISE, "noise")])

    writer = threading.Thread(target=never_pause)
    writer.start()
    try:
        path = f"builds/{claim.build}/events"
        began = time.monotonic()
        with following(int(url.rpartition(":")[2]), path) as reader:
            assert {event.name for event in reader.events} == {"build", "lines"}
            assert reader.pieces.count(b": still here\n\n") >= 2
        assert time.monotonic() - began < 15
    finally:
        ended.set()
        writer.join()


def test_a_database_that_goes_away_ends_the_stream_and_not_the_server(
    url: str, container: Any, config: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from support.registry import Registry

    monkeypatch.setattr(waiters, "_MIN_RECHECK_S", 0.2)
    registry = Registry(container, str(config.database_url))
    build = registry.submit().builds[0].id
    with following(int(url.rpartition(":")[2]), f"builds/{build}/events") as reader:
        reader.until("build")
        registry.sql("ALTER TABLE build_attempts RENAME TO gone")
        assert list(reader.events) == []
    registry.sql("ALTER TABLE gone RENAME TO build_attempts")
    with following(int(url.rpartition(":")[2]), f"builds/{build}/events") as reader:
        reader.until("build")
