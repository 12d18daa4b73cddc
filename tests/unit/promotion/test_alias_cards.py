"""Cards of aliases, and the versions that forms offer."""

from __future__ import annotations

from dataclasses import replace

from pt2hub.server.pages.promotion.alias_cards import (
    AliasCard,
    compose_cards,
    describe_newer,
    pick_production,
)
from pt2hub.server.pages.promotion.version_choices import MAX_CHOICES, compose_choices
from pt2hub.server.views.rollbacks import Rollback
from pt2hub.server.views.version_speeds import VersionSpeeds
from pt2hub.wire.resolution import Yank
from pt2hub.wire.responses import AliasMove, AliasView, VersionSummary

MODEL, AT = "vision/vit", "2026-11-27T12:00:00+00:00"
SPEEDS = VersionSpeeds(
    1, "torch2.13-cu130-sm90", "latency_p50", "ms", None, {15: 10.0, 16: 10.1, 17: 11.0, 30: 10.4}, 0.02, 0.05
)


def alias(name: str, before: int | None, after: int | None) -> AliasView:
    return AliasView(MODEL, name, after, AliasMove(2, before, after, "offline test", "mary", AT))


def cards_of(aliases: list[AliasView], speeds: VersionSpeeds | None) -> list[AliasCard]:
    """The cards of aliases that were moved once."""
    before = {item.name: item.last.before for item in aliases}
    return compose_cards(
        aliases, speeds, {name: Rollback(number) for name, number in before.items() if number}
    )


def version(number: int, readiness: str = "ready") -> VersionSummary:
    return VersionSummary(MODEL, number, readiness, AT)


def test_a_card_says_what_the_last_move_changed_and_where_a_rollback_leads() -> None:
    slower, alike, new = cards_of(
        [alias("prod", 16, 17), alias("production", 15, 16), alias("stable", None, 15)], SPEEDS
    )
    assert (slower.back, slower.outcome, slower.speed) == (
        Rollback(16),
        "worse",
        "8.9 % slower than version 16 on H100 · torch 2.13",
    )
    assert (alike.back, alike.outcome, alike.speed) == (
        Rollback(15),
        "same",
        "1.0 % slower than version 15 on H100 · torch 2.13, below the limit of 2 %",
    )
    assert (new.back, new.outcome, new.speed, new.is_production) == (None, "", "", False)
    (noisy,) = cards_of([alias("prod", 16, 30)], SPEEDS)
    assert (noisy.outcome, noisy.speed) == (
        "inconclusive",
        "3.0 % slower than version 16 on H100 · torch 2.13, which may be noise",
    )
    assert cards_of([alias("prod", 16, 17)], None)[0].speed == ""


def test_production_is_the_shortest_name_that_is_on_a_version() -> None:
    found = pick_production([alias("production", 1, 2), alias("prod", 1, None), alias("best", 1, 3)])
    assert found is not None
    assert found.name == "production"
    assert pick_production([alias("best", 1, 3)]) is None


def test_a_newer_version_is_as_fast_slower_or_not_measured() -> None:
    assert describe_newer(SPEEDS, 17, 16) == "8.9 % slower on H100 · torch 2.13"
    assert describe_newer(SPEEDS, 16, 15) == "speeds within 2 % on H100 · torch 2.13"
    assert (
        describe_newer(SPEEDS, 18, 16) == describe_newer(SPEEDS, 30, 16) == describe_newer(None, 17, 16) == ""
    )


def test_forms_offer_the_newest_versions_that_an_alias_can_move_to() -> None:
    yanked = replace(version(19), yanked=Yank(reason="wrong", by="mary", at=AT))
    first = replace(version(17), aliases=("staging",))
    found = compose_choices(
        [version(20, "failed"), yanked, version(18, "partial"), first, version(16)], SPEEDS, 16
    )
    assert [choice.label for choice in found] == [
        "18 · partly ready",
        "17 · staging · 11 ms · 8.9 % slower than 16",
        "16 · 10.1 ms",
    ]
    assert len(compose_choices(map(version, range(40, 0, -1)), None, None)) == MAX_CHOICES
