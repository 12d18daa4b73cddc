"""Finds the webhooks that an event is for, and the events that follow from it."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import structlog

from pt2hub.domain.builds import Readiness, readiness
from pt2hub.domain.tokens import covers
from pt2hub.domain.webhooks import EventType
from pt2hub.errors import DatabaseUnavailable
from pt2hub.server.db import webhook_queue
from pt2hub.server.db.stores.publishing.versions import VersionStore
from pt2hub.server.db.stores.webhooks.deliveries import DeliveryStore
from pt2hub.server.db.stores.webhooks.outbox import OutboxStore
from pt2hub.server.db.stores.webhooks.webhooks import WebhookStore

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

    from pt2hub.domain.webhooks import WebhookEvent
    from pt2hub.server.db.engine import Sessions

_log = structlog.get_logger(__name__)
_OVERDUE = timedelta(seconds=15)
"""An event that waits for longer lost its job: the process that took it died, or could not reach the database."""
_BATCH = 200
EVENT_RETENTION = timedelta(days=30)
MAX_DELIVERIES_KEPT = 1000
"""Ended deliveries that are kept of each webhook."""
_BUILD_ENDS = (EventType.BUILD_SUCCEEDED, EventType.BUILD_FAILED, EventType.BUILD_CANCELLED)
_OUTCOMES = {
    Readiness.READY: EventType.VERSION_READY,
    Readiness.PARTIAL: EventType.VERSION_PARTIAL,
    Readiness.FAILED: EventType.VERSION_FAILED,
    Readiness.CANCELLED: EventType.VERSION_CANCELLED,
}


class WebhookDispatcher:
    """Turns events into deliveries; any process may run it, also several at once."""

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions

    def dispatch(self, event_id: str) -> None:
        """Queue an event for the webhooks that want it; a second call does nothing."""
        with self._sessions.begin() as session:
            event = OutboxStore(session).take(event_id)
            if event is None:
                return
            _queue(session, event)
            if event.type in _BUILD_ENDS:
                _derive_version_event(session, event)

    def sweep(self) -> None:
        """Dispatch events and send deliveries whose jobs were lost or are due again, and delete what is old."""
        with self._sessions.begin() as session:
            webhook_queue.sweep(session)
            overdue = OutboxStore(session).list_waiting(for_at_least=_OVERDUE, limit=_BATCH)
            for webhook_id in DeliveryStore(session).list_webhooks_due():
                webhook_queue.announce_deliveries(session, webhook_id)
        for event_id in overdue:
            self._try_dispatch(event_id)

    def _try_dispatch(self, event_id: str) -> None:
        """Dispatch an event; what fails is logged and tried again by the next sweep, so that it holds up no other event."""
        try:
            self.dispatch(event_id)
        except DatabaseUnavailable:  # the others would fail as well
            raise
        except Exception:  # noqa: BLE001  # whatever it is, the next event may be well
            _log.exception("webhook event not dispatched", id=event_id)

    def forget(self) -> None:
        """Delete old events, deliveries beyond the newest of each webhook, and secrets that have ended."""
        with self._sessions.begin() as session:
            OutboxStore(session).forget(older_than=EVENT_RETENTION)
            DeliveryStore(session).trim(MAX_DELIVERIES_KEPT)
            WebhookStore(session).forget_secrets()


def _queue(session: Session, event: WebhookEvent) -> None:
    model = event.model
    if model is None:
        return
    chosen = [hook.id for hook in WebhookStore(session).subscribed(event.type) if covers(hook.pattern, model)]
    DeliveryStore(session).add(event.id, chosen)
    for webhook_id in chosen:
        webhook_queue.announce_deliveries(session, webhook_id)


def _derive_version_event(session: Session, ended: WebhookEvent) -> None:
    """Add the event of a version whose last build has ended.

    Builds of a version may end at the same time, in transactions that do not see each other. Here both are visible; the key
    makes them one event.
    """
    assert ended.model is not None, "builds are of models"
    assert ended.version is not None, "builds are of versions"
    version = VersionStore(session).by_number(ended.model, ended.version)
    if version is None:  # it was deleted since
        return
    outbox = OutboxStore(session)
    builds = outbox.first_builds(version.id)
    if not all(build.state.final for build in builds):
        return
    kind = _OUTCOMES[readiness([build.state for build in builds])]
    last = max(build.finished_at or "" for build in builds)
    if not outbox.is_watched([kind]):
        return
    data: dict[str, Any] = {
        "builds": [{"build": item.id, "target": item.target, "state": item.state} for item in builds]
    }
    event_id = outbox.add(
        kind,
        model=ended.model,
        version=ended.version,
        by=version.published_by,
        data=data,
        key=f"version:{version.id}:{kind}:{last}",
    )
    event = outbox.take(event_id) if event_id else None
    if event:
        _queue(session, event)
