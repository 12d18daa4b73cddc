"""What one team's webhooks cost the others: nothing, although its receivers hang."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from pt2hub.domain.webhooks import EventType
from pt2hub.errors import Conflict
from pt2hub.server.services.webhooks import webhooks
from pt2hub.server.services.webhooks.fair_sending import MAX_SENDS_PER_TEAM, FairSending
from support.webhooks import ADA

if TYPE_CHECKING:
    from support.receiver import Receiver
    from support.webhooks import Hooks


@pytest.mark.usefixtures("sending")
def test_receivers_of_one_team_that_hang_do_not_delay_anothers(hooks: Hooks, receiver: Receiver) -> None:
    for number in range(12):
        path = f"/dead{number}"
        receiver.answers[path] = ["hang"] * 10
        hooks.ping(hooks.create(path=path, pattern="vision/*")[0])
    receiver.wait(lambda: len(receiver.received) >= MAX_SENDS_PER_TEAM)
    live, _ = hooks.create(EventType.ALIAS_MOVED, path="/live", pattern="nlp/*")
    registry = hooks.registry
    registry.published(registry.submit(model="nlp/bert"))
    began = time.monotonic()
    registry.services.aliases.move("nlp/bert", "prod", 1, expected=None, by=ADA, reason="first")
    receiver.wait(lambda: len(receiver.at("/live")) == 1, 8)
    assert time.monotonic() - began < 8, "less than the time-out of one receiver that hangs"
    assert hooks.deliveries(live)[0].type == "alias.moved"
    assert len(receiver.received) - 1 <= MAX_SENDS_PER_TEAM
    receiver.closed.set()  # they need not be waited for


def test_what_waits_for_its_team_is_sent_after_it() -> None:
    sent: list[int] = []
    at_once: list[int] = []

    def send(webhook: int) -> None:
        sent.append(webhook)
        at_once.append(webhook)
        assert len(at_once) <= MAX_SENDS_PER_TEAM
        if webhook < 7:
            fair.send(webhook + 1)  # as another thread does meanwhile
        at_once.pop()
        if webhook == 8:
            raise ValueError(webhook)

    fair = FairSending(send, lambda webhook: None if webhook == 9 else "vision")
    fair.send(1)
    assert sent == [1, 2, 3, 4, 5, 6, 7]
    for _ in range(MAX_SENDS_PER_TEAM + 1):
        with pytest.raises(ValueError, match="8"):
            fair.send(8)
    assert sent[7:] == [8] * (MAX_SENDS_PER_TEAM + 1), "a send that fails gives its place back"
    fair.send(9)
    assert sent[-1] == 8, "a deleted webhook has no deliveries"


def test_each_team_has_its_own_number_of_webhooks(hooks: Hooks, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(webhooks, "MAX_WEBHOOKS", 2)
    monkeypatch.setattr(webhooks, "_MAX_FOR_SEVERAL_TEAMS", 1)
    hooks.create(pattern="vision/*")
    hooks.create(pattern="vision/resnet18")
    with pytest.raises(Conflict, match="There are 2 webhooks for vision"):
        hooks.create(pattern="vision/vit")
    hooks.create(pattern="nlp/*")
    hooks.create(pattern="*")
    with pytest.raises(Conflict, match="There are 1 webhooks"):
        hooks.create(pattern="*/bert")
