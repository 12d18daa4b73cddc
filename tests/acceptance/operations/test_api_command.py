from __future__ import annotations

import http.client
import os
import signal
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import psycopg
import pytest

from pt2hub.domain.digests import digest_bytes
from support.api_process import answer
from support.ports import free_ports
from support.proxy import Proxy
from support.running import Api, oldest, processes_of, wait_for_none
from support.s3 import READER

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from pt2hub.server.container import Container
    from support.s3 import S3Server

DATA = b"0123456789" * 1000


@pytest.fixture(autouse=True)
def _nothing_left(tmp_path: Path) -> Iterator[None]:
    yield
    for pid in processes_of(tmp_path):
        os.kill(pid, signal.SIGKILL)


def apis(folder: Path) -> list[int]:
    """The processes that answer, and their parents."""
    return sorted(pid for pid, words in processes_of(folder).items() if "pt2hub.server.serve" in words)


def test_it_serves_logs_json_keeps_nothing_here_and_ends_with_0(tmp_path: Path, migrated_url: str) -> None:
    api = Api(tmp_path, migrated_url).wait_ready()
    assert api.get("/readyz") == (200, {"status": "ready"})
    assert api.end(signal.SIGTERM) == 0
    assert processes_of(tmp_path) == {}
    assert not (tmp_path / "home").exists()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["api.log", "blobs"]
    assert [line["event"] for line in api.lines()] == ["the API answers", "the API stops"]


@pytest.mark.parametrize(
    ("unset", "variable"),
    [
        ({"PT2HUB_DATABASE_URL": ""}, "PT2HUB_DATABASE_URL"),
        ({"PT2HUB_STORAGE": ""}, "PT2HUB_STORAGE"),
        ({"PT2HUB_STORAGE": "/nowhere/at/all"}, "PT2HUB_STORAGE"),
    ],
)
def test_without_a_database_or_a_storage_it_says_which_variable_to_set(
    tmp_path: Path, migrated_url: str, unset: Mapping[str, str], variable: str
) -> None:
    api = Api(tmp_path, migrated_url, environ=unset)
    assert api.process.wait(30) == 1
    said = api.log.read_text()
    assert said.startswith(f"pt2hub: {variable}: ")
    assert "[bad_configuration]" in said
    assert "Traceback" not in said


def test_what_only_a_worker_can_decide_is_refused(tmp_path: Path, migrated_url: str) -> None:
    api = Api(tmp_path, migrated_url, environ={"PT2HUB_ISOLATION": "auto"})
    assert api.process.wait(30) == 1
    said = api.log.read_text()
    assert said.startswith("pt2hub: PT2HUB_ISOLATION: auto is only valid for workers")
    assert "[bad_configuration]" in said


def said_of(folder: Path, database_url: str, environ: Mapping[str, str]) -> str:
    """What an API says that refuses to start on a storage."""
    api = Api(folder, database_url, environ=environ)
    assert api.process.wait(60) == 1
    said = api.log.read_text()
    assert said.startswith("pt2hub: PT2HUB_STORAGE: ")
    assert "Traceback" not in said
    return said


def test_a_bucket_that_is_not_there_is_told_in_one_sentence(
    tmp_path: Path, migrated_url: str, s3_url: str
) -> None:
    said = said_of(tmp_path, migrated_url, {"PT2HUB_STORAGE": s3_url.replace("artifacts", "absent")})
    assert "s3://absent" in said
    assert "[bad_configuration]" in said


def test_credentials_that_may_not_write_are_refused_before_anybody_uploads(
    tmp_path: Path, migrated_url: str, s3_url: str
) -> None:
    said = said_of(tmp_path, migrated_url, {"PT2HUB_STORAGE": s3_url, "AWS_ACCESS_KEY_ID": READER})
    assert "AccessDenied" in said
    assert "[bad_configuration]" in said


def test_a_server_that_ignores_conditional_creates_is_refused(
    tmp_path: Path, migrated_url: str, s3_url: str, s3_server: S3Server
) -> None:
    with Proxy(s3_server.endpoint) as proxy:
        proxy.fault("answer", on="^PUT .*if-none-match|^PUT .*If-None-Match", status=200, body=b"")
        environ = {"PT2HUB_STORAGE": s3_url, "AWS_ENDPOINT_URL_S3": proxy.url}
        said = said_of(tmp_path, migrated_url, environ)
    assert "ignores the condition" in said
    assert "[storage_unsafe]" in said


def test_a_storage_that_does_not_answer_ends_the_start_as_a_database_does(
    tmp_path: Path, migrated_url: str, s3_url: str
) -> None:
    (port,) = free_ports(1)
    away = {"PT2HUB_STORAGE": s3_url, "AWS_ENDPOINT_URL_S3": f"http://127.0.0.1:{port}"}
    api = Api(tmp_path, migrated_url, environ=away)
    assert api.process.wait(60) == 1
    assert "[storage_unavailable]" in api.log.read_text()
    assert wait_for_none(tmp_path) == {}


def test_a_database_with_an_older_schema_is_refused_and_left_as_it_is(
    tmp_path: Path, database_url: str
) -> None:
    api = Api(tmp_path, database_url)
    assert api.process.wait(30) == 1
    said = api.log.read_text()
    assert "pt2hub admin migrate" in said
    assert "[schema_older]" in said
    with psycopg.connect(database_url) as connection:
        assert connection.execute("SELECT to_regclass('alembic_version')").fetchone() == (None,)


def test_a_database_with_a_newer_schema_is_refused(tmp_path: Path, migrated_url: str) -> None:
    with psycopg.connect(migrated_url) as connection:
        connection.execute("UPDATE alembic_version SET version_num = '9999_from_the_future'")
    api = Api(tmp_path, migrated_url)
    assert api.process.wait(30) == 1
    assert "[schema_newer]" in api.log.read_text()


def test_a_request_in_flight_at_sigterm_is_answered_and_later_ones_are_refused(
    tmp_path: Path, migrated_url: str
) -> None:
    api = Api(tmp_path, migrated_url, "--processes", "2").wait_ready()
    with psycopg.connect(migrated_url) as locking, ThreadPoolExecutor(8) as pool:
        locking.execute("LOCK TABLE models IN ACCESS EXCLUSIVE MODE")
        asked = [pool.submit(api.get, "/api/v1/models") for _ in range(8)]
        wait_for_waiting(locking, 8)
        api.process.send_signal(signal.SIGTERM)
        wait_until_refused(api.address)
        assert not any(request.done() for request in asked)
        locking.rollback()
        assert [request.result()[0] for request in asked] == [200] * 8
    assert api.process.wait(20) == 0
    assert wait_for_none(tmp_path) == {}


def test_it_demands_a_sandbox_by_default_and_takes_an_upload_in_flight_at_sigterm_to_its_end(
    tmp_path: Path, migrated_url: str, container: Container
) -> None:
    container.isolation.allow("process")
    api = Api(tmp_path, migrated_url).wait_ready()
    assert container.isolation.required_level() == "sandbox"
    token = container.access.create_token("test")
    digest = digest_bytes(DATA)
    with socket.create_connection(api.address, timeout=20) as connection:
        head = f"PUT /api/v1/blobs/{digest} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(DATA)}\r\n"
        connection.sendall(f"{head}Authorization: Bearer {token}\r\n\r\n".encode() + DATA[:5000])
        time.sleep(0.3)
        api.process.send_signal(signal.SIGTERM)
        wait_until_refused(api.address)
        connection.sendall(DATA[5000:])
        status, uploaded = answer(connection)
    assert (status, uploaded["size"]) == (201, len(DATA))
    assert api.process.wait(20) == 0


def test_it_demands_no_sandbox_where_told_so_and_a_request_longer_than_the_grace_does_not_hold_up_its_end(
    tmp_path: Path, migrated_url: str, container: Container
) -> None:
    container.isolation.allow("sandbox")
    environ = {"PT2HUB_GRACE_SECONDS": "1", "PT2HUB_ISOLATION": "process"}
    api = Api(tmp_path, migrated_url, environ=environ).wait_ready()
    assert container.isolation.required_level() == "process"
    with psycopg.connect(migrated_url) as locking, ThreadPoolExecutor(1) as pool:
        locking.execute("LOCK TABLE models IN ACCESS EXCLUSIVE MODE")
        asked = pool.submit(api.get, "/api/v1/models")
        wait_for_waiting(locking, 1)
        began = time.monotonic()
        assert api.end() == 0
        assert 0.9 < time.monotonic() - began < 6
        with pytest.raises((OSError, http.client.HTTPException)):
            asked.result(20)
    assert wait_for_none(tmp_path) == {}


def test_a_process_that_dies_is_started_again_and_nobody_is_refused_meanwhile(
    tmp_path: Path, migrated_url: str
) -> None:
    api = Api(tmp_path, migrated_url, environ={"PT2HUB_API_PROCESSES": "2"}).wait_ready()
    wait_for(lambda: len(apis(tmp_path)) == 4)  # each process that answers has one above it
    os.kill(oldest(tmp_path, "pt2hub.server.serve"), signal.SIGKILL)
    wait_for(lambda: any("restarting" in line["event"] for line in api.lines()))
    assert {api.get("/healthz")[0] for _ in range(40)} == {200}
    assert len(apis(tmp_path)) == 4
    assert api.end() == 0


def wait_for(condition: Callable[[], bool]) -> None:
    """Waits until a condition holds."""
    until = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.02)


def wait_for_waiting(connection: psycopg.Connection[tuple[object, ...]], count: int) -> None:
    """Waits until so many sessions wait for a lock."""
    waiting = """
        SELECT count(*) FROM pg_locks JOIN pg_database ON pg_database.oid = database
        WHERE NOT granted AND datname = current_database()
    """
    wait_for(lambda: connection.execute(waiting).fetchone() == (count,))


def wait_until_refused(address: tuple[str, int]) -> None:
    """Waits until nobody listens there any more."""

    def refused() -> bool:
        try:
            socket.create_connection(address, timeout=5).close()
        except ConnectionRefusedError:
            return True
        return False

    wait_for(refused)
