"""kill -9 of the API while it is asked to change something: whoever asks again gets what they asked for, once."""

from __future__ import annotations

import contextlib
import http.client
import os
import signal
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from pt2hub.client.client import Client
from pt2hub.client.config import ClientConfig
from pt2hub.domain.digests import Digest, digest_bytes
from pt2hub.errors import ServerUnreachable
from pt2hub.server.db.embedded import EmbeddedPostgres
from support.running import Up, processes_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pt2hub.wire.responses import VersionView

LONG = b"0123456789abcdef" * (1 << 18)


@pytest.fixture
def up(tmp_path: Path) -> Iterator[Up]:
    """A server with its own database."""
    running = Up(tmp_path / "home").wait_ready()
    yield running
    assert running.end()[0] == 0
    assert processes_of(tmp_path / "home") == {}


@pytest.fixture
def client(up: Up, tmp_path: Path) -> Iterator[Client]:
    """A client of it that may publish."""
    settings = ClientConfig(home=tmp_path / "client", url=up.settings["url"], token=up.settings["token"])
    with Client(settings) as made:
        yield made


@pytest.fixture
def database(up: Up) -> Iterator[psycopg.Connection[Any]]:
    """A session in its database."""
    with psycopg.connect(EmbeddedPostgres(up.home / "server" / "db").url) as connection:
        yield connection


def spec(number: int = 1) -> dict[str, Any]:
    return {
        "model": "kills/resnet18",
        "source": {"factory": "torchvision.models:resnet18"},
        "inputs": [{"name": "x", "shape": [number, 3, 224, 224], "generate": {"normal": {}}}],
        "targets": ["torch2.13-cpu-x86_64_v3"],
    }


def kill_api(home: Path) -> None:
    """Kills every process of the API at once."""
    for pid, words in processes_of(home).items():
        if "pt2hub.server.serve" in words:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def asked_again(ask: Callable[[], Any], *, seconds: float = 60.0) -> Any:
    """The first answer of one that asks until there is one."""
    until = time.monotonic() + seconds
    while True:
        try:
            return ask()
        except ServerUnreachable:
            assert time.monotonic() < until
            time.sleep(0.1)


def rows(database: psycopg.Connection[Any], statement: str) -> list[Any]:
    database.rollback()
    return [row[0] for row in database.execute(statement).fetchall()]


def stored(home: Path) -> dict[Digest, bytes]:
    """What lies in the storage under a digest."""
    folder = home / "server" / "blobs" / "blobs" / "sha256"
    files = [path for path in folder.rglob("*") if path.is_file() and not path.name.startswith(".")]
    return {Digest(f"sha256:{path.name}"): path.read_bytes() for path in files}


def test_a_submit_or_an_upload_that_was_killed_leaves_nothing_and_the_next_one_is_whole(
    up: Up, client: Client, database: psycopg.Connection[Any], tmp_path: Path
) -> None:
    with ThreadPoolExecutor(1) as pool:
        database.execute("LOCK TABLE builds IN ACCESS EXCLUSIVE MODE")  # the version is inserted by then
        killed = pool.submit(client.publish, spec())
        waiting = "SELECT count(*) FROM pg_locks WHERE relation = 'builds'::regclass AND NOT granted"
        until = time.monotonic() + 20
        while database.execute(waiting).fetchone() == (0,):
            assert time.monotonic() < until
            time.sleep(0.02)
        kill_api(up.home)
        with pytest.raises(ServerUnreachable):
            killed.result(30)
        database.rollback()
    version: VersionView = asked_again(lambda: client.publish(spec()))
    assert version.number == 1
    assert rows(database, "SELECT number FROM versions") == [1]
    assert rows(database, "SELECT id FROM builds") == [version.builds[0].id]
    assert rows(database, "SELECT args ->> 'build_id' FROM procrastinate_jobs") == [version.builds[0].id]

    digest = digest_bytes(LONG)
    host, port = up.settings["url"].removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=20) as connection:
        head = f"PUT /api/v1/blobs/{digest} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(LONG)}\r\n"
        token = up.settings["token"]
        connection.sendall(f"{head}Authorization: Bearer {token}\r\n\r\n".encode() + LONG[: len(LONG) // 2])
        time.sleep(0.3)
        kill_api(up.home)
        with contextlib.suppress(OSError, http.client.HTTPException):
            assert connection.recv(100) == b""
    assert stored(up.home) == {}
    (tmp_path / "weights").write_bytes(LONG)
    assert asked_again(lambda: client.blobs.upload(tmp_path / "weights")) == digest
    assert stored(up.home) == {digest: LONG}


def test_submits_and_uploads_among_many_kills_happen_once_each(
    up: Up, client: Client, database: psycopg.Connection[Any], tmp_path: Path
) -> None:
    over = threading.Event()
    kills: list[float] = []

    def kill_now_and_then() -> None:
        for pause in (0.1, 0.2, 0.05, 0.4):
            asked_again(client.models.list)
            if over.wait(pause):
                return
            kill_api(up.home)
            kills.append(pause)

    killer = threading.Thread(target=kill_now_and_then)
    killer.start()
    try:
        numbers, digests, number = [], [], 0
        while number < 30 or killer.is_alive():
            number += 1
            (tmp_path / f"file{number}").write_bytes(LONG + bytes([number]))
            digests.append(asked_again(lambda name=f"file{number}": client.blobs.upload(tmp_path / name)))
            numbers.append(asked_again(lambda number=number: client.publish(spec(number))).number)
    finally:
        over.set()
        killer.join()
    assert len(kills) == 4
    assert sorted(set(numbers)) == numbers
    assert rows(database, "SELECT number FROM versions ORDER BY number") == numbers
    builds = rows(database, "SELECT id FROM builds ORDER BY id")
    assert len(builds) == number
    assert rows(database, "SELECT args ->> 'build_id' FROM procrastinate_jobs ORDER BY 1") == builds
    assert stored(up.home) == {
        digest: LONG + bytes([number]) for number, digest in enumerate(digests, start=1)
    }
