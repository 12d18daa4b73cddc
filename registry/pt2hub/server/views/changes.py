"""View models of the page of flagged changes."""

from __future__ import annotations

from dataclasses import dataclass

from pt2hub.wire.performance import EventView


@dataclass(frozen=True, slots=True)
class VersionChange:
    """A version that got better or worse, with everything in which that shows.

    Attributes:
        number: The version that changed.
        before: The version that its main event is compared with.
        outcome: `better` or `worse`.
        at: When its newest event was flagged, ISO 8601, UTC, as all times here.
        events: Its events, at most `MAX_EVENTS_OF_CHANGE`.
        more: Whether it has further events.
        publisher: Name of who published the version; None if that was not recorded.
        owner: The label `owner` of the version, else of its model; None if neither has one.
        published_at: When it was published; None if the version was deleted.
        aliases: Aliases that point to it.
    """

    model: str
    number: int
    before: int
    outcome: str
    at: str
    events: tuple[EventView, ...]
    more: bool = False
    publisher: str | None = None
    published_at: str | None = None
    aliases: tuple[str, ...] = ()
    owner: str | None = None


@dataclass(frozen=True, slots=True)
class VersionChangePage:
    """A page of versions that changed.

    Attributes:
        next: Cursor of the next page, None on the last page.
    """

    changes: tuple[VersionChange, ...]
    next: str | None = None


@dataclass(frozen=True, slots=True)
class RecentRegressions:
    """Versions that were flagged as worse lately.

    Attributes:
        days: In how many days.
        count: How many versions.
        in_production: How many of them production aliases point to.
    """

    days: int
    count: int
    in_production: int
