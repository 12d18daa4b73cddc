"""Webhooks of a server."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING
from urllib.parse import urlencode

from pt2hub.client.resources import Resource
from pt2hub.wire.webhooks import DeliveryPage, DeliveryView, WebhookList, WebhookSecret, WebhookView

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import timedelta

_PATH = "/api/v1/webhooks"


class Webhooks(Resource):
    """Webhooks for models that the client's admin token covers."""

    def list(self) -> tuple[WebhookView, ...]:
        """Return the webhooks, oldest first."""
        return self._transport.fetch(WebhookList, _PATH).webhooks

    def create(self, address: str, *, models: str, events: Sequence[str] = ()) -> WebhookSecret:
        """Create a webhook.

        Args:
            models: The models whose events are sent, such as `vision/*`.
            events: Types of events; none for all.

        Returns:
            It with its secret, which is shown this once.

        Raises:
            AddressRefused: The server does not send to this address.
            Forbidden: The models reach further than the client's own token.
        """
        document = {"address": address, "models": models, "events": [*events]}
        return self._transport.ask(WebhookSecret, "POST", _PATH, json.dumps(document).encode())

    def set_enabled(self, webhook_id: int, *, enabled: bool) -> WebhookView:
        """Enable or disable a webhook.

        Raises:
            NotFound: There is no such webhook for the client.
        """
        body = json.dumps({"enabled": enabled}).encode()
        return self._transport.ask(WebhookView, "PATCH", f"{_PATH}/{webhook_id}", body)

    def delete(self, webhook_id: int) -> WebhookView:
        """Delete a webhook and its deliveries.

        Raises:
            NotFound: There is no such webhook for the client.
        """
        return self._transport.ask(WebhookView, "DELETE", f"{_PATH}/{webhook_id}")

    def rotate(self, webhook_id: int, *, overlap: timedelta) -> WebhookSecret:
        """Replace a webhook's secret.

        Args:
            overlap: How long the old one signs too.

        Raises:
            NotFound: There is no such webhook for the client.
        """
        body = json.dumps({"overlap_seconds": int(overlap.total_seconds())}).encode()
        return self._transport.ask(WebhookSecret, "POST", f"{_PATH}/{webhook_id}/rotate", body)

    def test(self, webhook_id: int) -> DeliveryView:
        """Send an event of the type `ping`.

        Raises:
            NotFound: There is no such webhook for the client.
            Conflict: It is disabled.
        """
        return self._transport.ask(DeliveryView, "POST", f"{_PATH}/{webhook_id}/test")

    def deliveries(self, webhook_id: int, *, limit: int = 50, after: str | None = None) -> DeliveryPage:
        """Return deliveries of a webhook, newest first.

        Args:
            after: The previous page's `next`; None for the newest.

        Raises:
            NotFound: There is no such webhook for the client.
        """
        query = urlencode({"limit": limit, **({"after": after} if after else {})})
        return self._transport.fetch(DeliveryPage, f"{_PATH}/{webhook_id}/deliveries?{query}")

    def redeliver(self, webhook_id: int, delivery_id: int) -> DeliveryView:
        """Send an event again, with the same id.

        Raises:
            NotFound: There is no such webhook for the client, or no such delivery.
            Conflict: The webhook is disabled.
        """
        path = f"{_PATH}/{webhook_id}/deliveries/{delivery_id}/redeliver"
        return self._transport.ask(DeliveryView, "POST", path)
