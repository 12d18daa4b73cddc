"""Deliveries of webhooks to a real receiver: retries, time-outs, refusals, the log, redelivery and rotation."""

from __future__ import annotations

import time
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from pt2hub.domain.webhooks import RETRY_WAITS_S
from pt2hub.errors import Conflict, InvalidInput
from pt2hub.server.services.webhooks import dispatch, sending
from pt2hub.server.services.webhooks.sending import WebhookSender
from pt2hub.system import egress
from pt2hub.system.egress import Egress
from support.front import standing_before
from support.webhooks import ADA, documented_verification

if TYPE_CHECKING:
    from pathlib import Path

    from support.receiver import Receiver
    from support.webhooks import Hooks


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Retries without waits."""
    monkeypatch.setattr(sending, "RETRY_WAITS_S", (0.0,) * len(RETRY_WAITS_S))
    monkeypatch.setattr(sending, "_FIRST_REST_S", 0.0)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A deadline of a third of a second."""
    monkeypatch.setattr(egress, "_TOTAL_TIMEOUT_S", 0.3)


@pytest.mark.usefixtures("at_once")
def test_errors_are_retried_and_each_attempt_is_in_the_log(hooks: Hooks, receiver: Receiver) -> None:
    webhook, secret = hooks.create()
    receiver.answers["/hook"] = [500, 503]
    hooks.ping(webhook)
    hooks.work()
    (delivery,) = hooks.deliveries(webhook)
    assert (delivery.state, delivery.type, delivery.due_at) == ("delivered", "ping", None)
    assert [(item.number, item.status) for item in delivery.attempts] == [(1, 500), (2, 503), (3, 200)]
    assert delivery.attempts[0].answer.startswith("status 500 ")
    assert len(delivery.attempts[0].answer) == 1024
    assert {item.event["id"] for item in receiver.received} == {delivery.event}
    assert all(documented_verification()(secret, item.headers, item.body) for item in receiver.received), (
        "each attempt is signed anew"
    )


def test_waits_grow_and_in_the_end_the_delivery_fails(hooks: Hooks, receiver: Receiver) -> None:
    webhook, _ = hooks.create()
    receiver.answers["/hook"] = [500] * 20
    hooks.ping(webhook)
    waits = []
    for _ in range(len(RETRY_WAITS_S) + 1):
        hooks.work()
        hooks.work()  # nothing is due
        ((wait,),) = hooks.registry.sql(
            "SELECT CAST(extract(epoch FROM due_at - now()) AS float8) FROM webhook_deliveries"
        )
        waits.append(wait)
        hooks.registry.sql("UPDATE webhook_deliveries SET due_at = now()")
    (delivery,) = hooks.deliveries(webhook)
    assert (delivery.state, len(delivery.attempts), len(receiver.received)) == ("failed", 10, 10)
    assert all(
        0.75 * planned <= wait <= 1.25 * planned
        for wait, planned in zip(waits, RETRY_WAITS_S, strict=False)
        if planned >= 60
    )
    assert 0.9 * 86_400 < sum(RETRY_WAITS_S) < 1.1 * 86_400


@pytest.mark.usefixtures("at_once", "impatient")
@pytest.mark.parametrize("behaviour", ["hang", "drip"])
def test_a_receiver_that_does_not_answer_is_cut_off_and_tried_again(
    hooks: Hooks, receiver: Receiver, behaviour: str
) -> None:
    webhook, _ = hooks.create()
    receiver.answers["/hook"] = [behaviour]
    hooks.ping(webhook)
    began = time.monotonic()
    hooks.work()
    assert time.monotonic() - began < 3
    (delivery,) = hooks.deliveries(webhook)
    (attempt,) = delivery.attempts
    assert (delivery.state, attempt.status, attempt.code) == ("pending", None, "receiver_unreachable")
    assert "did not answer within 0.3 s" in (attempt.error or "")
    hooks.work()
    assert hooks.deliveries(webhook)[0].state == "delivered"


@pytest.mark.usefixtures("impatient", "sending")
def test_a_dead_receiver_does_not_hold_up_others(hooks: Hooks, receiver: Receiver) -> None:
    dead, _ = hooks.create(path="/dead")
    live, _ = hooks.create(path="/live")
    receiver.answers["/dead"] = ["hang"] * 30
    for _ in range(10):
        hooks.ping(dead)
    for _ in range(5):
        hooks.ping(live)
    receiver.wait(lambda: len(receiver.at("/live")) == 5)
    assert len(receiver.at("/dead")) <= 1, "after the first time-out it rests"


def test_redirects_are_not_followed(hooks: Hooks, receiver: Receiver) -> None:
    webhook, _ = hooks.create()
    receiver.answers["/hook"] = [302]
    hooks.ping(webhook)
    hooks.work()
    (delivery,) = hooks.deliveries(webhook)
    assert (delivery.state, delivery.attempts[0].status) == ("pending", 302)
    assert [item.path for item in receiver.received] == ["/hook"]


def test_an_address_that_became_private_is_refused_at_the_delivery(hooks: Hooks, receiver: Receiver) -> None:
    webhook, _ = hooks.create()
    hooks.ping(webhook)
    hooks.registry.sql("UPDATE webhooks SET address = %s", f"https://localhost:{receiver.port}/hook")
    hooks.work()
    (delivery,) = hooks.deliveries(webhook)
    assert (delivery.attempts[0].status, delivery.attempts[0].code) == (None, "address_refused")
    assert receiver.received == []


def test_certificates_are_verified_for_the_name(
    hooks: Hooks, receiver: Receiver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SSL_CERT_FILE", raising=False)
    with standing_before(receiver.port, tmp_path) as (url, authority):
        port = int(url.rpartition(":")[2])
        allowed = Egress([("localhost", port), ("127.0.0.1", port)])
        sender = WebhookSender(hooks.registry.services._sessions, allowed)
        webhook, _ = hooks.create()

        def outcome(address: str) -> tuple[int | None, str | None]:
            hooks.ping(webhook)
            hooks.registry.sql("UPDATE webhooks SET address = %s, resting_until = NULL", address)
            sender.send(webhook)
            last = hooks.deliveries(webhook)[0].attempts[-1]
            return last.status, last.error

        unknown = outcome(f"{url}/hook")
        assert unknown == (
            None,
            f"localhost:{port} has no valid certificate for its name, or does not speak TLS",
        )
        monkeypatch.setenv("SSL_CERT_FILE", str(authority))
        assert outcome(f"{url}/hook") == (200, None)
        assert outcome(f"https://127.0.0.1:{port}/hook")[0] is None, "the certificate is for localhost"
    assert len(receiver.received) == 1


@pytest.mark.usefixtures("at_once")
def test_persistent_failure_disables_a_webhook_with_a_reason(hooks: Hooks, receiver: Receiver) -> None:
    services = hooks.registry.services
    webhook, _ = hooks.create()
    receiver.answers["/hook"] = [500] * 11
    hooks.ping(webhook)
    hooks.ping(webhook)
    hooks.registry.sql("UPDATE webhooks SET failing_since = now() - interval '4 days'")
    hooks.work()
    (found,) = services.webhooks.webhooks(ADA)
    assert not found.enabled
    assert "No delivery succeeded since " in (found.disabled_reason or "")
    assert "status 500" in (found.disabled_reason or "")
    assert {item.state for item in hooks.deliveries(webhook)} == {"failed"}
    for refused in (
        lambda: services.webhooks.test(webhook, by=ADA),
        lambda: services.webhooks.redeliver(webhook, hooks.deliveries(webhook)[0].id, by=ADA),
    ):
        with pytest.raises(Conflict, match="is disabled"):
            refused()
    receiver.answers.clear()
    assert services.webhooks.set_enabled(webhook, enabled=True, by=ADA).failing_since is None
    services.webhooks.redeliver(webhook, hooks.deliveries(webhook)[0].id, by=ADA)
    hooks.work()
    assert hooks.deliveries(webhook)[0].state == "delivered"


def test_a_delivery_is_sent_again_with_the_same_id(hooks: Hooks, receiver: Receiver) -> None:
    webhook, _ = hooks.create()
    hooks.ping(webhook)
    hooks.work()
    (delivery,) = hooks.deliveries(webhook)
    hooks.registry.services.webhooks.redeliver(webhook, delivery.id, by=ADA)
    hooks.work()
    (again,) = hooks.deliveries(webhook)
    assert [item.number for item in again.attempts] == [1, 2]
    assert [item.event for item in receiver.received] == [receiver.received[0].event] * 2


def test_while_a_secret_is_rotated_both_sign(hooks: Hooks, receiver: Receiver) -> None:
    webhooks, verify = hooks.registry.services.webhooks, documented_verification()
    webhook, old = hooks.create()
    new = webhooks.rotate(webhook, overlap=timedelta(hours=1), by=ADA).secret
    hooks.ping(webhook)
    hooks.work()
    newest = webhooks.rotate(webhook, overlap=timedelta(), by=ADA).secret
    hooks.ping(webhook)
    hooks.work()
    both, last = receiver.received
    signs = [
        [verify(secret, item.headers, item.body) for secret in (old, new, newest)] for item in (both, last)
    ]
    assert signs == [[True, True, False], [False, False, True]]
    assert not verify(old, both.headers | {"webhook-timestamp": "1"}, both.body), "too old"
    with pytest.raises(InvalidInput):
        webhooks.rotate(webhook, overlap=timedelta(days=31), by=ADA)
    stored = hooks.registry.sql("SELECT change::text FROM audit_log WHERE action LIKE 'webhook.%%'")
    assert len(stored) == 5
    assert not any("whsec_" in change or "/hook" in change for (change,) in stored)
    hooks.registry.services.webhook_dispatcher.forget()
    assert hooks.registry.sql("SELECT count(*) FROM webhook_secrets") == [(1,)]


def test_the_log_is_bounded_by_count_and_age(hooks: Hooks, monkeypatch: pytest.MonkeyPatch) -> None:
    registry, dispatcher = hooks.registry, hooks.registry.services.webhook_dispatcher
    webhook, _ = hooks.create()
    for _ in range(4):
        hooks.ping(webhook)
    hooks.work()
    monkeypatch.setattr(dispatch, "MAX_DELIVERIES_KEPT", 3)
    newest = [item.id for item in hooks.deliveries(webhook)][:3]
    dispatcher.forget()
    assert [item.id for item in hooks.deliveries(webhook)] == newest
    page = registry.services.webhooks.deliveries(webhook, limit=2, by=ADA)
    rest = registry.services.webhooks.deliveries(webhook, limit=2, after=page.next, by=ADA)
    assert [item.id for item in (*page.deliveries, *rest.deliveries)] == newest
    assert rest.next is None
    registry.sql("UPDATE webhook_events SET at = at - interval '31 days'")
    dispatcher.forget()
    assert hooks.deliveries(webhook) == ()
    assert registry.sql("SELECT count(*) FROM webhook_events") == [(0,)]


def test_what_a_dead_process_was_sending_is_sent_by_another(hooks: Hooks, receiver: Receiver) -> None:
    webhook, _ = hooks.create()
    hooks.ping(webhook)
    hooks.registry.sql("UPDATE webhooks SET sending_until = now() + interval '1 minute'")
    hooks.work()
    assert receiver.received == [], "the other one may still be alive"
    hooks.registry.sql("DELETE FROM procrastinate_jobs")
    hooks.registry.sql("UPDATE webhooks SET sending_until = now() - interval '1 second'")
    hooks.registry.services.webhook_dispatcher.sweep()
    waiting = "SELECT args FROM procrastinate_jobs WHERE task_name = 'pt2hub.webhooks.send'"
    assert hooks.registry.sql(waiting) == [({"webhook_id": webhook},)]
    hooks.work()
    assert len(receiver.received) == 1
