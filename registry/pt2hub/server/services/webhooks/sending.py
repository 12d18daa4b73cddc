"""Sends the due deliveries of webhooks: signed, one at a time for each webhook, with growing waits after failures."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from http import HTTPStatus
from typing import TYPE_CHECKING

import structlog

from pt2hub.domain.webhooks import (
    DISABLED_AFTER_DAYS,
    RETRY_JITTER,
    RETRY_WAITS_S,
    DeliveryState,
    signature_header,
)
from pt2hub.errors import Pt2hubError
from pt2hub.server.db import webhook_queue
from pt2hub.server.db.stores.values import stamp
from pt2hub.server.db.stores.webhooks.deliveries import DeliveryStore, DueDelivery
from pt2hub.server.db.stores.webhooks.webhooks import WebhookStore
from pt2hub.version import __version__
from pt2hub.wire.webhooks import DeliveryAttempt

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

    from pt2hub.server.db.engine import Sessions
    from pt2hub.system.egress import Egress

_LEASE = timedelta(seconds=60)
"""Longer than an attempt takes, with its resolution of the name: a process that holds it for longer has died."""
_MAX_TURN_S = 20.0
"""How long a webhook's deliveries are sent before others have their turn."""
_FIRST_REST_S = 5.0
_MAX_REST_S = 300.0
_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class _Message:
    """What to send where."""

    address: str
    secrets: Sequence[str]
    delivery: DueDelivery


class WebhookSender:
    """Sends deliveries; any process may run it, and one at a time does for each webhook."""

    def __init__(self, sessions: Sessions, egress: Egress) -> None:
        self._sessions = sessions
        self._egress = egress

    def team(self, webhook_id: int) -> str | None:
        """Return the team whose models a webhook is about, `*` for those of several; None where there is no webhook."""
        with self._sessions.begin() as session:
            return WebhookStore(session).team(webhook_id)

    def send(self, webhook_id: int) -> None:
        """Send a webhook's due deliveries, oldest first.

        After an attempt without an answer the webhook rests: its other deliveries would wait for the same time-out.
        """
        with self._sessions.begin() as session:
            address = WebhookStore(session).begin_sending(webhook_id, lease=_LEASE)
        if address is None:
            return
        until = time.monotonic() + _MAX_TURN_S
        while message := self._next(webhook_id, address, until):
            attempt = self._attempt(message)
            with self._sessions.begin() as session:
                goes_on = _record(session, webhook_id, message.delivery, attempt)
                if not goes_on:
                    WebhookStore(session).end_sending(webhook_id)
                    break

    def _next(self, webhook_id: int, address: str, until: float) -> _Message | None:
        """Return the next message; None at the end of the turn, which another process may then have.

        The webhook is locked: a delivery that is added later brings a job with it, which then finds the webhook free.
        """
        with self._sessions.begin() as session:
            store = WebhookStore(session)
            hook = store.lock(webhook_id)
            delivery = DeliveryStore(session).oldest_due(webhook_id) if hook and hook.enabled else None
            if delivery is None or time.monotonic() > until:
                store.end_sending(webhook_id)
                if delivery is not None:
                    webhook_queue.announce_deliveries(session, webhook_id)
                return None
            store.keep_sending(webhook_id, lease=_LEASE)
            return _Message(address, store.secrets(webhook_id), delivery)

    def _attempt(self, message: _Message) -> DeliveryAttempt:
        delivery, began, at = message.delivery, time.monotonic(), datetime.now(UTC)
        body = json.dumps(delivery.event.as_document()).encode()
        timestamp = int(at.timestamp())
        headers = {
            "Content-Type": "application/json",
            "User-Agent": f"pt2hub/{__version__}",
            "webhook-id": delivery.event.id,
            "webhook-timestamp": str(timestamp),
            "webhook-signature": signature_header(message.secrets, delivery.event.id, timestamp, body),
        }
        status, answer, error = None, b"", None
        try:
            found = self._egress.post(message.address, body, headers)
            status, answer = found.status, found.body
        except Pt2hubError as exc:
            error = exc
        number = delivery.attempts[-1].number + 1 if delivery.attempts else 1
        return DeliveryAttempt(
            number=number,
            at=stamp(at),
            seconds=round(time.monotonic() - began, 3),
            status=status,
            error=error.message if error else None,
            code=error.code if error else None,
            answer=answer.decode("utf-8", "replace"),
        )


def _record(session: Session, webhook_id: int, delivery: DueDelivery, attempt: DeliveryAttempt) -> bool:
    """Record an attempt; return whether the webhook's next delivery should be sent at once."""
    webhooks, deliveries = WebhookStore(session), DeliveryStore(session)
    if webhooks.lock(webhook_id) is None:
        return False  # deleted meanwhile
    if attempt.status is not None and attempt.status // 100 == HTTPStatus.OK // 100:
        deliveries.record(delivery, attempt, state=DeliveryState.DELIVERED)
        webhooks.record_success(webhook_id)
        return True
    if delivery.tries < len(RETRY_WAITS_S):
        wait = timedelta(seconds=RETRY_WAITS_S[delivery.tries] * _jitter())
        deliveries.record(delivery, attempt, state=DeliveryState.PENDING, wait=wait)
    else:
        deliveries.record(delivery, attempt, state=DeliveryState.FAILED)
    failures, since = webhooks.record_failure(webhook_id)
    _log.info("webhook failed", webhook=webhook_id, status=attempt.status, code=attempt.code)
    if datetime.now(UTC) - since > timedelta(days=DISABLED_AFTER_DAYS):
        webhooks.set_enabled(
            webhook_id,
            enabled=False,
            reason=f"No delivery succeeded since {stamp(since)[:19]}Z; the last one: {_outcome(attempt)}",
        )
        deliveries.give_up(webhook_id)
        _log.warning("webhook disabled", webhook=webhook_id)
        return False
    if attempt.status is None:
        rest = min(_FIRST_REST_S * 2.0 ** min(failures - 1, 10), _MAX_REST_S)
        webhooks.rest(webhook_id, lasting=timedelta(seconds=rest * _jitter()))
        return False
    return True


def _outcome(attempt: DeliveryAttempt) -> str:
    return attempt.error or f"status {attempt.status}"


def _jitter() -> float:
    return 1 + random.uniform(-RETRY_JITTER, RETRY_JITTER)  # noqa: S311  # no secret
