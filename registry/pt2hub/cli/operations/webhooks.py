"""`pt2hub webhook`: receivers of events, and what was sent to them."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated

import typer

from pt2hub.cli import panels
from pt2hub.cli.access.lifetimes import parse_lifetime
from pt2hub.cli.output import emit
from pt2hub.domain.webhooks import DeliveryState, EventType
from pt2hub.rendering.quantities import format_duration
from pt2hub.rendering.times import NOTHING, format_local_time

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from pt2hub.client.client import Client
    from pt2hub.wire.webhooks import DeliveryPage, DeliveryView, WebhookSecret, WebhookView

_TEST_SECONDS = 15.0
"""Longer than the server waits for a receiver."""
_POLL_SECONDS = 0.25
_Id = Annotated[int, typer.Argument(metavar="ID", help="Number of the webhook, as listed.")]


def register(app: typer.Typer) -> None:
    """Add the group to the app."""
    group = typer.Typer(
        help="Webhooks: who is told of ready versions, moved aliases and regressions.",
        no_args_is_help=True,
        suggest_commands=False,
    )
    panels.add(group, create, ls, rm, test, deliveries, redeliver, rotate, enable, disable)
    app.add_typer(group, name="webhook", rich_help_panel=panels.OPERATING)


@panels.command(
    None, "pt2hub webhook create https://ci.example.org/hook --models 'vision/*' --event alias.moved"
)
def create(
    address: Annotated[str, typer.Argument(help="Where events are sent, https.")],
    *,
    models: Annotated[
        str, typer.Option(metavar="PATTERN", help="Models whose events are sent, such as 'vision/*'.")
    ],
    event: Annotated[
        list[EventType] | None, typer.Option(help="A type of event; repeat it for more. All if omitted.")
    ] = None,
) -> None:
    """Create a webhook, with an admin token for its models.

    Its secret is shown this once.
    """
    from pt2hub.client.client import Client

    with Client() as client:
        made = client.webhooks.create(address, models=models, events=event or [])
    emit(made, lambda out: _print_secret(out, made))


@panels.command(None, "pt2hub webhook ls")
def ls() -> None:
    """List the webhooks for models that your admin token covers."""
    from pt2hub.client.client import Client

    with Client() as client:
        found = client.webhooks.list()
    emit({"webhooks": found}, lambda out: _print_webhooks(out, found))


@panels.command(None, "pt2hub webhook rm 3")
def rm(webhook: _Id) -> None:
    """Delete a webhook and its deliveries."""
    from pt2hub.client.client import Client

    with Client() as client:
        removed = client.webhooks.delete(webhook)
    emit(removed, lambda out: out.print(f"Webhook {removed.id} ({removed.address}) was deleted."))


@panels.command(None, "pt2hub webhook test 3")
def test(webhook: _Id) -> None:
    """Send an event of the type `ping`, and show how it went."""
    from pt2hub.client.client import Client

    with Client() as client:
        delivery = _await_attempt(client, webhook, client.webhooks.test(webhook))
    emit(delivery, lambda out: _print_deliveries(out, [delivery]))
    if delivery.state != DeliveryState.DELIVERED:
        raise typer.Exit(1)


@panels.command(None, "pt2hub webhook deliveries 3")
def deliveries(
    webhook: _Id,
    *,
    limit: Annotated[
        int, typer.Option("--limit", "-n", min=1, max=200, help="Maximum number of deliveries, newest first.")
    ] = 20,
) -> None:
    """List what was sent to a webhook, and what the receiver answered."""
    from pt2hub.client.client import Client

    with Client() as client:
        page: DeliveryPage = client.webhooks.deliveries(webhook, limit=limit)
    emit(page, lambda out: _print_deliveries(out, page.deliveries, more=page.next is not None))


@panels.command(None, "pt2hub webhook redeliver 3 17")
def redeliver(
    webhook: _Id,
    delivery: Annotated[int, typer.Argument(metavar="DELIVERY", help="Number of the delivery, as listed.")],
) -> None:
    """Send an event again.

    The receiver gets it with the same id.
    """
    from pt2hub.client.client import Client

    with Client() as client:
        queued = client.webhooks.redeliver(webhook, delivery)
    emit(queued, lambda out: out.print(f"Delivery {queued.id} ({queued.type}) is queued again."))


@panels.command(None, "pt2hub webhook rotate 3", "pt2hub webhook rotate 3 --overlap 7d")
def rotate(
    webhook: _Id,
    *,
    overlap: Annotated[
        str, typer.Option(metavar="DURATION", help="How long the old secret signs too, at most 30d.")
    ] = "1d",
) -> None:
    """Replace a webhook's secret.

    The new one is shown this once. Until the overlap ends, both sign.
    """
    from pt2hub.client.client import Client

    rest = parse_lifetime(overlap, "--overlap")
    with Client() as client:
        made = client.webhooks.rotate(webhook, overlap=rest)
    emit(made, lambda out: _print_secret(out, made))


@panels.command(None, "pt2hub webhook enable 3")
def enable(webhook: _Id) -> None:
    """Enable a webhook, for events from now on."""
    _set_enabled(webhook, enabled=True)


@panels.command(None, "pt2hub webhook disable 3")
def disable(webhook: _Id) -> None:
    """Disable a webhook; what waits to be sent fails."""
    _set_enabled(webhook, enabled=False)


def _set_enabled(webhook: int, *, enabled: bool) -> None:
    from pt2hub.client.client import Client

    with Client() as client:
        changed = client.webhooks.set_enabled(webhook, enabled=enabled)
    state = "enabled" if changed.enabled else "disabled"
    emit(changed, lambda out: out.print(f"Webhook {changed.id} ({changed.address}) is {state}."))


def _await_attempt(client: Client, webhook: int, delivery: DeliveryView) -> DeliveryView:
    """Return a delivery after its first attempt, or as it is after some seconds."""
    until = time.monotonic() + _TEST_SECONDS
    while not delivery.attempts and time.monotonic() < until:
        time.sleep(_POLL_SECONDS)
        found = client.webhooks.deliveries(webhook).deliveries
        delivery = next((item for item in found if item.id == delivery.id), delivery)
    return delivery


def _print_secret(out: Console, made: WebhookSecret) -> None:
    out.print(made.secret)


def _print_webhooks(out: Console, found: Sequence[WebhookView]) -> None:
    from pt2hub.cli.tables import print_table

    rows = [
        (
            str(hook.id),
            hook.address,
            hook.pattern,
            list(hook.events) if len(hook.events) < len(EventType) else "all",
            _state(hook),
        )
        for hook in found
    ]
    empty = "No webhooks yet. To create one: pt2hub webhook create https://... --models 'team/*'"
    print_table(out, ("ID", "ADDRESS", "MODELS", "EVENTS", "STATE"), rows, empty=empty)


def _state(hook: WebhookView) -> str:
    if not hook.enabled:
        return f"disabled: {hook.disabled_reason}"
    return f"failing since {format_local_time(hook.failing_since)}" if hook.failing_since else "enabled"


def _print_deliveries(out: Console, found: Sequence[DeliveryView], *, more: bool = False) -> None:
    from pt2hub.cli.tables import print_table

    rows = [
        (
            str(item.id),
            format_local_time(item.created_at),
            item.type,
            item.model or NOTHING,
            item.state,
            str(item.attempts[-1].number if item.attempts else 0),
            _outcome(item),
        )
        for item in found
    ]
    headings = ("ID", "CREATED", "EVENT", "MODEL", "STATE", "ATTEMPTS", "LAST ANSWER")
    print_table(out, headings, rows, empty="Nothing was sent yet.", more=more)


def _outcome(item: DeliveryView) -> str:
    if not item.attempts:
        return NOTHING
    last = item.attempts[-1]
    result = last.error or f"{last.status} {last.answer[:60]}".strip()
    return f"{result} ({format_duration(last.seconds)})"
