"""Webhooks to the receiver, and what tests do with them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pt2hub.domain.tokens import Actor
from pt2hub.server.webhook_thread import WebhookThread
from support.receiver import Receiver
from support.registry import Registry

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pt2hub.domain.webhooks import EventType
    from pt2hub.server.config import ServerConfig
    from pt2hub.server.container import Container
    from pt2hub.wire.webhooks import DeliveryView

ADA = Actor("ada", admin=True)
_HOW_TO = Path(__file__).parents[2] / "docs" / "how-to" / "webhooks.md"


def documented_verification() -> Callable[..., bool]:
    """The function of the how-to."""
    (code,) = re.findall(r"```python\n(.*?)```", _HOW_TO.read_text(encoding="utf-8"), re.DOTALL)
    found: dict[str, Any] = {}
    exec(code, found)
    verify: Callable[..., bool] = found["verify"]
    return verify


@dataclass(frozen=True)
class Hooks:
    """Webhooks to the receiver, and what tests do with them."""

    registry: Registry
    receiver: Receiver

    def create(
        self, *events: EventType, path: str = "/hook", pattern: str = "vision/*", by: Actor = ADA
    ) -> tuple[int, str]:
        """Creates a webhook; returns its number and secret."""
        made = self.registry.services.webhooks.create(
            self.receiver.url(path), pattern=pattern, events=events, by=by
        )
        return made.webhook.id, made.secret

    def ping(self, webhook: int) -> DeliveryView:
        return self.registry.services.webhooks.test(webhook, by=ADA)

    def work(self) -> None:
        """Does at once what the queue's consumers do."""
        for (event,) in self.registry.sql("SELECT id FROM webhook_events WHERE dispatched_at IS NULL"):
            self.registry.services.webhook_dispatcher.dispatch(event)
        for (webhook,) in self.registry.sql("SELECT id FROM webhooks ORDER BY id"):
            self.registry.services.webhook_sender.send(webhook)

    def deliveries(self, webhook: int) -> tuple[DeliveryView, ...]:
        return self.registry.services.webhooks.deliveries(webhook, by=ADA).deliveries


@pytest.fixture
def hooks(container: Container, config: ServerConfig, receiver: Receiver) -> Hooks:
    return Hooks(Registry(container, str(config.database_url)), receiver)


@pytest.fixture
def sending(container: Container) -> Iterator[None]:
    """The thread of an API process that sends webhooks."""
    thread = WebhookThread(container)
    thread.start()
    yield
    thread.stop()
