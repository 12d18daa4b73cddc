"""Sheets of performance views, as a terminal and a prompt show them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pt2hub.wire.printing import Sheet

if TYPE_CHECKING:
    from pt2hub.wire.performance import ComparisonView, EventView, HistoryView, PolicyView


def history(view: HistoryView) -> Sheet:
    """A history: one row for each series."""
    rows = [(f"{series.target}", f"{len(series.points)} versions") for series in view.series]
    return Sheet(f"{view.metric} of {view.model}", tuple(rows))


def comparison(view: ComparisonView) -> Sheet:
    """A comparison: one row for each metric."""
    rows = [(item.metric, item.verdict) for item in view.metrics]
    return Sheet(f"{view.after.model}@{view.after.number} against {view.before.number}", tuple(rows))


def event(view: EventView) -> Sheet:
    """A flagged change."""
    return Sheet(
        f"{view.model}@{view.number} {view.metric} {view.verdict}", ((view.target, f"{view.ratio:.3f}"),)
    )


def policy(view: PolicyView) -> Sheet:
    """A policy."""
    return Sheet(f"policy of {view.model}, revision {view.revision}", ())
