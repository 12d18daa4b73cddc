"""Following builds from the client and the command line, over the server that runs in production."""

from __future__ import annotations

import json
import os
import signal
import statistics
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING

import pytest

from pt2hub.client.client import Client
from pt2hub.client.config import ClientConfig
from pt2hub.domain.builds import LogLine
from pt2hub.errors import CompileFailed, DatabaseUnavailable
from support.working import until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pt2hub.client.builds.events import BuildEvent
    from pt2hub.domain.builds import Claim
    from pt2hub.wire.responses import BuildView
    from support.api_process import ApiProcess


def environ(home: Path, url: str) -> dict[str, str]:
    """The environment of a user of a server, and of nobody else."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith("PT2HUB_")}
    return kept | {"PT2HUB_HOME": str(home), "PT2HUB_URL": url, "PYTHONPATH": os.pathsep.join(sys.path)}


def pt2hub(env: dict[str, str], *args: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pt2hub", *args]
    return subprocess.run(command, env=env, capture_output=True, text=True, timeout=60, check=False)


PROMPT = 1.5
"""Seconds, of several; a quarter of them on an idle machine. Without notifications it would be two."""


@pytest.fixture
def client(own_api: ApiProcess, tmp_path: Path) -> Iterator[Client]:
    with Client(
        ClientConfig(home=tmp_path, url=f"http://127.0.0.1:{own_api.port}", token=own_api.token)
    ) as client:
        yield client


@pytest.fixture
def env(own_api: ApiProcess, tmp_path: Path) -> dict[str, str]:
    return environ(tmp_path, f"http://127.0.0.1:{own_api.port}")


def line(seq: int, text: str, level: str = "info") -> LogLine:
    return LogLine(seq, 0.0, "compile", level, text)


def running(own_api: ApiProcess, name: str) -> Claim:
    return own_api.registry.claim(own_api.registry.submit(model=f"team/{name}").builds[0].id)


def test_a_followed_log_goes_on_from_attempt_to_attempt_without_losing_a_line(
    own_api: ApiProcess, client: Client
) -> None:
    builds, claim = own_api.registry.services.builds, running(own_api, "attempts")
    builds.report(claim, [], [line(1, "first 1")])
    seen: list[str] = []

    def follow() -> None:
        seen.extend(item.text for item in client.builds.follow_logs(claim.build))

    reader = threading.Thread(target=follow)
    reader.start()
    deadline = time.monotonic() + 20
    while not seen:  # who comes later begins with the latest attempt
        assert time.monotonic() < deadline
        time.sleep(0.01)
    builds.report(claim, [], [line(seq, f"first {seq}") for seq in range(2, 1500)])
    builds.retry_later(claim, DatabaseUnavailable("away"))
    own_api.registry.sql("UPDATE builds SET not_before = NULL WHERE id = %s", claim.build)
    second = own_api.registry.claim(claim.build)
    builds.report(second, [], [line(1, "second 1")])
    builds.fail(second, CompileFailed("no"))
    builds.report(second, [], [line(2, "second 2")])
    reader.join(20)
    assert seen == [*(f"first {seq}" for seq in range(1, 1500)), "second 1", "second 2"]


def test_who_waited_from_the_beginning_misses_no_attempt_that_came_and_went_meanwhile(
    own_api: ApiProcess, client: Client
) -> None:
    builds = own_api.registry.services.builds
    queued = own_api.registry.submit(model="team/unseen").builds[0].id
    seen: list[BuildView] = []

    def on_build(build: BuildView) -> None:
        """Behind the first look, two attempts begin and end before the next one."""
        seen.append(build)
        if len(seen) > 1:
            return
        first = own_api.registry.claim(queued)
        builds.report(first, [], [line(1, "first")])
        builds.retry_later(first, DatabaseUnavailable("away"))
        own_api.registry.sql("UPDATE builds SET not_before = NULL WHERE id = %s", queued)
        second = own_api.registry.claim(queued)
        builds.report(second, [], [line(1, "second")])
        builds.fail(second, CompileFailed("no"))

    followed = client.builds.follow_logs(queued, on_build=on_build)
    assert [item.text for item in followed] == ["first", "second"]
    assert [build.attempt for build in seen[:2]] == [0, 2]


def test_a_followed_version_tells_each_step_as_it_happens(own_api: ApiProcess, client: Client) -> None:
    claim = running(own_api, "steps")
    told: list[str] = []

    def on_event(event: BuildEvent) -> None:
        told.append(event.step.state if event.step else event.build.state)

    version = own_api.registry.services.publish.version("team/steps", 1)
    reader = threading.Thread(target=lambda: client.versions.follow(version, on_event))
    reader.start()
    until(lambda: told, 20)
    took = []
    for state in ("running", "done", "running", "done"):
        began, before = time.monotonic(), len(told)
        own_api.registry.step(claim, "fetch", state, seconds=0.1)
        until(lambda: len(told) > before, 20)  # noqa: B023  # called at once
        took.append(time.monotonic() - began)
    own_api.registry.services.builds.fail(claim, CompileFailed("no"))
    reader.join(20)
    assert told == ["running", *("running", "done") * 2, "failed"]
    assert statistics.median(took) < PROMPT


def test_lines_are_printed_within_a_moment_of_being_written(own_api: ApiProcess, env: dict[str, str]) -> None:
    builds, claim = own_api.registry.services.builds, running(own_api, "printed")
    builds.report(claim, [], [line(1, "first")])
    command = [sys.executable, "-m", "pt2hub", "logs", "-f", claim.build]
    with subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        seen, took = [process.stdout.readline()], []
        for seq in range(2, 7):
            written = time.monotonic()
            builds.report(claim, [], [line(seq, f"line {seq}")])
            seen.append(process.stdout.readline())
            took.append(time.monotonic() - written)
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 130
    assert seen[0].endswith("first\n")
    assert [text.split("compile  ")[1] for text in seen[1:]] == [f"line {seq}\n" for seq in range(2, 7)]
    assert statistics.median(took) < PROMPT


def test_a_summary_is_shown_unless_everything_is_asked_for(own_api: ApiProcess, env: dict[str, str]) -> None:
    builds, claim = own_api.registry.services.builds, running(own_api, "summary")
    builds.report(claim, [], [line(1, "skipped a candidate", "compiler"), line(2, "hello", "output")])
    builds.retry_later(claim, DatabaseUnavailable("away"))
    own_api.registry.sql("UPDATE builds SET not_before = NULL WHERE id = %s", claim.build)
    second = own_api.registry.claim(claim.build)
    builds.report(
        second, [], [line(1, "noise", "compiler"), line(2, "noise", "compiler"), line(3, "x", "error")]
    )
    builds.fail(second, CompileFailed("no"))

    def shown(*args: str) -> tuple[list[str], str]:
        done = pt2hub(env, "logs", claim.build, *args)
        assert done.returncode == 0, done.stderr
        return [text.rpartition(" ")[2] for text in done.stdout.splitlines()], done.stderr

    assert shown() == (["x"], "2 lines of compiler output are hidden. To show them: --all\n")
    assert shown("--all") == (["noise", "noise", "x"], "")
    assert shown("--attempt", "1")[0] == ["hello"]
    assert shown("--follow")[0] == ["x"]
    assert [
        json.loads(text)["seq"]
        for text in pt2hub(env, "logs", claim.build, "-f", "--all", "--json").stdout.splitlines()
    ] == [1, 2, 3]
    whole = json.loads(pt2hub(env, "logs", claim.build, "--json").stdout)
    assert [item["text"] for item in whole["lines"]] == ["x"]


def test_an_attempt_that_never_was_and_one_that_is_followed_are_refused(
    own_api: ApiProcess, env: dict[str, str]
) -> None:
    build = running(own_api, "refused").build
    done = pt2hub(env, "logs", build, "--attempt", "7")
    assert done.returncode == 1
    assert "Attempt 7 not found: it has 1 so far" in done.stderr
    done = pt2hub(env, "logs", build, "--attempt", "1", "-f")
    assert done.returncode == 1
    assert "--follow and --attempt cannot be combined" in done.stderr
