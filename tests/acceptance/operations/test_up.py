from __future__ import annotations

import contextlib
import hashlib
import json
import os
import signal
import socket
import stat
import subprocess
import sys
import sysconfig
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from pt2hub.server.db.embedded import EmbeddedPostgres
from support.running import Up, clean_environ, oldest, processes_of, wait_for_none

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ROOT = Path(__file__).parents[3]
SPEC = b"""
model: vision/resnet18
source: {factory: "torchvision.models:resnet18"}
inputs: [{name: x, shape: [batch, 3, 224, 224], generate: {normal: {}}}]
dims: {batch: {min: 1, max: 32, example: 2}}
targets: [torch2.13-cpu-x86_64_v3]
"""


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    """A home; whatever the test leaves running on it is ended."""
    path = tmp_path / "home"
    yield path
    for pid in processes_of(path):
        os.kill(pid, signal.SIGKILL)


def test_it_serves_ends_at_ctrl_c_and_keeps_all_over_restarts_but_leaves_a_newer_database_alone(
    home: Path,
) -> None:
    blob = b"bytes"
    path = "/api/v1/blobs/sha256:" + hashlib.sha256(blob).hexdigest()
    up = Up(home).wait_ready()
    settings = up.settings
    token = settings["token"]
    assert settings["url"] in up.output
    assert token in up.output
    assert stat.S_IMODE((home / "config.toml").stat().st_mode) == 0o600
    assert up.request("GET", "/readyz") == (200, {"status": "ready"})
    assert len(processes_of(home)) > 3
    status, version = up.request("POST", "/api/v1/versions", SPEC, token=token)
    assert (status, version["number"]) == (201, 1)
    assert up.request("PUT", path, blob, token=token)[0] == 201
    assert up.end(signal.SIGINT) == (0, "")
    assert processes_of(home) == {}
    assert up.progress == [
        "up: starting PostgreSQL",
        "up: upgrading the database schema",
        f"up: starting the API on {settings['url']}",
        "up: stopping the API",
        "up: stopping PostgreSQL",
        "up: stopped",
    ]

    up = Up(home).wait_ready()
    assert token not in up.output
    assert up.settings["token"] == token
    assert up.request("POST", "/api/v1/versions", SPEC, token=token)[0] == 200
    assert up.request("GET", "/api/v1/models/vision/resnet18/versions/1")[1]["number"] == 1
    assert up.request("PUT", path, blob, token=token)[0] == 201
    assert up.end(signal.SIGKILL)[0] == -signal.SIGKILL
    up = Up(home).wait_ready()  # while the old database still stops
    assert up.request("POST", "/api/v1/versions", SPEC, token=token)[0] == 200
    assert up.end(signal.SIGTERM)[0] == 0
    assert wait_for_none(home) == {}, "neither the killed one nor this one leaves orphans"

    with EmbeddedPostgres(home / "server" / "db") as database, psycopg.connect(database.url) as connection:
        connection.execute("UPDATE alembic_version SET version_num = '9999_from_the_future'")
        connection.execute("UPDATE server_settings SET value = '9998' WHERE name = 'schema_works_from'")
    code, stderr = Up(home).wait()
    assert code == 1
    assert "[schema_newer]" in stderr
    assert "Traceback" not in stderr
    assert wait_for_none(home) == {}


def test_a_taken_port_is_named_with_what_to_do(home: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        code, stderr = Up(home, "--port", str(port)).wait()
    assert code == 1
    assert f"Port {port} is already in use" in stderr
    assert "PT2HUB_PORT" in stderr
    assert "[port_taken]" in stderr
    assert wait_for_none(home) == {}


@pytest.mark.parametrize("below", ["", "below"])
def test_an_unusable_home_is_one_sentence(tmp_path: Path, below: str) -> None:
    (tmp_path / "file").write_text("")  # modes do not bind root, but a file is no directory to anyone
    code, stderr = Up(tmp_path / "file" / below).wait()
    assert code == 1
    assert "[home_unusable]" in stderr
    assert "PT2HUB_HOME" in stderr
    assert "Traceback" not in stderr


def test_several_api_processes_share_the_port_and_one_that_dies_comes_back(home: Path) -> None:
    up = Up(home, environ={"PT2HUB_API_PROCESSES": "2"}).wait_ready()
    assert len(sockets_served(home)) == 2
    os.kill(oldest(home, "pt2hub.server.serve"), signal.SIGKILL)
    assert up.process.stderr is not None
    next(line for line in up.process.stderr if "restarting" in line)
    assert {up.request("GET", "/readyz")[0] for _ in range(20)} == {200}
    assert len(sockets_served(home)) == 2
    assert up.end() == (0, "")
    assert processes_of(home) == {}


def sockets_served(home: Path) -> set[str]:
    return {
        arguments.rpartition("--fd ")[2].strip()
        for arguments in processes_of(home).values()
        if "pt2hub.server.serve" in arguments
    }


def kill_database(home: Path) -> int:
    """Kills the database's first process; its sessions notice. Returns its process id."""
    pid = oldest(home, "/postgres -D")
    os.kill(pid, signal.SIGKILL)
    return pid


def wait_until(condition: Callable[[], bool], *, seconds: float = 20.0) -> float:
    """Waits for a condition and returns how long that took."""
    began = time.monotonic()
    while not condition():
        assert time.monotonic() - began < seconds
        time.sleep(0.02)
    return time.monotonic() - began


def test_an_api_and_a_database_that_die_are_started_again_whatever_they_were_doing(home: Path) -> None:
    up = Up(home).wait_ready()
    os.kill(oldest(home, "pt2hub.server.serve"), signal.SIGKILL)
    assert up.process.stderr is not None
    told = next(line for line in up.process.stderr if not line.startswith("up: "))
    assert "The API ended with signal SIGKILL; restarting in 0.5 s" in told
    assert up.request("GET", "/readyz")[0] == 200  # the connection waits in the socket's backlog
    apis = {pid for pid, words in processes_of(home).items() if "pt2hub.server.serve" in words}

    def ask_all() -> set[int]:
        with ThreadPoolExecutor(24) as pool:  # more than the API has threads: each of its connections is used
            return set(pool.map(lambda _: up.request("GET", "/readyz")[0], range(72)))

    for _ in range(2):
        assert ask_all() == {200}
        before = kill_database(home)
        told = next(line for line in up.process.stderr if "PostgreSQL ended" in line)
        assert "PostgreSQL ended with signal SIGKILL; restarting" in told
        assert wait_until(lambda: up.request("GET", "/readyz")[0] == 200) < 10
        assert ask_all() == {200}
        assert oldest(home, "/postgres -D") != before
    with psycopg.connect(EmbeddedPostgres(home / "server" / "db").url, autocommit=True) as connection:
        asking = threading.Thread(target=_sleep_in, args=[connection])
        asking.start()
        kill_database(home)
        next(line for line in up.process.stderr if "restarting" in line)
        assert wait_until(lambda: up.request("GET", "/readyz")[0] == 200) < 10
        asking.join()
    status, _ = up.request("POST", "/api/v1/versions", SPEC, token=up.settings["token"])
    assert status == 201
    assert apis <= set(processes_of(home))
    assert up.end() == (0, "")
    assert processes_of(home) == {}


def _sleep_in(connection: psycopg.Connection[Any]) -> None:
    with contextlib.suppress(psycopg.OperationalError):
        connection.execute("SELECT pg_sleep(60)")


def test_a_database_that_dies_again_and_again_ends_up_with_a_sentence(home: Path) -> None:
    up = Up(home, "--port", "0", "--json")
    assert up.process.stdout is not None
    assert json.loads(up.process.stdout.readline())["url"] == up.settings["url"]
    kills: list[int] = []
    killer = threading.Thread(target=_kill_database_until_up_ends, args=[up, kills])
    killer.start()
    out, err = up.process.communicate(timeout=120)
    killer.join()
    assert (up.process.returncode, out) == (1, "")
    assert "The embedded PostgreSQL ended" in err
    assert "[database_unavailable]" in err
    assert len(kills) >= 5  # within a minute
    assert "Traceback" not in err
    assert processes_of(home) == {}


def _kill_database_until_up_ends(up: Up, kills: list[int]) -> None:
    while up.process.poll() is None:
        with contextlib.suppress(ValueError, OSError):  # there is none just now
            if up.request("GET", "/readyz")[0] == 200 and oldest(up.home, "/postgres -D") not in kills:
                kills.append(kill_database(up.home))
        time.sleep(0.1)


@pytest.mark.parametrize("after", [0.8, 1.6])
def test_a_signal_at_any_time_of_the_start_ends_it(home: Path, after: float) -> None:
    up = Up(home)
    deadline = time.monotonic() + 30
    while not (home / "server" / "lock").exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    time.sleep(after - 0.8)
    code, stderr = up.end(signal.SIGTERM)
    assert code == 0, stderr
    assert wait_for_none(home) == {}


def test_a_running_up_takes_operators_tokens_and_refuses_a_second_up_and_uploads_beyond_its_limit(
    home: Path,
) -> None:
    def admin() -> str:
        return subprocess.run(
            [sys.executable, "-m", "pt2hub", "admin", "token", "--name", "ci"],
            env=clean_environ(home),
            check=True,
            capture_output=True,
            text=True,
        ).stdout.strip()

    tokens = [admin()]
    assert wait_for_none(home) == {}
    up = Up(home, environ={"PT2HUB_MAX_BLOB_BYTES": "1000"}).wait_ready()
    tokens.append(admin())
    for token in tokens:
        assert up.request("POST", "/api/v1/versions", SPEC, token=token)[0] in {200, 201}
    # Who starts a server may force what a policy refuses; a token of a pipeline may not.
    alias = "/api/v1/models/vision/resnet18/aliases/prod"
    move = json.dumps({"number": 1, "expected": None, "reason": "x", "force": True}).encode()
    assert up.request("PUT", alias, move, token=tokens[0])[1]["code"] == "forbidden"
    assert up.request("PUT", alias, move, token=up.settings["token"])[1]["code"] == "not_ready"

    code, stderr = Up(home).wait()
    assert code == 1
    assert f"process {up.process.pid}, serving {up.settings['url']}" in stderr
    assert "[home_in_use]" in stderr

    host, port = up.settings["url"].removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=20) as connection:
        head = f"PUT /api/v1/blobs/sha256:{'0' * 64} HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000000\r\n"
        connection.sendall(f"{head}Authorization: Bearer {up.settings['token']}\r\n\r\n".encode())
        assert connection.recv(100).startswith(b"HTTP/1.1 413"), "before its body"
    assert up.request("GET", "/healthz")[0] == 200
    assert up.end() == (0, "")


def test_it_runs_uninstalled(home: Path, tmp_path: Path) -> None:
    carried = tmp_path / "carried"
    carried.mkdir()
    for entry in Path(sysconfig.get_path("purelib")).iterdir():
        if "pt2hub" not in entry.name:  # no metadata, no editable install
            (carried / entry.name).symlink_to(entry)
    process = subprocess.Popen(
        [
            getattr(sys, "_base_executable", sys.executable),
            "-m",
            "pt2hub",
            "up",
            "--no-worker",
            "--port",
            "0",
        ],
        cwd=ROOT,
        env={**clean_environ(home), "PYTHONPATH": f"registry:workers:{carried}"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert process.stdout is not None
    output = ""
    with process.stdout as lines:
        for line in lines:
            output += line
            if "Ctrl-C" in line:
                process.send_signal(signal.SIGINT)
    assert process.wait(30) == 0, output
