"""The command line as real processes: exit codes, pipes, Ctrl-C, and servers that answer badly."""

from __future__ import annotations

import http.server
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pt2hub.domain.builds import LogLine
from pt2hub.version import __version__
from support.artifacts import a_target
from support.registry import a_spec

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pt2hub.client.client import Client
    from support.registry import Registry

HERE = a_target().name
MODEL = "vision/resnet18"


def environ(home: Path, url: str, token: str | None = None) -> dict[str, str]:
    """The environment of a user of a server, and of nobody else."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith("PT2HUB_")}
    own = {"PT2HUB_HOME": str(home), "PT2HUB_URL": url, "PYTHONPATH": os.pathsep.join(sys.path)}
    return kept | own | ({"PT2HUB_TOKEN": token} if token else {})


def pt2hub(env: dict[str, str], *args: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pt2hub", *args]
    return subprocess.run(command, env=env, capture_output=True, text=True, timeout=60, check=False)


@pytest.fixture
def env(client: Client) -> dict[str, str]:
    return environ(client.config.home, client.config.url, client.config.token)


@contextmanager
def answering(status: int, headers: dict[str, str], body: bytes) -> Iterator[str]:
    """The address of something that gives every request the same answer."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # the base class's name
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


def told(home: Path, url: str, code: str) -> str:
    """What `pt2hub models` says of a server; the same error for people and for programs."""
    done = pt2hub(environ(home, url), "models")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("pt2hub: ")
    assert done.stderr.endswith(f"  [{code}]\n")
    assert "Traceback" not in done.stderr
    done_json = pt2hub(environ(home, url), "models", "--json")
    assert (done_json.returncode, done_json.stderr) == (1, "")
    error = json.loads(done_json.stdout)["error"]
    assert error["code"] == code
    assert error["hint"]
    return done.stderr


def test_a_server_that_is_down_is_named_with_what_to_do(tmp_path: Path) -> None:
    text = told(tmp_path, "http://127.0.0.1:9", "server_unreachable")
    assert "http://127.0.0.1:9" in text
    assert "pt2hub up" in text
    assert "PT2HUB_URL" in text


def test_a_proxy_that_answers_html_is_called_one(tmp_path: Path) -> None:
    with answering(200, {"Content-Type": "text/html"}, b"<html>Please log in</html>") as url:
        text = told(tmp_path, url, "bad_response")
    assert "text/html" in text
    assert "without a login page" in text


def test_a_server_that_is_too_old_is_told_with_both_releases(tmp_path: Path) -> None:
    headers = {"Content-Type": "application/json", "Pt2hub-Version": "0.0.9"}
    with answering(200, headers, b'{"models": [], "next": null}') as url:
        text = told(tmp_path, url, "server_too_old")
    assert "0.0.9" in text
    assert __version__ in text


def test_a_newer_server_may_say_more_than_this_client_knows(tmp_path: Path) -> None:
    headers = {"Content-Type": "application/json", "Pt2hub-Version": "9.0.0"}
    model = {"name": "a/b", "created_at": "2027-01-01T00:00:00Z", "versions": 1, "stars": 5}
    with answering(200, headers, json.dumps({"models": [model], "total": 1}).encode()) as url:
        done = pt2hub(environ(tmp_path, url), "models")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[1].startswith("a/b ")


@pytest.mark.parametrize("token", [None, "pt2_wrong"])
def test_a_token_that_is_missing_or_wrong_is_told_how_to_get_one(
    client: Client, tmp_path: Path, token: str | None
) -> None:
    spec = tmp_path / "spec.json"
    spec.write_text(json.dumps(a_spec()))
    done = pt2hub(environ(tmp_path, client.config.url, token), "publish", str(spec))
    assert (done.returncode, done.stdout) == (1, "")
    assert "token" in done.stderr
    assert "PT2HUB_TOKEN" in done.stderr
    assert "[unauthorized]" in done.stderr


def test_exit_codes_are_those_of_the_manual(env: dict[str, str]) -> None:
    assert pt2hub(env, "models").returncode == 0
    assert pt2hub(env, "show", "no/model").returncode == 1
    assert pt2hub(env, "models", "--nope").returncode == 2


@contextmanager
def started(command: list[str], env: dict[str, str]) -> Iterator[subprocess.Popen[str]]:
    """A program that is ended where the test fails: leaving it would wait for it."""
    with subprocess.Popen(
        command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            yield process
        except BaseException:
            process.kill()
            raise


def test_ctrl_c_while_waiting_leaves_the_build_and_says_how_to_follow_it(
    env: dict[str, str], served: Registry, tmp_path: Path
) -> None:
    spec = tmp_path / "spec.json"
    spec.write_text(json.dumps(a_spec(targets=[HERE])))  # no worker lives
    command = [sys.executable, "-m", "pt2hub", "publish", str(spec), "--wait"]
    with started(command, env) as process:
        assert process.stderr is not None
        begun = process.stderr.readline() + process.stderr.readline()  # the display is up
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=30)
    (build,) = served.services.publish.version(MODEL, 1).builds
    assert "Ctrl-C stops waiting" in begun
    assert "no worker ever offered this target" in begun
    assert "pt2hub up" in begun
    assert (process.returncode, out) == (130, "")
    assert f"pt2hub logs -f {build.id}" in err
    assert f"pt2hub show {MODEL}@1" in err
    assert "Traceback" not in err
    assert build.state == "queued"


def test_a_reader_of_the_pipe_may_leave_early(env: dict[str, str], served: Registry) -> None:
    served.worker("w1")
    claim = served.claim(served.submit(targets=[HERE]).builds[0].id)
    lines = [LogLine(seq, 0.0, "compile", "info", "x" * 500) for seq in range(1, 501)]
    served.services.builds.report(claim, [], lines)
    command = f"{sys.executable} -m pt2hub logs {claim.build} | head -1; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", command], env=env, capture_output=True, text=True, check=False)
    assert done.stdout.endswith(" compile  " + "x" * 500 + "\n")
    assert (done.returncode, done.stderr) == (1, "")


def test_ctrl_c_leaves_one_json_value_for_programs(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        env = environ(tmp_path, f"http://127.0.0.1:{silent.getsockname()[1]}")
        command = [sys.executable, "-m", "pt2hub", "models", "--json"]
        with started(command, env) as process:
            connection, _ = silent.accept()  # it waits for an answer now
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=30)
            connection.close()
    assert process.returncode == 130
    assert json.loads(out)["error"]["message"] == "The command was interrupted"
    assert err == ""


def test_an_argument_that_is_no_text_is_answered_in_a_sentence(tmp_path: Path) -> None:
    done = pt2hub(environ(tmp_path, "http://127.0.0.1:1"), "models", "\udcff", "--json")  # the byte 0xff
    assert json.loads(done.stdout)["error"]["code"] == "invalid_input"
    assert done.returncode == 1


def test_a_full_disk_under_stdout_is_told_on_stderr(env: dict[str, str]) -> None:
    command = [sys.executable, "-m", "pt2hub", "models", "--json"]
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(command, env=env, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 1
    assert "No space left on device" in done.stderr
    assert "Traceback" not in done.stderr
