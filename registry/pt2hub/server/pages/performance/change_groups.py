"""Flagged changes of a model, grouped by version, target and outcome."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pt2hub.wire.performance import EventView

if TYPE_CHECKING:
    from collections.abc import Iterable

MAX_EVENTS = 200
"""Events to group: the changes of one version on about ten targets."""
_MAX_SHOWN = 3


@dataclass(frozen=True, slots=True)
class ChangeGroup:
    """The changes of a version on a target.

    Attributes:
        before: The version it is compared with, or the last version of the old level.
        outcome: `better` or `worse`.
        at: Time of the first event, ISO 8601, UTC.
        events: The strongest event of each metric.
        more: Number of further events.
    """

    number: int
    before: int
    target: str
    outcome: str
    at: str
    events: tuple[EventView, ...]
    more: int


def group_changes(events: Iterable[EventView], limit: int) -> tuple[ChangeGroup, ...]:
    """Group events of one model by version, target and outcome, newest version first.

    Args:
        events: Newest first.
        limit: Maximum number of groups.
    """
    found: dict[tuple[int, str, str], list[EventView]] = {}
    for event in events:
        found.setdefault((event.number, event.target, event.outcome), []).append(event)
    newest = sorted(found.values(), key=lambda group: -group[0].number)[:limit]
    return tuple(map(_merge_group, newest))


def _merge_group(group: list[EventView]) -> ChangeGroup:
    strongest = sorted(group, key=lambda event: (event.metric != "latency_p50", -_size(event.ratio)))
    shown = list({event.metric: event for event in reversed(strongest)}.values())[::-1][:_MAX_SHOWN]
    first = strongest[0]
    return ChangeGroup(
        number=first.number,
        before=first.before,
        target=first.target,
        outcome=first.outcome,
        at=min(event.at for event in group),
        events=tuple(shown),
        more=len(group) - len(shown),
    )


def _size(ratio: float) -> float:
    """Return the size of a change, regardless of its direction."""
    return max(ratio, 1 / ratio) if ratio > 0 else 0.0
