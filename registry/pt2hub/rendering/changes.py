"""Formatting of changes with direction: `12.0 % slower`, `3.1 % smaller`; percentages are never negative."""

from __future__ import annotations

import math

from pt2hub.domain.performance.metrics import METRICS
from pt2hub.rendering.quantities import format_share

SAME = "no change"
_BYTES = frozenset(("B", "kB", "MB", "GB", "KiB", "MiB", "GiB"))
_TIMES = frozenset(("ns", "us", "ms", "s", "min", "h"))
_LARGE = 10.0
"""Ratio from which changes are shown as factors instead of percentages."""
_HUNDRED, _HUGE = 100, 1e6
MIN_SHOWN_CHANGE = 0.0005
"""Smaller changes would be shown as 0.0 %."""


def format_change(ratio: float, metric: str, unit: str) -> str:
    """Format a change: `12.0 % slower`, `no change`; as `12 times slower` from a factor of ten.

    Percentages are of the figure before: from 10 ms to 15 ms is `50.0 % slower`, from 15 ms to 10 ms `33.3 % faster`.

    Args:
        ratio: After over before.
    """
    if not math.isfinite(ratio) or ratio <= 0:
        return "-"
    amount = _amount(ratio)
    return f"{amount} {way(ratio, metric, unit)}" if amount else SAME


def is_shown(ratio: float) -> bool:
    """Return whether a change is shown as one, and not as `no change`.

    Args:
        ratio: After over before.
    """
    return abs(ratio - 1) >= MIN_SHOWN_CHANGE


def between(low: float, high: float, metric: str, unit: str) -> str:
    """Format a change's interval: `9.8 to 14.9 %` on one side of no change, else `2.0 % faster to 4.0 % slower`.

    Args:
        low: The least ratio.
    """
    ends = sorted((low, high), key=lambda ratio: abs(ratio - 1))
    texts = [_amount(ratio) for ratio in ends]
    one_sided = (low >= 1) == (high >= 1)
    if one_sided and all(text.endswith(" %") for text in texts):
        return f"{texts[0].removesuffix(' %')} to {texts[1]}"
    return f"{format_change(low, metric, unit)} to {format_change(high, metric, unit)}"


def join_changes(low: str, high: str) -> str:
    """Return two formatted changes of one direction as a range, `3.1 to 10.5 % faster`; empty if they make none."""
    if low == high:
        return high
    one, _, way = low.partition(" % ")
    return f"{one} to {high}" if way and high.endswith(f" % {way}") else ""


def way(ratio: float, metric: str, unit: str) -> str:
    """Return the word for a change's direction: `slower` for times, `larger` for sizes, `lower` for rates."""
    up, down = _words(metric, unit)
    return up if ratio > 1 else down


def _words(metric: str, unit: str) -> tuple[str, str]:
    """Return the words for a metric's increase and decrease; neutral for custom metrics, whose direction is unknown."""
    known = metric in METRICS
    if unit in _BYTES:
        return "larger", "smaller"
    if unit in _TIMES:
        return ("slower", "faster") if known else ("longer", "shorter")
    return ("larger", "smaller") if metric == "relative_error" else ("higher", "lower")


def factor(ratio: float) -> str:
    """Format a large ratio with three significant digits: `21.8`, `1,977`, `3.2e+09`."""
    if ratio >= _HUGE:
        return f"{ratio:.1e}"
    return f"{ratio:,.0f}" if ratio >= _HUNDRED else f"{ratio:.3g}"


def _amount(ratio: float) -> str:
    """Format the amount of a change: `12.0 %`, `12 times`; empty if negligible."""
    if not is_shown(ratio):
        return ""
    if ratio >= _LARGE:
        return f"{factor(ratio)} times"
    return format_share(abs(ratio - 1), decimals=1)
