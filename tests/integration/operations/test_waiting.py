"""Requests that wait for changes, against the server that runs in production: they cost no thread and miss nothing."""

from __future__ import annotations

import http.client
import json
import os
import subprocess
import sys
import time
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from pt2hub.client.client import Client
from pt2hub.client.config import ClientConfig
from pt2hub.domain.limits import Limits
from pt2hub.domain.tokens import Actor
from pt2hub.errors import AliasNotMoved, NotFound, QuotaExceeded, TokenRevoked
from pt2hub.wire.problems import from_dict
from support.slow_clients import healthz_seconds
from support.working import until

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Iterator, Sequence
    from contextlib import AbstractContextManager
    from pathlib import Path

    from support.api_process import ApiProcess


MODEL = "vision/resnet18"
MOVES = f"/api/v1/models/{MODEL}/aliases/prod/moves"
PROMPT_S = 5.0
"""Seconds for what is told at once, on a machine that compiles models beside it; who is not told waits for 40."""
PROBE_S = 2.0
FLEET = 200
LISTENERS = (
    "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity "
    "WHERE query LIKE 'LISTEN %%' AND datname = current_database()"
)


@pytest.fixture(scope="module")
def own_api(start_api: Callable[..., AbstractContextManager[ApiProcess]]) -> Iterator[ApiProcess]:
    """An API in which tokens read the models of their teams."""
    with start_api(PT2HUB_READ="team") as running:
        registry = running.registry
        for seed in (0, 1):
            source = {"factory": "torchvision.models:resnet18", "kwargs": {"seed": seed}}
            registry.published(registry.submit(model=MODEL, source=source))
        yield running


@pytest.fixture(autouse=True)
def prod(own_api: ApiProcess) -> int:
    """Number of the last move of the alias prod, which is on version 1."""
    found = own_api.registry.services.aliases.moves(MODEL, "prod", after=None)
    return found.last if found.number == 1 else move(own_api, 1)


def move(api: ApiProcess, number: int) -> int:
    """Move the alias; return the number of the move."""
    aliases = api.registry.services.aliases
    now = aliases.moves(MODEL, "prod", after=None).number
    return aliases.move(MODEL, "prod", number, expected=now, reason="test", by=Actor("test")).last.sequence


@contextmanager
def asked(
    api: ApiProcess, requests: Sequence[bytes], *, suspended: bool = True
) -> Iterator[list[socket.socket]]:
    """Send each request over a connection of its own."""
    with ExitStack() as stack:
        connections = []
        for request in requests:
            connection = stack.enter_context(api.connect())
            connection.sendall(request)
            connections.append(connection)
        if suspended:
            time.sleep(0.3 + len(requests) / 200)  # until the last one has been looked at
        yield connections


def wait_for_moves(api: ApiProcess, after: int, wait: float = 40) -> bytes:
    return api.head("GET", f"{MOVES}?after={after}&wait={wait}")


def read(connection: socket.socket) -> tuple[http.client.HTTPResponse, dict[str, Any]]:
    response = http.client.HTTPResponse(connection)
    response.begin()
    body = response.read()
    return response, json.loads(body) if body else {}


def read_event(connection: socket.socket, text: bytes) -> None:
    """Read a stream up to a text."""
    received = b""
    while text not in received:
        piece = connection.recv(1 << 16)
        assert piece, received
        received += piece


def test_two_hundred_waiters_leave_the_process_to_others_and_are_answered_at_once(
    own_api: ApiProcess, prod: int
) -> None:
    registry = own_api.registry
    version = registry.submit(model="vision/waiting")
    build = version.builds[0].id
    path = f"/api/v1/models/vision/waiting/versions/{version.number}"
    token = f"Bearer {own_api.token}"
    response, _ = own_api.ask("GET", path, Authorization=token)
    etag = f"If-None-Match: {response.headers['ETag']}"
    versions = [own_api.head("GET", f"{path}?wait=40", etag)] * (FLEET // 4)
    streams = [own_api.head("GET", f"/api/v1/builds/{build}/events")] * (FLEET // 4)
    aliases = [wait_for_moves(own_api, prod)] * (FLEET // 2)
    with (
        asked(own_api, versions) as wait_versions,
        asked(own_api, streams) as followers,
        asked(own_api, aliases) as wait_aliases,
    ):
        for follower in followers:
            read_event(follower, b"event: build")
        probes = healthz_seconds(own_api, lasting=PROBE_S)
        assert sorted(probes)[int(0.95 * len(probes)) - 1] < 0.25, probes
        for _ in range(5):
            began = time.monotonic()
            resolved, _ = own_api.ask("GET", f"/api/v1/resolve?reference={MODEL}@prod", Authorization=token)
            assert resolved.status == 200
            assert time.monotonic() - began < PROMPT_S

        began = time.monotonic()
        second = move(own_api, 2)
        answers = [read(connection) for connection in wait_aliases]
        assert time.monotonic() - began < PROMPT_S
        assert {(response.status, body["number"], body["last"]) for response, body in answers} == {
            (200, 2, second)
        }

        for connection in wait_aliases:  # each asks again, over the same connection
            connection.sendall(wait_for_moves(own_api, second))
        time.sleep(1)
        assert registry.sql(LISTENERS)[0][0] >= 1
        move(own_api, 1)
        registry.claim(build)
        began = time.monotonic()
        assert {read(connection)[1]["number"] for connection in wait_aliases} == {1}
        for connection in wait_versions:
            response, body = read(connection)
            assert (response.status, body["builds"][0]["state"]) == (200, "running")
        for follower in followers:
            read_event(follower, b'"running"')
        assert time.monotonic() - began < 2 * PROMPT_S  # the listener pauses for a second before it connects


def test_a_waiter_gets_every_move_since_the_one_it_knows(own_api: ApiProcess, prod: int) -> None:
    with asked(own_api, [wait_for_moves(own_api, prod)]) as (connection,):
        move(own_api, 2)
        last = move(own_api, 1)
        body = read(connection)[1]
        seen = [each["after"] for each in body["moves"]]
        if body["last"] < last:
            connection.sendall(wait_for_moves(own_api, body["last"]))
            seen += [each["after"] for each in read(connection)[1]["moves"]]
    assert seen == [2, 1]


def test_without_news_an_answer_comes_when_the_time_is_over(own_api: ApiProcess, prod: int) -> None:
    began = time.monotonic()
    with asked(own_api, [wait_for_moves(own_api, prod, wait=1)], suspended=False) as (connection,):
        response, body = read(connection)
    assert (response.status, body["moves"], body["last"]) == (200, [], prod)
    assert 1 <= time.monotonic() - began < 1 + PROMPT_S
    version = f"/api/v1/models/{MODEL}/versions/1"
    token = f"Bearer {own_api.token}"
    etag = own_api.ask("GET", version, Authorization=token)[0].headers["ETag"]
    headers = {"Authorization": token, "If-None-Match": etag}
    assert own_api.ask("GET", f"{version}?wait=0.5", **headers)[0].status == 304
    assert own_api.ask("GET", f"{MOVES}?after=1&wait=51", Authorization=token)[0].status == 422


def test_the_end_of_a_token_ends_its_waits_and_streams(own_api: ApiProcess, prod: int) -> None:
    access, registry = own_api.registry.services.access, own_api.registry
    token, made = access.create("leaver")
    claim = registry.claim(registry.submit(model="vision/left").builds[0].id)

    def head(path: str) -> bytes:
        return own_api.head("GET", path, f"Authorization: Bearer {token}", token=False)

    requests = [head(f"{MOVES}?after={prod}&wait=40"), head(f"/api/v1/builds/{claim.build}/events")]
    with asked(own_api, requests) as (waiter, follower):
        read_event(follower, b"event: build")
        access.revoke(str(made.id))
        time.sleep(0.6)  # a verification counts for half a second
        move(own_api, 2)
        registry.step(claim, "export", "running", detail="secret")
        began = time.monotonic()
        response, body = read(waiter)
        assert response.status == 401
        assert isinstance(from_dict(body), TokenRevoked)
        rest = b""
        while piece := follower.recv(1 << 16):
            rest += piece
            if rest.endswith(b"0\r\n\r\n"):
                break
        assert time.monotonic() - began < PROMPT_S
        assert b"secret" not in rest


def test_what_may_not_be_read_is_waited_for_like_what_does_not_exist(own_api: ApiProcess) -> None:
    token = own_api.registry.services.access.create_token("other team", patterns=["nlp/*"])
    bodies = []
    for model in (MODEL, "vision/unheard"):
        path = f"/api/v1/models/{model}/aliases/prod/moves?after=0&wait=40"
        response, body = own_api.ask("GET", path, Authorization=f"Bearer {token}")
        assert response.status == 404
        bodies.append(body.replace(model.encode(), b"<model>"))
    assert bodies[0] == bodies[1]


def test_one_token_takes_a_bounded_share_of_the_waiters_and_gets_it_back(
    own_api: ApiProcess, prod: int
) -> None:
    most = Limits().waits_per_token
    token = f"Bearer {own_api.token}"

    def briefly() -> tuple[http.client.HTTPResponse, bytes]:
        return own_api.ask("GET", f"{MOVES}?after={prod}&wait=0.1", Authorization=token)

    with asked(own_api, [wait_for_moves(own_api, prod)] * (most + 10)):  # some find no place
        deadline = time.monotonic() + 20
        while (answer := briefly())[0].status != 429:  # until all of them have been looked at
            assert time.monotonic() < deadline
        response, body = answer
        assert (response.status, response.headers["Retry-After"]) == (429, "5")
        assert isinstance(from_dict(json.loads(body)), QuotaExceeded)
        with asked(own_api, [wait_for_moves(own_api, prod - 1)], suspended=False) as (connection,):
            assert read(connection)[0].status == 200, "it need not wait"
        other = own_api.registry.services.access.create_token("other")
        path = f"{MOVES}?after={prod}&wait=0.5"
        assert own_api.ask("GET", path, Authorization=f"Bearer {other}")[0].status == 200
    until(lambda: briefly()[0].status == 200, 20)  # their clients hung up


def test_the_client_waits_for_a_move_and_for_a_version(
    own_api: ApiProcess, prod: int, tmp_path: Path
) -> None:
    config = ClientConfig(home=tmp_path, url=f"http://127.0.0.1:{own_api.port}", token=own_api.token)
    with Client(config) as client:
        assert client.aliases.wait(MODEL, "prod", at=1).moves == ()
        with pytest.raises(AliasNotMoved, match=r"prod is on version 1, not on 7") as late:
            client.aliases.wait(MODEL, "prod", at=7, timeout=0.5)
        assert late.value.hint == (
            f"To wait again without missing a move: pt2hub wait {MODEL} --alias prod --after {prod} --at 7"
        )
        move(own_api, 2)
        last = move(own_api, 1)
        found = client.aliases.wait(MODEL, "prod", at=2, after=prod)
        assert ([each.after for each in found.moves], found.number, found.last) == ([2, 1], 1, last)
        with pytest.raises(NotFound):
            client.aliases.wait("vision/unheard", "prod")
        with pytest.raises(AliasNotMoved, match="canary does not exist and was not moved"):
            client.aliases.wait(MODEL, "canary", timeout=0.1)


def test_the_command_waits_for_a_move_and_tells_it(own_api: ApiProcess, prod: int, tmp_path: Path) -> None:
    kept = {key: value for key, value in os.environ.items() if not key.startswith("PT2HUB_")}
    settings = {"PT2HUB_URL": f"http://127.0.0.1:{own_api.port}", "PT2HUB_TOKEN": own_api.token}
    environ = kept | settings | {"PT2HUB_HOME": str(tmp_path), "PYTHONPATH": os.pathsep.join(sys.path)}

    def run(*arguments: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "pt2hub", "wait", MODEL, *arguments]
        pipe = subprocess.PIPE
        return subprocess.Popen(command, env=environ, stdout=pipe, stderr=pipe, text=True)

    with (
        run("--alias", "prod", "--after", str(prod), "--timeout", "60") as told,
        run("--alias", "prod", "--after", str(prod), "--timeout", "60", "--json") as machine_read,
        run("--alias", "prod", "--at", "7", "--timeout", "0.2") as late,
        run("--alias", "prod", "--target", "x") as wrong,
    ):
        assert (late.communicate(timeout=60)[1].splitlines()[0], late.returncode) == (
            f"pt2hub: {MODEL}@prod: Timeout expired: {MODEL}@prod is on version 1, not on 7",
            1,
        )
        assert "--alias cannot be combined with --target" in wrong.communicate(timeout=60)[1]
        assert wrong.returncode == 2
        last = move(own_api, 2)
        assert told.communicate(timeout=60)[0].splitlines() == [
            f"{MODEL}@prod moved from version 1 to version 2, by test: test",
            f"{MODEL}@prod is on version 2",
        ]
        document = json.loads(machine_read.communicate(timeout=60)[0])
        assert (document["number"], document["last"], len(document["moves"])) == (2, last, 1)
    assert (told.returncode, machine_read.returncode) == (0, 0)
