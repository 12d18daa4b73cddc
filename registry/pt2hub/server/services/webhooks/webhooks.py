"""Webhooks, for the admins of the models that they are about."""

from __future__ import annotations

import base64
import secrets
from datetime import timedelta
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from pt2hub.domain.audit import Action
from pt2hub.domain.tokens import Scope
from pt2hub.domain.webhooks import PING, SECRET_PREFIX, EventType
from pt2hub.errors import Conflict, Forbidden, InvalidInput, NotFound
from pt2hub.server.db import webhook_queue
from pt2hub.server.db.stores.webhooks.deliveries import DeliveryStore
from pt2hub.server.db.stores.webhooks.outbox import OutboxStore
from pt2hub.server.db.stores.webhooks.webhooks import WebhookStore
from pt2hub.server.services import cursors
from pt2hub.server.services.access import audit_log
from pt2hub.server.services.access.tokens import check_patterns
from pt2hub.wire.webhooks import DeliveryPage, DeliveryView, WebhookSecret, WebhookView

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy.orm import Session

    from pt2hub.domain.tokens import Actor
    from pt2hub.server.db.engine import Sessions
    from pt2hub.system.egress import Egress

DEFAULT_LIMIT = 50
MAX_OVERLAP = timedelta(days=30)
MAX_WEBHOOKS = 100
"""For each team, so that none uses up what others need."""
_MAX_FOR_SEVERAL_TEAMS = 500
_SEVERAL_TEAMS = "*"
_SECRET_BYTES = 32


class WebhookService:
    """Webhooks and their deliveries.

    An admin sees and changes the webhooks whose models its token covers; others do not exist for it.
    """

    def __init__(self, sessions: Sessions, egress: Egress) -> None:
        self._sessions = sessions
        self._egress = egress

    def create(self, address: str, *, pattern: str, events: Sequence[str], by: Actor) -> WebhookSecret:
        """Create a webhook for models that the admin's token covers.

        Args:
            events: Types of events; none for all.

        Returns:
            It with its secret, which is shown this once.

        Raises:
            InvalidInput: The address, the pattern or an event is malformed.
            AddressRefused: The server does not send to this address.
            ReceiverUnreachable: The address's name cannot be resolved.
            Forbidden: The pattern reaches further than the token.
            Conflict: There are too many webhooks.
        """
        check_patterns([pattern])
        if not by.is_admin_of(pattern):
            raise Forbidden(
                f"Permission denied: a webhook for {pattern} reaches further than your token",
                where="models",
                hint=f"Yours is an admin token for {', '.join(by.patterns_for(Scope.ADMIN))}."
                if by.admin
                else "Webhooks need an admin token.",
            )
        chosen = _check_events(events)
        self._egress.check(address)
        secret = _new_secret()
        with self._sessions.begin() as session:
            store = WebhookStore(session)
            team = pattern.partition("/")[0]
            most = _MAX_FOR_SEVERAL_TEAMS if team == _SEVERAL_TEAMS else MAX_WEBHOOKS
            if store.count(team) >= most:
                raise Conflict(
                    f"There are {most} webhooks for {team}, which is the maximum",
                    where="webhook",
                    hint="Delete one that is not needed: pt2hub webhook ls, pt2hub webhook rm ID",
                )
            made = store.add(address, pattern=pattern, events=chosen, by=by.principal)
            store.replace_secret(made.id, secret, overlap=timedelta())
            # The receiver's host alone: an address may contain a secret of the receiver.
            _record(session, by, Action.WEBHOOK_CREATE, made, host=urlsplit(address).netloc, events=chosen)
        return WebhookSecret(secret, made)

    def webhooks(self, by: Actor) -> tuple[WebhookView, ...]:
        """Return the webhooks that an admin's token covers, oldest first."""
        with self._sessions.begin() as session:
            return tuple(item for item in WebhookStore(session).all() if by.is_admin_of(item.pattern))

    def set_enabled(self, webhook_id: int, *, enabled: bool, by: Actor) -> WebhookView:
        """Enable a webhook, for events from now on, or disable it; its pending deliveries then fail.

        Raises:
            NotFound: There is no such webhook for the actor.
        """
        with self._sessions.begin() as session:
            store, found = WebhookStore(session), _find(session, webhook_id, by)
            if found.enabled == enabled:
                return found
            store.set_enabled(
                webhook_id, enabled=enabled, reason=None if enabled else f"Disabled by {by.principal}"
            )
            if not enabled:
                DeliveryStore(session).give_up(webhook_id)
            _record(session, by, Action.WEBHOOK_ENABLE if enabled else Action.WEBHOOK_DISABLE, found)
            return _find(session, webhook_id, by)

    def delete(self, webhook_id: int, *, by: Actor) -> WebhookView:
        """Delete a webhook with its deliveries.

        Raises:
            NotFound: There is no such webhook for the actor.
        """
        with self._sessions.begin() as session:
            found = _find(session, webhook_id, by)
            WebhookStore(session).delete(webhook_id)
            _record(session, by, Action.WEBHOOK_DELETE, found)
            return found

    def rotate(self, webhook_id: int, *, overlap: timedelta, by: Actor) -> WebhookSecret:
        """Create a new secret; the old one signs too for a while.

        Raises:
            InvalidInput: The overlap is negative, or longer than 30 days.
            NotFound: There is no such webhook for the actor.
        """
        if not timedelta() <= overlap <= MAX_OVERLAP:
            raise InvalidInput("Invalid overlap", where="overlap", hint=f"Use up to {MAX_OVERLAP.days} days.")
        secret = _new_secret()
        with self._sessions.begin() as session:
            found = _find(session, webhook_id, by)
            WebhookStore(session).replace_secret(webhook_id, secret, overlap=overlap)
            _record(session, by, Action.WEBHOOK_ROTATE, found, overlap_seconds=overlap.total_seconds())
        return WebhookSecret(secret, found)

    def test(self, webhook_id: int, *, by: Actor) -> DeliveryView:
        """Queue an event of the type `ping` for a webhook.

        Raises:
            NotFound: There is no such webhook for the actor.
            Conflict: It is disabled.
        """
        with self._sessions.begin() as session:
            found = _require_enabled(_find(session, webhook_id, by))
            outbox, deliveries = OutboxStore(session), DeliveryStore(session)
            event_id = outbox.add(PING, model=None, version=None, by=by.principal, data={})
            assert event_id is not None, "an event without a key is always added"
            outbox.take(event_id)
            deliveries.add(event_id, [webhook_id])
            webhook_queue.announce_deliveries(session, webhook_id)
            _record(session, by, Action.WEBHOOK_TEST, found)
            return deliveries.page(webhook_id, after=None, limit=1)[0]

    def deliveries(
        self, webhook_id: int, *, after: str | None = None, limit: int = DEFAULT_LIMIT, by: Actor
    ) -> DeliveryPage:
        """Return deliveries of a webhook, newest first.

        Args:
            after: The previous page's cursor; None for the newest.

        Raises:
            InvalidInput: The cursor is malformed.
            NotFound: There is no such webhook for the actor.
        """
        begin = cursors.decode_numbered(after, "deliveries") if after is not None else None
        with self._sessions.begin() as session:
            _find(session, webhook_id, by)
            found = DeliveryStore(session).page(webhook_id, after=begin, limit=limit + 1)
        page = tuple(found[:limit])
        more = len(found) > limit
        return DeliveryPage(page, next=cursors.encode(page[-1].created_at, page[-1].id) if more else None)

    def redeliver(self, webhook_id: int, delivery_id: int, *, by: Actor) -> DeliveryView:
        """Send an event again, at once and with all attempts before it; the receiver gets the same id.

        Raises:
            NotFound: There is no such webhook for the actor, or no such delivery.
            Conflict: The webhook is disabled.
        """
        with self._sessions.begin() as session:
            found = _require_enabled(_find(session, webhook_id, by))
            delivery = DeliveryStore(session).queue_again(webhook_id, delivery_id)
            if delivery is None:
                raise NotFound(
                    f"Delivery {delivery_id} not found",
                    where="delivery",
                    hint=f"pt2hub webhook deliveries {webhook_id} lists them.",
                )
            WebhookStore(session).rest(webhook_id, lasting=timedelta())
            webhook_queue.announce_deliveries(session, webhook_id)
            _record(session, by, Action.WEBHOOK_REDELIVER, found, event=delivery.event)
            return delivery


def _find(session: Session, webhook_id: int, by: Actor) -> WebhookView:
    """Return a webhook, locked: one whose models the actor's token covers."""
    found = WebhookStore(session).lock(webhook_id)
    if found is None or not by.is_admin_of(found.pattern):
        raise NotFound(
            f"Webhook {webhook_id} not found",
            where="webhook",
            hint="pt2hub webhook ls lists those that you manage.",
        )
    return found


def _require_enabled(found: WebhookView) -> WebhookView:
    if not found.enabled:
        raise Conflict(
            f"Webhook {found.id} is disabled: {found.disabled_reason}",
            where="webhook",
            hint=f"Enable it first: pt2hub webhook enable {found.id}",
        )
    return found


def _check_events(events: Sequence[str]) -> list[str]:
    wrong = [name for name in events if name not in list(EventType)]
    if wrong:
        raise InvalidInput(
            f"Unknown event {wrong[0][:80]!a}", where="events", hint=f"Use some of {', '.join(EventType)}."
        )
    return [str(kind) for kind in EventType if not events or kind in events]


def _new_secret() -> str:
    return SECRET_PREFIX + base64.b64encode(secrets.token_bytes(_SECRET_BYTES)).decode()


def _record(session: Session, by: Actor, action: Action, hook: WebhookView, **change: Any) -> None:
    """Record a mutation; patterns are not models, so that only admins of all models see the entry."""
    audit_log.record(session, by, action, f"webhook {hook.id}", id=hook.id, pattern=hook.pattern, **change)
