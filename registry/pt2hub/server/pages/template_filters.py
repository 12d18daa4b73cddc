"""Template filters."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pt2hub.errors import INVISIBLE_CHARACTERS
from pt2hub.rendering.changes import format_change
from pt2hub.rendering.evaluations import difference_text, evaluation_row, value_text
from pt2hub.rendering.quantities import (
    format_bounded,
    format_bytes,
    format_count,
    format_duration,
    format_elapsed,
    format_remaining,
    format_share,
    quantity,
)
from pt2hub.rendering.sheets import measurement_state
from pt2hub.rendering.states import format_state
from pt2hub.rendering.targets import describe_target, short_target
from pt2hub.rendering.times import format_ago, format_utc_time
from pt2hub.rendering.waits import compose_wait, format_note
from pt2hub.server.pages.sparkline import points
from pt2hub.server.pages.trend_texts import explain_trend, format_trend

if TYPE_CHECKING:
    from collections.abc import Callable

_SHORT_DIGEST = 12


def short(digest: str) -> str:
    """Return the first characters of a digest, enough to recognize it."""
    return digest.removeprefix("sha256:")[:_SHORT_DIGEST]


def plain(value: object, max_length: int = 300) -> str:
    """Return an untrusted value as text: truncated, without invisible and direction-changing characters."""
    text = str(value).translate(INVISIBLE_CHARACTERS)
    return text if len(text) <= max_length else f"{text[:max_length]}..."


def upper_first(text: str) -> str:
    """Return text with a capital first letter."""
    return text[:1].upper() + text[1:]


FILTERS: dict[str, Callable[..., Any]] = {
    "evaluation_row": evaluation_row,
    "evaluation_difference": difference_text,
    "evaluation_value": value_text,
    "moment": format_utc_time,
    "ago": format_ago,
    "size": format_bytes,
    "duration": format_duration,
    "elapsed": format_elapsed,
    "remaining": format_remaining,
    "share": format_share,
    "bounded": format_bounded,
    "count": format_count,
    "state": format_state,
    "trend": format_trend,
    "trend_reason": explain_trend,
    "note": format_note,
    "wait": compose_wait,
    "short": short,
    "short_target": short_target,
    "describe_target": describe_target,
    "sparkline": points,
    "plain": plain,
    "upper_first": upper_first,
    "quantity": quantity,
    "moved": format_change,
    "measurement": measurement_state,
}
