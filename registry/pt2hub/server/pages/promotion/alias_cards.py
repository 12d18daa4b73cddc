"""Cards of a model's aliases."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pt2hub.errors import Deleted, PromotionCheckFailed, VersionYanked
from pt2hub.rendering.alias_answers import (
    count_forced,
    is_production,
    previous_version,
    sort_aliases,
)
from pt2hub.rendering.targets import short_target
from pt2hub.server.pages.promotion.speed_texts import describe_speed, format_limit
from pt2hub.server.pages.template_filters import upper_first
from pt2hub.server.views.rollbacks import Rollback
from pt2hub.wire.responses import AliasView

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pt2hub.server.views.version_speeds import VersionSpeeds

_OBSTACLES = {
    VersionYanked.code: "it is yanked",
    PromotionCheckFailed.code: "it is damaged",
    Deleted.code: "it was deleted",
}


@dataclass(frozen=True, slots=True)
class AliasCard:
    """An alias with its last move.

    Attributes:
        back: Where a rollback leads; None where it leads nowhere.
        before: The version that it was on before its last move; None where there is none.
        forced: How many failed checks its last move was forced past.
        speed: How its version's speed compares with that of the version before; empty where that is unknown.
        outcome: `better`, `worse`, `same` or `inconclusive`; empty where that is unknown.
        is_production: Whether it is in production, by its name.
    """

    alias: AliasView
    back: Rollback | None
    before: int | None
    forced: int
    speed: str
    outcome: str
    is_production: bool

    @property
    def obstacle(self) -> str:
        """What stands in the way of its rollback, in a few words: `it is yanked`; empty where nothing does."""
        if self.back is None or self.back.obstacle is None:
            return ""
        return _OBSTACLES.get(self.back.obstacle.code, "it is not ready")


def pick_production(aliases: Iterable[AliasView]) -> AliasView | None:
    """Return the alias in production; of several, the one with the shortest name."""
    found = sort_aliases(alias for alias in aliases if alias.number and is_production(alias.name))
    return found[0] if found else None


def compose_cards(
    aliases: Iterable[AliasView],
    speeds: VersionSpeeds | None,
    rollbacks: Mapping[str, Rollback],
) -> list[AliasCard]:
    """Return the cards of aliases, those in production first.

    Args:
        rollbacks: Where rollbacks lead, by alias.
    """
    return [compose_card(alias, speeds, rollbacks.get(alias.name)) for alias in sort_aliases(aliases)]


def compose_card(alias: AliasView, speeds: VersionSpeeds | None, back: Rollback | None) -> AliasCard:
    """Return the card of an alias.

    Args:
        back: Where a rollback leads.
    """
    before = previous_version(alias.last) if alias.number else None
    speed = describe_speed(speeds, alias.number or 0, before)
    where = f" on {short_target(speeds.target)}" if speeds else ""
    return AliasCard(
        alias,
        back,
        before,
        count_forced(alias.last),
        f"{upper_first(speed.beside)}{where}{speed.caveat}" if speed.outcome else "",
        speed.outcome,
        is_production(alias.name),
    )


def describe_newer(speeds: VersionSpeeds | None, ready: int | None, number: int | None) -> str:
    """Return how the speed of the newest ready version differs from that of an alias; empty where that is unknown."""
    if speeds is None or ready is None:
        return ""
    speed = describe_speed(speeds, ready, number)
    if speed.outcome in ("", "inconclusive"):
        return ""
    alike = f"speeds within {format_limit(speeds)}"
    return f"{alike if speed.outcome == 'same' else speed.change} on {short_target(speeds.target)}"
