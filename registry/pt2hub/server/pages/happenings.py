"""Flagged changes of a model, told by what happened: one change shows in many metrics and batch sizes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pt2hub.wire.performance import EventView

if TYPE_CHECKING:
    from collections.abc import Iterable

LOOKED_AT = 200
"""Events that are gathered: what one version changed on ten targets."""
_SHOWN = 3


@dataclass(frozen=True, slots=True)
class Happening:
    """What changed with a version on a target.

    Attributes:
        number: The version.
        before: The version it is compared with, or the last of the old level.
        target: The target's name.
        verdict: `better` or `worse`.
        at: When the first was flagged, ISO 8601, UTC.
        events: Those that changed most, one of a metric.
        more: How many others say so too.
    """

    number: int
    before: int
    target: str
    verdict: str
    at: str
    events: tuple[EventView, ...]
    more: int


def happenings(events: Iterable[EventView], limit: int) -> tuple[Happening, ...]:
    """Events of one model gathered by version, target and verdict, those of the newest version first.

    Args:
        events: Newest first.
        limit: At most so many.
    """
    found: dict[tuple[int, str, str], list[EventView]] = {}
    for event in events:
        found.setdefault((event.number, event.target, event.verdict), []).append(event)
    newest = sorted(found.values(), key=lambda group: -group[0].number)[:limit]
    return tuple(map(_gathered, newest))


def _gathered(group: list[EventView]) -> Happening:
    strongest = sorted(group, key=lambda event: (event.metric != "latency_p50", -_size(event.ratio)))
    shown = list({event.metric: event for event in reversed(strongest)}.values())[::-1][:_SHOWN]
    first = strongest[0]
    return Happening(
        number=first.number,
        before=first.before,
        target=first.target,
        verdict=first.verdict,
        at=min(event.at for event in group),
        events=tuple(shown),
        more=len(group) - len(shown),
    )


def _size(ratio: float) -> float:
    """How large a change is, whichever way it goes."""
    return max(ratio, 1 / ratio) if ratio > 0 else 0.0
