"""Webhooks and their deliveries, as the API returns them."""

from __future__ import annotations

from dataclasses import dataclass, field

from pt2hub.domain.principals import Principal


@dataclass(frozen=True, slots=True)
class WebhookView:
    """A webhook, without its secret.

    Attributes:
        id: Its number, which no other webhook ever has.
        address: Where events are sent.
        pattern: The models whose events are sent, such as `vision/*`.
        events: Types of these events; a newer server may have others.
        enabled: Whether events are sent.
        created_at: ISO 8601, UTC.
        disabled_reason: Why not; None while it is enabled.
        failing_since: When the first delivery after the last successful one failed, or None.
        created_by: Who created it.
    """

    id: int
    address: str
    pattern: str
    events: tuple[str, ...]
    enabled: bool
    created_at: str
    disabled_reason: str | None = None
    failing_since: str | None = None
    created_by: Principal | None = None


@dataclass(frozen=True, slots=True)
class WebhookList:
    """The webhooks that the sender manages.

    Attributes:
        webhooks: Oldest first.
    """

    webhooks: tuple[WebhookView, ...]


@dataclass(frozen=True, slots=True)
class WebhookSecret:
    """A webhook whose secret is new.

    Attributes:
        secret: What signs its deliveries; it is shown this once.
        webhook: The webhook.
    """

    secret: str = field(repr=False)
    webhook: WebhookView


@dataclass(frozen=True, slots=True)
class DeliveryAttempt:
    """An attempt to deliver an event.

    Attributes:
        number: Number of the attempt, from 1; it goes on when an event is delivered again by hand.
        at: When it began, ISO 8601, UTC.
        seconds: How long it took.
        status: The receiver's status, None without an answer.
        error: Why there is no answer, or None.
        code: The error's code, or None.
        answer: The first KiB of the answer.
    """

    number: int
    at: str
    seconds: float
    status: int | None = None
    error: str | None = None
    code: str | None = None
    answer: str = ""


@dataclass(frozen=True, slots=True)
class DeliveryView:
    """An event on its way to a webhook.

    Attributes:
        id: Number of the delivery.
        event: Id of the event, by which a receiver recognises duplicates.
        type: Its type.
        model: The model it is about, or None.
        version: The version it is about, or None.
        state: `pending`, `delivered` or `failed`.
        created_at: When it was first queued.
        due_at: When the next attempt is due; None unless it is pending.
        attempts: The latest attempts, oldest first.
    """

    id: int
    event: str
    type: str
    state: str
    created_at: str
    model: str | None = None
    version: int | None = None
    due_at: str | None = None
    attempts: tuple[DeliveryAttempt, ...] = ()


@dataclass(frozen=True, slots=True)
class DeliveryPage:
    """Deliveries of a webhook, newest first.

    Attributes:
        deliveries: The deliveries of this page.
        next: Cursor: the value of `after` for the next page, None on the last page.
    """

    deliveries: tuple[DeliveryView, ...]
    next: str | None = None
