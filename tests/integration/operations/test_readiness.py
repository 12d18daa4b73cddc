"""What `/readyz` tells about disks that are full and databases that accept no writes, and what still works then."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import psycopg
import pytest
from botocore.exceptions import ClientError

from pt2hub import errors
from pt2hub.server.api.app import create_app
from pt2hub.server.blobs.local import LocalStorage
from pt2hub.server.blobs.s3 import S3Storage
from pt2hub.server.container import Container, open_container
from pt2hub.server.services.operations import health

if TYPE_CHECKING:
    from collections.abc import Iterator

    from flask.testing import FlaskClient

    from pt2hub.server.config import ServerConfig


class Usage(NamedTuple):
    """As `shutil.disk_usage` returns it."""

    total: int
    used: int
    free: int


def ready(api: FlaskClient, query: str = "") -> tuple[int, str]:
    answer = api.get(f"/readyz{query}")
    document = answer.get_json(force=True)
    return answer.status_code, document.get("code") or document["status"]


@pytest.fixture
def clock(container: Container, monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time of the health service."""
    now = [0.0]
    monkeypatch.setattr(container.health, "_clock", lambda: now[0])
    return now


def refuse(error: errors.Pt2hubError) -> Any:
    def probe(_: object) -> None:
        raise error

    return probe


@pytest.mark.parametrize(
    ("error", "status"), [(errors.StorageFull("no room"), 507), (errors.StorageUnavailable("read-only"), 503)]
)
def test_a_storage_that_fails_writes_is_told_and_looked_at_again_after_a_while(
    api: FlaskClient,
    clock: list[float],
    monkeypatch: pytest.MonkeyPatch,
    error: errors.Pt2hubError,
    status: int,
) -> None:
    assert ready(api) == (200, "ready")
    with monkeypatch.context() as patch:
        patch.setattr(LocalStorage, "probe", refuse(error))
        assert ready(api) == (200, "ready"), "the last try counts for some seconds"
        clock[0] = 11
        assert ready(api) == (status, error.code)
        assert ready(api, "?reads_only=true") == (200, "ready")
        assert api.get("/healthz").status_code == 200
    assert ready(api) == (status, error.code)
    clock[0] = 22
    assert ready(api) == (200, "ready")


def test_a_storage_with_little_room_is_full(api: FlaskClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LocalStorage, "free", lambda _: 1000)
    assert ready(api) == (507, "storage_full")
    assert "only 1,000 B left, less than the 64 MiB that are kept free" in api.get("/readyz").text


def test_a_full_disk_of_the_database_is_told(api: FlaskClient, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def usage(folder: str) -> Usage:
        asked.append(folder)
        return Usage(1 << 40, 1 << 40, 1000)

    monkeypatch.setattr(health.shutil, "disk_usage", usage)
    monkeypatch.setattr(LocalStorage, "free", lambda _: None)
    assert ready(api) == (503, "database_full")
    assert asked[0].endswith("data"), "the embedded database says where it is"


@pytest.fixture
def read_only(container: Container, config: ServerConfig) -> Iterator[None]:
    """The database accepts no writes of new connections."""
    url = str(config.database_url)
    set_mode(url, "on")
    container._sessions.reader._engine.dispose()
    yield
    set_mode(url, "off")


def set_mode(url: str, mode: str) -> None:
    with psycopg.connect(url, autocommit=True, options="-c default_transaction_read_only=off") as connection:
        name = connection.execute("SELECT current_database()").fetchone()
        assert name
        connection.execute(f"ALTER DATABASE {name[0]} SET default_transaction_read_only = {mode}")


def test_a_read_only_database_is_told_and_what_reads_still_works(
    web: FlaskClient, container: Container, request: pytest.FixtureRequest
) -> None:
    token = container.access.create_token("reader", scopes=["read"])
    session = container.web_sessions.open(token)
    request.getfixturevalue("read_only")
    assert ready(web) == (503, "database_read_only")
    assert ready(web, "?reads_only=true") == (200, "ready")
    headers = {"Authorization": f"Bearer {token}"}
    assert web.get("/api/v1/whoami", headers=headers).get_json()["name"] == "reader"
    actor = container.web_sessions.actor(session)
    assert actor is not None
    answer = web.post("/sign-in", data={"token": token}, headers={"Sec-Fetch-Site": "same-origin"})
    assert answer.status_code == 503
    assert "The database accepts no writes" in answer.get_data(as_text=True)


def test_a_sign_in_says_that_the_disk_is_full(
    web: FlaskClient, container: Container, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = container.access.create_token("ada")

    def full(*_: Any, **__: Any) -> None:
        raise psycopg.errors.DiskFull("could not extend file: No space left on device")

    monkeypatch.setattr("pt2hub.server.db.stores.access.web_sessions.WebSessionStore.add", full)
    monkeypatch.setattr("pt2hub.server.db.stores.access.rate_counters.RateCounterStore.add", full)
    answer = web.post("/sign-in", data={"token": token}, headers={"Sec-Fetch-Site": "same-origin"})
    assert answer.status_code == 503
    assert "disk is full" in answer.get_data(as_text=True)
    headers = {"Authorization": f"Bearer {token}"}
    assert web.get("/api/v1/whoami", headers=headers).status_code == 200, (
        "limits are counted per process meanwhile"
    )


def test_a_bucket_that_takes_no_writes_is_told(
    config: ServerConfig, s3_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = replace(config, storage=s3_url)
    with open_container(config, database_url=str(config.database_url)) as container:
        api = create_app(container, config).test_client()
        assert ready(api) == (200, "ready")
        container.health._probed_at = float("-inf")
        assert isinstance(container.storage, S3Storage)

        def full(**_: Any) -> None:
            answer = {"Error": {"Code": "QuotaExceeded"}, "ResponseMetadata": {"HTTPStatusCode": 507}}
            raise ClientError(answer, "PutObject")  # type: ignore[arg-type]  # as a server sends it

        monkeypatch.setattr(container.storage._bucket.client, "put_object", full)
        assert ready(api) == (507, "storage_full")
        assert ready(api, "?reads_only=true") == (200, "ready")
