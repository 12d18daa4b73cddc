"""Sentences about versions that got better or worse."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from pt2hub.domain.performance.metric_groups import MAIN_METRICS
from pt2hub.rendering.changes import format_change, join_changes
from pt2hub.rendering.comparison_answers import Answer
from pt2hub.rendering.lists import join_words
from pt2hub.rendering.quantities import format_count
from pt2hub.rendering.targets import short_target

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pt2hub.wire.performance import EventView

_MAX_NAMED = 2
"""Targets that a headline names; of more it says how many."""


def answer_recent(days: int, count: int, in_production: int, where: str = "") -> Answer:
    """Answer what got worse lately, such as `3 regressions in the last 7 days`.

    Args:
        where: Of which models, such as `of vision/resnet18`; empty for all.
    """
    of = f" {where}" if where else ""
    if not count:
        return Answer("good", f"No regressions{of} in the last {days} days.")
    text = f"{format_count(count, 'regression')}{of} in the last {days} days"
    if count == 1:
        return (
            Answer("bad", f"{text}, in production.")
            if in_production
            else Answer("warn", f"{text}, not in production.")
        )
    if not in_production:
        return Answer("warn", f"{text}, none of them in production.")
    share = "all" if in_production == count else f"{in_production:,}"
    return Answer("bad", f"{text}, {share} of them in production.")


def change_headline(events: Sequence[EventView]) -> str:
    """Return what happened to a version in short: `21.5 % slower on CPU v4 · torch 2.13`.

    Args:
        events: Its events of one outcome, at least one.
    """
    main = _main_metric(events)
    same = [event for event in events if event.metric == main]
    targets = list(dict.fromkeys(event.target for event in same))
    subject = "" if main == MAIN_METRICS[0] else f"{main} "
    return f"{subject}{_amounts(same)} on {_targets(targets)}"


def other_metrics(events: Sequence[EventView]) -> list[str]:
    """Return the metrics in which a change also shows."""
    main = _main_metric(events)
    return sorted({event.metric for event in events if event.metric != main})


def _main_metric(events: Sequence[EventView]) -> str:
    measured = {event.metric for event in events}
    main = next((name for name in MAIN_METRICS if name in measured), None)
    return main or max(events, key=_size).metric


def _amounts(events: Iterable[EventView]) -> str:
    ordered = sorted(events, key=_size)
    low, high = (format_change(event.ratio, event.metric, event.unit) for event in (ordered[0], ordered[-1]))
    return join_changes(low, high) or f"up to {high}"


def _targets(targets: Sequence[str]) -> str:
    if len(targets) <= _MAX_NAMED:
        return join_words(short_target(target, targets) for target in targets)
    return f"{len(targets)} targets"


def _size(event: EventView) -> float:
    return abs(math.log(event.ratio)) if event.ratio > 0 and math.isfinite(event.ratio) else 0.0
