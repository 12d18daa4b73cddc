"""Webhooks: the events that are sent to receivers, their signatures, and when a failed delivery is tried again."""

from __future__ import annotations

import base64
import hmac
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from pt2hub.domain.codec import encode
from pt2hub.domain.principals import Principal

if TYPE_CHECKING:
    from collections.abc import Sequence

EVENT_SCHEMA = 1
"""Version of the document of an event. Fields may be added to it; removing or changing one raises the number."""
SECRET_PREFIX = "whsec_"  # noqa: S105  # a prefix, no secret
RETRY_WAITS_S = (10.0, 60.0, 300.0, 900.0, 3600.0, 7200.0, 14400.0, 28800.0, 28800.0)
"""Seconds before each further attempt of a delivery: ten attempts within about a day."""
RETRY_JITTER = 0.2
"""Share by which a wait is randomly shorter or longer, so that receivers that recover are not flooded."""
DISABLED_AFTER_DAYS = 3
"""A webhook without any successful delivery for this long is disabled."""


class EventType(StrEnum):
    """What happened. The part before the dot names what it happened to."""

    VERSION_READY = "version.ready"
    VERSION_PARTIAL = "version.partial"
    VERSION_FAILED = "version.failed"
    VERSION_CANCELLED = "version.cancelled"
    VERSION_YANKED = "version.yanked"
    VERSION_UNYANKED = "version.unyanked"
    BUILD_SUCCEEDED = "build.succeeded"
    BUILD_FAILED = "build.failed"
    BUILD_CANCELLED = "build.cancelled"
    ALIAS_MOVED = "alias.moved"
    ALIAS_REMOVED = "alias.removed"
    REGRESSION_FOUND = "regression.found"


PING = "ping"
"""Type of the event that `pt2hub webhook test` sends; nobody subscribes to it."""


class DeliveryState(StrEnum):
    """State of a delivery. The last two are final, until it is delivered again by hand."""

    PENDING = "pending"
    DELIVERED = "delivered"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class WebhookEvent:
    """An event, as its receivers get it.

    Attributes:
        id: Identifies the event: a receiver that gets it twice sees the same id.
        type: An `EventType`, or `ping`.
        at: When it happened, ISO 8601, UTC.
        model: The model it is about; None for `ping`.
        version: Number of the version it is about, or None.
        by: Who did it; the server where nobody did.
        data: What it is about, by type.
    """

    id: str
    type: str
    at: str
    model: str | None
    version: int | None
    by: Principal | None
    data: dict[str, Any] = field(default_factory=dict)

    def as_document(self) -> dict[str, Any]:
        """Return the document that is sent."""
        return {
            "schema": EVENT_SCHEMA,
            "id": self.id,
            "type": self.type,
            "at": self.at,
            "model": self.model,
            "version": self.version,
            "by": encode(self.by),
            "data": self.data,
        }


def signature_header(secrets: Sequence[str], message_id: str, timestamp: int, body: bytes) -> str:
    """Return the value of `webhook-signature` (Standard Webhooks): a signature for each secret, separated by spaces.

    Args:
        secrets: As they were shown, `whsec_` and base64.
        timestamp: Seconds since the epoch, as in `webhook-timestamp`.
    """
    signed = f"{message_id}.{timestamp}.".encode() + body
    return " ".join(f"v1,{_signature(secret, signed)}" for secret in secrets)


def _signature(secret: str, signed: bytes) -> str:
    key = base64.b64decode(secret.removeprefix(SECRET_PREFIX))
    return base64.b64encode(hmac.digest(key, signed, "sha256")).decode()
