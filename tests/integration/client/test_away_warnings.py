"""Requests that are tried again say so when it takes a while: nobody waits in front of a silent command."""

from __future__ import annotations

import json
import re
import signal
import socket
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest
import urllib3

from pt2hub.client.client import Client
from pt2hub.client.http import long_poll, server_away, transport
from pt2hub.client.http.server_away import ServerAwayWarning
from pt2hub.client.http.transport import Transport
from pt2hub.errors import DatabaseUnavailable, ServerUnreachable
from support.ports import free_ports
from support.registry import a_spec
from support.stub import Answer

if TYPE_CHECKING:
    from pathlib import Path

    from support.stub import Stub

PROBLEM = "application/problem+json"
UNTIL = r"; trying again until \d\d:\d\d:\d\d \(Ctrl-C stops\)"


@pytest.fixture
def nobody() -> str:
    """An address at which no server answers."""
    (port,) = free_ports(1)
    return f"http://127.0.0.1:{port}"


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Calls give up, and say that they wait, after less time than usual."""
    monkeypatch.setattr(server_away, "_QUIET_S", 0.3)
    monkeypatch.setattr(server_away, "_RETRY_S", 1.5)
    monkeypatch.setattr(long_poll, "_OUTAGE_TIMEOUT_S", 1.5)


def said(caught: pytest.WarningsRecorder) -> list[str]:
    return [str(item.message) for item in caught if item.category is ServerAwayWarning]


def test_an_upload_that_no_server_answers_says_once_that_it_goes_on(nobody: str, tmp_path: Path) -> None:
    (tmp_path / "weights").write_bytes(b"weights")
    with (
        Client(url=nobody) as client,
        pytest.warns(ServerAwayWarning) as caught,
        pytest.raises(ServerUnreachable),
    ):
        client.blobs.upload(tmp_path / "weights")
    (text,) = said(caught)
    assert re.fullmatch(f"no server answers at {nobody}{UNTIL}", text)


def test_waits_and_reports_say_it_too(nobody: str) -> None:
    evaluation = {"version": "a/b@1", "metric": "accuracy", "value": 1.0}
    with Client(url=nobody) as client:
        for call in (
            lambda: list(client.builds.follow_logs("b1")),
            lambda: client.aliases.wait("a/b", "prod"),
            lambda: client.performance.report_evaluations([evaluation]),
        ):
            with pytest.warns(ServerAwayWarning) as caught, pytest.raises(ServerUnreachable):
                call()
            (text,) = said(caught)
            assert re.fullmatch(f"no server answers at {nobody}{UNTIL}", text)


def test_a_server_without_its_database_is_named_with_what_it_says(stub: Stub, tmp_path: Path) -> None:
    (tmp_path / "weights").write_bytes(b"weights")
    body = DatabaseUnavailable("The database is away").as_dict() | {"detail": "The database is away"}
    stub.script = [Answer(503, json.dumps(body).encode(), PROBLEM)]
    with (
        Client(url=stub.url) as client,
        pytest.warns(ServerAwayWarning) as caught,
        pytest.raises(DatabaseUnavailable),
    ):
        client.blobs.upload(tmp_path / "weights")
    (text,) = said(caught)
    assert re.fullmatch(f"{stub.url} answers: The database is away{UNTIL}", text)


def test_a_server_that_accepts_and_is_silent_is_said_after_its_first_time_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(server_away, "_QUIET_S", 60.0)
    monkeypatch.setattr(transport, "_DOCUMENT_TIMEOUT", urllib3.Timeout(connect=1.0, read=0.1))
    with socket.create_server(("127.0.0.1", 0)) as silent:
        asking = Transport(f"http://127.0.0.1:{silent.getsockname()[1]}")
        with pytest.warns(ServerAwayWarning) as caught, pytest.raises(ServerUnreachable):
            asking.get("/x")
        asking.close()
    assert said(caught) == [f"no server answers at {asking.url}; trying again at most 3 times (Ctrl-C stops)"]


def test_publish_says_on_stderr_whom_it_waits_for_and_ctrl_c_ends_it(nobody: str, tmp_path: Path) -> None:
    (tmp_path / "spec.json").write_text(json.dumps(a_spec()))
    (tmp_path / "own.safetensors").write_bytes(b"weights")
    command = [
        sys.executable,
        "-m",
        "pt2hub",
        "publish",
        "spec.json",
        "--weights",
        "own.safetensors",
        "--json",
    ]
    env = {
        "PT2HUB_HOME": str(tmp_path / "home"),
        "PT2HUB_URL": nobody,
        "PATH": "",
        "PYTHONPATH": ":".join(sys.path),
    }
    with subprocess.Popen(
        command, env=env, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        begin = time.monotonic()
        line = process.stderr.readline()
        waited = time.monotonic() - begin
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=30)
    assert re.fullmatch(f"pt2hub: warning: no server answers at {nobody}{UNTIL}\n", line)
    assert waited < 10.0
    assert (process.returncode, err) == (130, "")
    assert json.loads(out)["error"]["message"] == "The command was interrupted"
