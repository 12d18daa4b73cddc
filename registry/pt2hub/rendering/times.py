"""Formatting of times. Pages show UTC until a script knows the reader's time zone."""

from __future__ import annotations

from datetime import UTC, datetime

from pt2hub.rendering.quantities import format_age, format_duration

NOTHING = "-"
"""Shown for a missing value, so that every column of a line has text."""


def format_local_time(iso: str | None) -> str:
    """Format a time by this machine's clock and zone, to the minute."""
    moment = _parse(iso)
    return moment.astimezone().strftime("%Y-%m-%d %H:%M") if moment else iso or NOTHING


def format_utc_time(iso: str) -> str:
    """Format a time in UTC, to the second: `2026-11-22 07:18:47 UTC`."""
    return f"{datetime.fromisoformat(iso).astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"


def format_ago(iso: str) -> str:
    """Format how long ago a time was: `3 h ago`."""
    return f"{format_age(count_seconds(iso) or 0.0)} ago"


def format_span(begin: str | None, end: str | None) -> str:
    """Format how long something took."""
    seconds = count_seconds(begin, end) if end else None
    return NOTHING if seconds is None else format_duration(seconds)


def count_seconds(begin: str | None, end: str | None = None) -> float | None:
    """Return the seconds between two times; until now if the second is None, None if the first is."""
    first, last = _parse(begin), _parse(end) if end else datetime.now(UTC)
    return max(0.0, (last - first).total_seconds()) if first and last else None


def _parse(iso: str | None) -> datetime | None:
    try:
        moment = datetime.fromisoformat(iso or "")
    except ValueError:  # none, or of a server that writes times in another way
        return None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
