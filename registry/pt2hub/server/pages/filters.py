"""How templates write figures, times, digests and addresses."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from pt2hub.errors import UNSEEN
from pt2hub.rendering.moves import moved
from pt2hub.rendering.printing import measurement_state
from pt2hub.rendering.quantities import quantity

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_SHORT = 12
_FURTHEST = 1e300
_STEPS = ((86400 * 365, "y"), (86400 * 30, "mo"), (86400, "d"), (3600, "h"), (60, "min"), (1, "s"))


def moment(iso: str) -> str:
    """A time in UTC, to the second: `2026-11-22 07:18:47 UTC`."""
    return f"{datetime.fromisoformat(iso).astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"


def ago(iso: str) -> str:
    """How long ago a time was: `3 h ago`."""
    return f"{span((datetime.now(UTC) - datetime.fromisoformat(iso)).total_seconds())} ago"


def span(seconds: float) -> str:
    """A duration in its largest unit that counts: `42 s`, `3 h`."""
    whole = max(0.0, seconds)
    return next((f"{whole / size:.0f} {unit}" for size, unit in _STEPS if whole >= size), f"{whole:.1f} s")


def size(count: float) -> str:
    """A number of bytes: `44.7 MB`; one that a hostile document holds may be beyond all floats."""
    return quantity(max(-_FURTHEST, min(count, _FURTHEST)), "B")


def short(digest: str) -> str:
    """The beginning of a digest, which is enough to know it again."""
    return digest.removeprefix("sha256:")[:_SHORT]


def points(values: Sequence[float], width: float = 100, height: float = 24) -> str:
    """Points of a polyline over a box of `width` by `height`, for a sparkline; a range of 10 % is spanned at least."""
    if not values:
        return ""
    low, high = min(values), max(values)
    span_ = max(high - low, 0.1 * max(abs(low), abs(high))) or 1.0
    middle = (low + high) / 2
    step = width / max(1, len(values) - 1)
    return " ".join(
        f"{place * step:.1f},{height / 2 - (value - middle) / span_ * (height - 4):.1f}"
        for place, value in enumerate(values)
    )


def plain(value: object, most: int = 300) -> str:
    """A value that others wrote, as text without what is not seen or turns text around, and not too long of it."""
    text = str(value).translate(UNSEEN)
    return text if len(text) <= most else f"{text[:most]}..."


FILTERS: dict[str, Callable[..., Any]] = {
    "moment": moment,
    "ago": ago,
    "span": span,
    "size": size,
    "short": short,
    "points": points,
    "plain": plain,
    "quantity": quantity,
    "moved": moved,
    "measurement": measurement_state,
}
