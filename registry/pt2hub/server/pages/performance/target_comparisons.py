"""Two versions compared on every target that both have."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from flask import url_for

from pt2hub.rendering.comparison_answers import Answer, answer_comparison, changed_subjects, find_speed
from pt2hub.rendering.comparison_words import outcome_word
from pt2hub.rendering.comparisons import comparison_row
from pt2hub.rendering.reasons import NOTHING
from pt2hub.server.pages.performance.intervals import Interval, common_reach, interval
from pt2hub.wire.performance import ComparisonView, SideView

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from pt2hub.server.services.performance.comparisons import ComparisonService

_MAX_TARGETS = 12
"""Targets compared in one page; each takes a few statements."""
_ORDER = ("worse", "mixed", "better")


@dataclass(frozen=True, slots=True)
class TargetRow:
    """A target's comparison in short.

    Attributes:
        outcome: Its outcome, for its colour.
        word: The outcome for people.
        metric: Which measurement says it.
        others: What else changed.
        href: The whole comparison.
    """

    target: str
    outcome: str
    word: str
    metric: str
    change: str
    before: str
    after: str
    others: str
    interval: Interval | None
    href: str


@dataclass(frozen=True, slots=True)
class TargetOverview:
    """Two versions on all targets that both have.

    Attributes:
        first: The comparison on the first target.
        more: Targets beyond the first ones, each with the URL of its comparison.
        swapped: The URL with the sides swapped.
    """

    before: SideView
    after: SideView
    first: ComparisonView
    answer: Answer
    rows: tuple[TargetRow, ...]
    more: tuple[tuple[str, str], ...]
    swapped: str


def compare_targets(
    before: str,
    after: str,
    targets: Sequence[str],
    comparisons: ComparisonService,
    metrics: Collection[str] | None = None,
) -> TargetOverview:
    """Compare two versions on their targets, of which there is at least one; the first of them in full.

    Args:
        metrics: Only these; all where omitted.
    """
    views = comparisons.compare_targets(before, after, targets[:_MAX_TARGETS], metrics)
    items = [item for item in (find_speed(view).item for view in views) if item]
    reach = common_reach(items)
    rows = sorted(
        (_row(view, before, after, reach) for view in views),
        key=lambda row: _ORDER.index(row.outcome) if row.outcome in _ORDER else len(_ORDER),
    )
    return TargetOverview(
        views[0].before,
        views[0].after,
        views[0],
        answer_comparison(views),
        tuple(rows),
        tuple((target, _href(before, after, target)) for target in targets[_MAX_TARGETS:]),
        url_for("pages.compare", before=after, after=before),
    )


def _href(before: str, after: str, target: str) -> str:
    return url_for("pages.compare", before=before, after=after, target=target)


def _row(view: ComparisonView, before: str, after: str, reach: float) -> TargetRow:
    found, target = find_speed(view), view.after.target
    item = found.item
    others, href = "; ".join(changed_subjects(view)), _href(before, after, target)
    if item is None:
        return TargetRow(target, "none", found.state, NOTHING, NOTHING, NOTHING, NOTHING, others, None, href)
    name, one, other, change, _, _ = comparison_row(item)
    word = found.state if found.state == "mixed" else outcome_word(item)
    outcome = "worse" if found.state == "mixed" else item.outcome
    amount, line = change.partition(" (")[0], interval(item, reach)
    return TargetRow(target, outcome, word, name, amount, one, other, others, line, href)
