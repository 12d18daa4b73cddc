"""Waiting for an alias's moves by long polls."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING

from pt2hub.client.builds.follower import time_left
from pt2hub.client.http.long_poll import MAX_WAIT_S, retry_outages
from pt2hub.errors import AliasNotMoved
from pt2hub.wire.responses import AliasMoves

if TYPE_CHECKING:
    from pt2hub.client.http.transport import Transport

_MIN_GAP_S = 0.2
"""Shortest time between two requests: a server that stops answers at once."""


def wait_for_alias(
    transport: Transport, path: str, *, at: int | None, after: int | None, timeout: float | None
) -> AliasMoves:
    """Wait until an alias has moved; see `Aliases.wait`.

    Args:
        path: Address of the alias's moves.
    """
    left = time_left(timeout)
    begin = {} if after is None else {"after": after}
    seen = retry_outages(lambda: transport.fetch(AliasMoves, path, begin), transport.url)
    while not _is_reached(seen, at):
        seconds = left()
        if seconds <= 0:
            raise _not_moved(seen, at)
        known, wait_s = seen.last, min(seconds, MAX_WAIT_S)
        news = retry_outages(
            lambda: transport.fetch_at_change(AliasMoves, path, {"after": known}, wait_s=wait_s),  # noqa: B023  # called here
            transport.url,
        )
        seen = replace(news, moves=(*seen.moves, *news.moves))
        if not news.moves:
            time.sleep(min(max(left(), 0.0), _MIN_GAP_S))
    return seen


def _is_reached(seen: AliasMoves, at: int | None) -> bool:
    if at is None:
        return bool(seen.moves)
    return seen.number == at or any(move.after == at for move in seen.moves)


def _not_moved(seen: AliasMoves, at: int | None) -> AliasNotMoved:
    name = f"{seen.model}@{seen.name}"
    now = f"is on version {seen.number}" if seen.number else "does not exist"
    goal = f", not on {at}" if at else " and was not moved"
    return AliasNotMoved(
        f"Timeout expired: {name} {now}{goal}",
        where=name,
        hint=f"To wait again without missing a move: pt2hub wait {seen.model} --alias {seen.name} --after {seen.last}"
        + (f" --at {at}" if at else ""),
        context={"number": seen.number, "last": seen.last},
    )
