"""Events of webhooks: each change of the real services is one event, in its transaction."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import psycopg
import pytest

from pt2hub.domain.tokens import SERVER
from pt2hub.domain.webhooks import EventType
from pt2hub.errors import CompileFailed, InternalError
from pt2hub.server.container import open_container
from support.figures import latency, measured, versions
from support.registry import V3, V4, Registry
from support.roles import worker_url
from support.webhooks import ADA, documented_verification

if TYPE_CHECKING:
    from pt2hub.server.config import ServerConfig
    from support.receiver import Receiver
    from support.webhooks import Hooks

MODEL = "vision/resnet18"


def fail(registry: Registry, build: str) -> None:
    registry.services.builds.fail(registry.claim(build), CompileFailed("no compiler", hint="Install one."))


@pytest.mark.usefixtures("sending")
def test_each_change_is_one_signed_event(hooks: Hooks, receiver: Receiver) -> None:
    registry, services = hooks.registry, hooks.registry.services
    _, secret = hooks.create()
    hooks.create(pattern="nlp/*", path="/other-team")
    hooks.create(EventType.ALIAS_MOVED, path="/aliases")
    registry.worker("w3", V3)

    registry.published()
    failed = registry.submit(checks={"tolerance": 0.01}).builds[0].id
    fail(registry, failed)
    partial = registry.submit(checks={"tolerance": 0.02}, targets=[V4, V3])
    registry.published(partial)
    fail(registry, partial.builds[1].id)
    cancelled = registry.submit(checks={"tolerance": 0.03}).builds[0].id
    services.builds.cancel(cancelled, ADA)
    services.aliases.move(MODEL, "prod", 1, expected=None, reason="first", by=ADA)
    services.aliases.move(MODEL, "prod", 1, expected=1, reason="again", by=ADA)  # changes nothing
    services.aliases.remove(MODEL, "prod", expected=1, reason="last", by=ADA)
    services.yanks.yank(MODEL, 1, reason="broken", by=ADA)
    services.yanks.yank(MODEL, 1, reason="broken", by=ADA)  # changes nothing
    services.yanks.unyank(MODEL, 1, reason="not broken", by=ADA)

    expected = sorted(
        [
            *("build.succeeded", "version.ready", "build.failed", "version.failed"),
            *("build.succeeded", "build.failed", "version.partial", "build.cancelled", "version.cancelled"),
            *("alias.moved", "alias.removed", "version.yanked", "version.unyanked"),
        ]
    )
    receiver.wait(lambda: len(receiver.at()) >= len(expected))
    hooks.work()
    services.webhook_dispatcher.sweep()
    assert receiver.types() == expected
    assert receiver.types("/aliases") == ["alias.moved"]
    assert receiver.types("/other-team") == []
    assert len({item.event["id"] for item in receiver.at()}) == len(expected)

    verify = documented_verification()
    for item in receiver.at():
        assert verify(secret, item.headers, item.body)
        assert not verify(secret, item.headers, item.body + b" ")
        assert item.headers["webhook-id"] == item.event["id"]
        assert list(item.event) == ["schema", "id", "type", "at", "model", "version", "by", "data"]
    found = {(item.event["type"], item.event["version"]): item.event for item in receiver.at()}
    moved = found["alias.moved", 1]
    assert moved["data"] == {
        "alias": "prod",
        "before": None,
        "after": 1,
        "reason": "first",
        "forced": False,
    }
    assert moved["by"] == {"kind": "token", "name": "ada", "id": None}
    error = {"code": "compile_failed", "message": "no compiler", "hint": "Install one."}
    assert found["build.failed", 2]["data"]["error"] == error
    assert found["build.failed", 2]["data"]["build"] == failed
    states = [item["state"] for item in found["version.partial", 3]["data"]["builds"]]
    assert states == ["succeeded", "failed"]
    assert found["version.ready", 1]["by"]["kind"] == SERVER.kind


def test_builds_that_end_at_the_same_time_make_a_version_ready_once(hooks: Hooks, receiver: Receiver) -> None:
    registry = hooks.registry
    hooks.create(EventType.VERSION_READY, EventType.VERSION_FAILED)
    registry.worker("w3", V3)
    builds = [build.id for build in registry.submit(targets=[V4, V3]).builds]
    claims = [registry.claim(build) for build in builds]
    found = [(claim, registry.publication(claim, code=claim.build.encode())) for claim in claims]
    threads = [threading.Thread(target=registry.services.builds.publish, args=item) for item in found]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    hooks.work()
    assert receiver.types() == ["version.ready"]


def test_a_version_that_fails_again_is_told_again(hooks: Hooks, receiver: Receiver) -> None:
    registry = hooks.registry
    hooks.create(EventType.VERSION_READY, EventType.VERSION_FAILED)
    version = registry.submit()
    build = version.builds[0].id
    fail(registry, build)
    hooks.work()
    registry.services.builds.retry(build, ADA)
    fail(registry, build)
    hooks.work()
    registry.services.builds.retry(build, ADA)
    registry.published(version)
    hooks.work()
    assert receiver.types() == ["version.failed", "version.failed", "version.ready"]


def test_a_regression_is_told_once(hooks: Hooks, receiver: Receiver) -> None:
    registry, steady = hooks.registry, (10.0, 10.05, 9.95, 10.0, 10.02)
    one, other, third = versions(registry, 3)
    hooks.create(EventType.REGRESSION_FOUND)
    measured(registry, one, latency(*steady))
    measured(registry, other, latency(*(1.5 * value for value in steady)))
    registry.services.comparisons.examine()
    measured(registry, third, latency(*(1.5 * value for value in steady)))
    registry.services.comparisons.examine()
    hooks.work()
    (event,) = [item.event for item in receiver.at()]
    assert (event["model"], event["version"], event["by"]["kind"]) == (MODEL, 2, "server")
    data = event["data"]
    assert (data["metric"], data["target"], data["before"], data["kind"]) == (
        "latency_p50",
        V4,
        1,
        "comparison",
    )
    assert data["low"] < data["ratio"] < data["high"]


def test_what_is_rolled_back_has_no_event_and_without_webhooks_there_is_none(hooks: Hooks) -> None:
    registry = hooks.registry
    registry.published()
    assert registry.sql("SELECT count(*) FROM webhook_events") == [(0,)]
    hooks.create(EventType.ALIAS_MOVED)
    registry.sql("ALTER TABLE audit_log ADD CONSTRAINT refused CHECK (false) NOT VALID")
    with pytest.raises(InternalError):
        registry.services.aliases.move(MODEL, "prod", 1, expected=None, reason="first", by=ADA)
    assert registry.sql("SELECT count(*) FROM webhook_events") == [(0,)]
    assert registry.sql("SELECT count(*) FROM procrastinate_jobs WHERE task_name ^@ 'pt2hub.webhooks.'") == [
        (0,)
    ]


def test_an_event_whose_job_was_lost_is_dispatched_by_maintenance(hooks: Hooks, receiver: Receiver) -> None:
    registry, services = hooks.registry, hooks.registry.services
    hooks.create(EventType.VERSION_YANKED)
    registry.published()
    token = services.access.create_token("pasted")
    services.yanks.yank(MODEL, 1, reason=f"broken, see {token}", by=ADA)
    registry.sql("DELETE FROM procrastinate_jobs")
    services.webhook_dispatcher.sweep()
    hooks.registry.sql("UPDATE webhook_events SET at = at - interval '1 minute'")
    services.webhook_dispatcher.sweep()
    assert registry.sql("SELECT state FROM webhook_deliveries") == [("pending",)]
    hooks.work()
    assert receiver.types() == ["version.yanked"]
    assert token not in receiver.received[0].body.decode()


def test_an_event_of_a_deleted_version_and_one_that_fails_hold_up_no_others(
    hooks: Hooks, receiver: Receiver
) -> None:
    registry, services = hooks.registry, hooks.registry.services
    hooks.create(EventType.BUILD_CANCELLED, EventType.VERSION_CANCELLED, EventType.VERSION_YANKED)
    registry.published()
    version = registry.submit(checks={"tolerance": 0.01})
    services.builds.cancel(version.builds[0].id, ADA)
    services.deletion.version(MODEL, version.number, by=ADA, reason="old")
    registry.sql(
        "INSERT INTO webhook_events (id, type, at, by, data) "
        "VALUES ('evt_bad', 'build.failed', now() - interval '1 day', '{}', '{}')"
    )
    services.yanks.yank(MODEL, 1, reason="broken", by=ADA)
    registry.sql("UPDATE webhook_events SET at = at - interval '1 minute'")
    services.webhook_dispatcher.sweep()
    assert registry.sql("SELECT id FROM webhook_events WHERE dispatched_at IS NULL") == [("evt_bad",)]
    for (webhook,) in registry.sql("SELECT id FROM webhooks"):
        services.webhook_sender.send(webhook)
    assert receiver.types() == ["build.cancelled", "version.yanked"]


def test_a_worker_adds_events_under_its_role_and_reads_neither_receivers_nor_secrets(
    hooks: Hooks, config: ServerConfig, receiver: Receiver
) -> None:
    hooks.create(EventType.VERSION_READY, EventType.BUILD_FAILED)
    version = hooks.registry.submit()
    failed = hooks.registry.submit(checks={"tolerance": 0.01}).builds[0].id
    url = worker_url(hooks.registry.database_url)
    with open_container(config, database_url=url) as container:
        worker = Registry(container, hooks.registry.database_url)
        worker.published(version)
        fail(worker, failed)
    with psycopg.connect(url) as connection:
        for statement in ("SELECT address FROM webhooks", "SELECT secret FROM webhook_secrets"):
            with pytest.raises(psycopg.errors.InsufficientPrivilege), connection.transaction():
                connection.execute(statement.encode())
    hooks.work()
    assert receiver.types() == ["build.failed", "version.ready"]
