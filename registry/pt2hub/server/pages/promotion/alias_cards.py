"""Cards of aliases on a model's page."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pt2hub.rendering.alias_answers import count_forced, is_production, rollback_version
from pt2hub.wire.responses import AliasMove

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pt2hub.wire.responses import AliasView


@dataclass(frozen=True, slots=True)
class AliasCard:
    """An alias with its last move.

    Attributes:
        number: The version that it is on.
        forced: How many failed checks its last move was forced past.
        back: The version that a rollback would move it to, None if there is none.
    """

    name: str
    number: int
    last: AliasMove
    production: bool
    forced: int
    back: int | None


def show_cards(aliases: Iterable[AliasView]) -> list[AliasCard]:
    """Return a card for each alias that is on a version, in the order given."""
    return [
        AliasCard(
            alias.name,
            alias.number,
            alias.last,
            is_production(alias.name),
            count_forced(alias.last),
            rollback_version(alias.last),
        )
        for alias in aliases
        if alias.number
    ]
