"""Cards of a model's aliases, and the sentence that answers which version is in production."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pt2hub.domain.names import PRODUCTION_PREFIXES
from pt2hub.rendering.comparison_answers import Answer
from pt2hub.rendering.quantities import format_age
from pt2hub.rendering.targets import short_target
from pt2hub.rendering.times import count_seconds
from pt2hub.server.pages.promotion.speed_texts import describe_speed
from pt2hub.wire.responses import AliasView

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pt2hub.server.views.version_speeds import VersionSpeeds
    from pt2hub.wire.responses import AliasMove, ModelView

_MAX_REASON = 140


@dataclass(frozen=True, slots=True)
class AliasCard:
    """An alias with its last move.

    Attributes:
        back: The version that a rollback moves it to; None where there is none.
        speed: How its version's speed compares with that of the version before; empty where that is unknown.
        outcome: `better`, `worse` or `same`; empty where that is unknown.
        is_production: Whether it is in production, by its name.
    """

    alias: AliasView
    reason: str
    back: int | None
    speed: str
    outcome: str
    is_production: bool


def pick_production(aliases: Iterable[AliasView]) -> AliasView | None:
    """Return the alias in production; of several, the one with the shortest name."""
    found = [alias for alias in aliases if alias.number and is_production(alias.name)]
    return min(found, key=lambda alias: (len(alias.name), alias.name), default=None)


def is_production(alias: str) -> bool:
    """Return whether an alias is in production, by its name."""
    return alias.lower().startswith(PRODUCTION_PREFIXES)


def compose_cards(aliases: Sequence[AliasView], speeds: VersionSpeeds | None) -> list[AliasCard]:
    """Return the cards of aliases, those in production first."""
    ordered = sorted(aliases, key=lambda alias: (not is_production(alias.name), len(alias.name), alias.name))
    return [_card(alias, speeds) for alias in ordered]


def find_rollback(last: AliasMove) -> int | None:
    """Return the version that a rollback moves an alias to; None if its last move did not change the version."""
    return last.before if last.before != last.after else None


def shorten_reason(reason: str) -> str:
    """Return the reason of a move as the end of a sentence, without its period."""
    text = " ".join(reason.split()).rstrip(".")
    return text if len(text) <= _MAX_REASON else f"{text[:_MAX_REASON].rstrip()}..."


def answer_model(model: ModelView, alias: AliasView | None, speeds: VersionSpeeds | None) -> Answer:
    """Answer which version is in production, since when, who moved it and why.

    Args:
        alias: The alias in production; None where there is none.
    """
    if model.newest is None:
        return Answer("calm", "No version is published yet.")
    if alias is None or alias.number is None:
        return _without_production(model)
    card = _card(alias, speeds)
    return Answer(
        "bad" if card.outcome == "worse" else "good",
        f"{describe_alias(alias)}.{_speed_sentence(card, speeds)}{_newer(model, alias.number, speeds)}",
    )


def describe_alias(alias: AliasView) -> str:
    """Return where an alias is, since when, who moved it there and why: a sentence without its period."""
    last = alias.last
    age = format_age(count_seconds(last.at) or 0.0)
    moved = f"moved by {last.by}: {shorten_reason(last.reason)}"
    if alias.number is None:
        return f"{alias.name} was removed {age} ago by {last.by}: {shorten_reason(last.reason)}"
    return f"{alias.name} has been on version {alias.number} for {age}, {moved}"


def _without_production(model: ModelView) -> Answer:
    if model.newest_ready is None:
        return Answer("warn", f"No version is ready yet; the newest is {model.newest}.")
    return Answer(
        "calm", f"No version is in production. Version {model.newest_ready} is the newest ready one."
    )


def _newer(model: ModelView, number: int, speeds: VersionSpeeds | None) -> str:
    ready, newest = model.newest_ready, model.newest
    if ready is not None and ready > number:
        speed = describe_speed(speeds, ready, number)
        if speeds is None or not speed.outcome:
            return f" Version {ready} is newer and ready."
        change = "as fast" if speed.outcome == "same" else speed.change
        return f" Version {ready} is newer, ready and {change} on {short_target(speeds.target)}."
    if newest is not None and newest > number:
        return f" Version {newest} is newer, but not ready."
    return ""


def _speed_sentence(card: AliasCard, speeds: VersionSpeeds | None) -> str:
    if not card.outcome or card.outcome == "same" or speeds is None:
        return ""
    return f" It is {card.speed} on {short_target(speeds.target)}."


def _card(alias: AliasView, speeds: VersionSpeeds | None) -> AliasCard:
    back = find_rollback(alias.last) if alias.number else None
    speed = describe_speed(speeds, alias.number or 0, back)
    beside = {"same": f"as fast as {back}, {speed.change}", "": ""}.get(speed.outcome, speed.exact)
    return AliasCard(
        alias, shorten_reason(alias.last.reason), back, beside, speed.outcome, is_production(alias.name)
    )
