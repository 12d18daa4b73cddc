"""Text about series without a flagged change."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pt2hub.server.views.overview import Trend


def format_trend(trend: Trend) -> str:
    """Return in short how steady a series is."""
    if len(trend.series.values) <= 1:
        return "one version measured"
    return "steady" if trend.level == "steady" else "inconclusive"


def explain_trend(trend: Trend) -> str:
    """Return the reason in full."""
    count = len(trend.series.values)
    if count <= 1:
        return "There is nothing to compare it with"
    if trend.level == "too_few":
        return (
            f"{count} versions are too few for a series; comparisons of two versions may still be significant"
        )
    off = f", but version {trend.series.newest} deviates from their level" if trend.level == "apart" else ""
    return f"No change was flagged in the last {count} versions{off}"
