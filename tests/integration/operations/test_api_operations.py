"""What monitors, proxies and load balancers see of a process of the API."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import psycopg
import pytest
import urllib3
from prometheus_client.parser import text_string_to_metric_families
from structlog.contextvars import get_contextvars
from structlog.testing import capture_logs

from pt2hub import errors
from pt2hub.server.api.app import create_app
from pt2hub.server.blobs.local import LocalStorage
from pt2hub.server.container import open_container
from pt2hub.server.db import migrations
from pt2hub.wire.problems import from_dict
from support.api_process import running_api
from support.registry import V4

if TYPE_CHECKING:
    from pathlib import Path

    from flask.testing import FlaskClient

    from pt2hub.server.config import ServerConfig
    from support.registry import Registry


def test_metrics_are_read_without_a_token(url: str, served: Registry) -> None:
    served.published()
    answer = urllib3.request("GET", f"{url}/metrics")
    assert answer.status == 200
    assert answer.headers["Content-Type"].startswith("text/plain; version=")
    families = {family.name: family for family in text_string_to_metric_families(answer.data.decode())}
    succeeded = families["pt2hub_builds_succeeded"].samples[0]
    assert (succeeded.labels, succeeded.value) == ({"target": V4, "reused": "false"}, 1)
    assert families["pt2hub_worker_heartbeat_age_seconds"].samples[0].labels == {"worker": "w1", "target": V4}
    assert {name for name in families if not name.startswith("pt2hub")} == set()


def test_a_process_is_not_ready_before_the_schema_is_its_own_and_stays_ready_beside_a_newer_one(
    config: ServerConfig, database_url: str
) -> None:
    with open_container(config, database_url=database_url) as container:
        api = create_app(container, config).test_client()
        answer = api.get("/readyz")
        error = from_dict(answer.get_json(force=True))
        assert (answer.status_code, type(error)) == (503, errors.SchemaOlder)
        assert "pt2hub admin migrate" in (error.hint or "")
        assert api.get("/healthz").status_code == 200

        migrations.upgrade(database_url)
        assert api.get("/readyz").status_code == 200

        with psycopg.connect(database_url, autocommit=True) as connection:
            connection.execute("UPDATE alembic_version SET version_num = '9999'")
            connection.execute("UPDATE server_settings SET value = '9998' WHERE name = 'schema_works_from'")
        assert api.get("/readyz").status_code == 200, "an upgrade beside us must not stop every process"
    with open_container(config, database_url=database_url) as container:
        fresh = create_app(container, config).test_client().get("/readyz")
        assert (fresh.status_code, fresh.get_json(force=True)["code"]) == (503, "schema_newer")


def test_a_full_storage_can_be_read_and_is_tried_again(
    config: ServerConfig, migrated_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[bool] = []

    def check(_: LocalStorage) -> None:
        tried.append(True)
        if len(tried) == 1:
            raise errors.StorageFull("no room")

    monkeypatch.setattr(LocalStorage, "check", check)
    with open_container(config, database_url=migrated_url) as container:
        api = create_app(container, config).test_client()
        with capture_logs() as lines:
            assert [api.get("/readyz?reads_only=true").status_code for _ in range(3)] == [200] * 3
        told = [line["code"] for line in lines if line["event"] == "storage is full"]
    assert (told, len(tried)) == (["storage_full"], 2)


@pytest.mark.parametrize("given", ["trace-7f.1:2", "a" * 128])
def test_a_request_keeps_the_name_that_it_came_with(api: FlaskClient, given: str) -> None:
    assert api.get("/healthz", headers={"X-Request-Id": given}).headers["X-Request-Id"] == given


@pytest.mark.parametrize("given", ["", "two words", "a" * 129, '{"level": "error"}', "umlaut-\xe4"])
def test_a_request_without_a_sane_name_gets_one(api: FlaskClient, given: str) -> None:
    first, second = (
        api.get("/nowhere", headers={"X-Request-Id": given}).headers["X-Request-Id"] for _ in "12"
    )
    assert re.fullmatch("[0-9a-f]{16}", first)
    assert first != second


def test_the_log_says_who_changed_something(api: FlaskClient, bearer: dict[str, str]) -> None:
    with capture_logs() as lines:
        api.post("/api/v1/builds/nothing/cancel", headers=bearer)
    (line,) = [line for line in lines if line["event"] == "request"]
    assert (line["actor"], line["status"], line["path"]) == ("test", 404, "/api/v1/builds/nothing/cancel")
    assert "request" not in get_contextvars(), "the thread goes on to other requests"


def test_every_line_of_a_process_is_one_object_and_names_its_request(
    tmp_path: Path, migrated_url: str
) -> None:
    with running_api(tmp_path, migrated_url) as process:
        process.ask("POST", "/api/v1/builds/b1/cancel", **{"X-Request-Id": "r1"})
        process.ask("GET", "/metrics")
    lines = [json.loads(line) for line in process.log.splitlines()]
    assert [line["status"] for line in lines if line.get("request") == "r1"] == [401]
    assert all({"event", "level", "logger", "timestamp"} <= set(line) for line in lines)
