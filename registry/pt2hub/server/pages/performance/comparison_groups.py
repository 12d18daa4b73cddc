"""Measurements of a comparison by group: what changed is open, everything else is folded."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pt2hub.domain.performance.metric_groups import GROUPS, group_of
from pt2hub.rendering.comparison_words import ABSENT, INCOMPARABLE, INCONCLUSIVE, WITHIN, outcome_word
from pt2hub.rendering.comparisons import comparison_row
from pt2hub.rendering.lists import join_words
from pt2hub.rendering.quantities import format_count
from pt2hub.rendering.reasons import HOW, NOTHING, because, percentage
from pt2hub.server.pages.performance.intervals import Interval, common_reach, interval
from pt2hub.wire.performance import MetricComparison

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


TITLES = {
    "speed": "Speed",
    "memory": "Memory",
    "size": "Size",
    "numerics": "Numerics",
    "other": "Reported metrics",
    "build": "Build",
}
_METHODS = {
    "paired": "Compared side by side",
    "replicates": "Compared from separate runs",
    "series": "Compared with the usual noise of the series",
    "code": "Not compared by time, as the code is unchanged and no kernel can differ",
}
_FOLDED = (WITHIN, INCONCLUSIVE, INCOMPARABLE, ABSENT)
"""In the order of the counts."""


@dataclass(frozen=True, slots=True)
class MetricRow:
    """A measurement of both sides.

    Attributes:
        word: Its outcome for people.
        reason: What makes it different from the others: the limit and noise, or why there is no outcome.
        full_reason: The whole explanation.
    """

    item: MetricComparison
    name: str
    word: str
    change: str
    spread: str
    before: str
    after: str
    reason: str
    full_reason: str
    interval: Interval | None


@dataclass(frozen=True, slots=True)
class MetricGroup:
    """Measurements of one kind.

    Attributes:
        changed: Better and worse ones, the strongest first.
        folded: All others.
        summary: How many are folded, by outcome.
    """

    name: str
    title: str
    changed: tuple[MetricRow, ...]
    folded: tuple[MetricRow, ...]
    summary: str


def group_metrics(metrics: Sequence[MetricComparison]) -> tuple[list[MetricGroup], list[str]]:
    """Return the groups of measurements, and sentences that apply to many of them."""
    shared, method = _shared_reasons(metrics), _usual_method(metrics)
    found = []
    for name in GROUPS:
        items = [item for item in metrics if group_of(item.metric) == name]
        reach = common_reach(items)
        found.append(_group(name, [_row(item, shared, method, reach) for item in items]))
    groups = [group for group in found if group.changed or group.folded]
    return sorted(groups, key=lambda group: not group.changed), _notes(shared, method)


def _group(name: str, rows: Sequence[MetricRow]) -> MetricGroup:
    changed = [row for row in rows if row.item.outcome in ("better", "worse")]
    folded = [row for row in rows if row not in changed]
    strongest = sorted(changed, key=lambda row: row.item.outcome != "worse")
    return MetricGroup(name, TITLES[name], tuple(strongest), tuple(folded), summarize(folded))


def summarize(rows: Iterable[MetricRow]) -> str:
    """Return how many measurements have which outcome: `12 measurements within the limit and 3 not comparable`."""
    counts = Counter(row.word for row in rows)
    words = sorted(counts, key=lambda word: _FOLDED.index(word) if word in _FOLDED else len(_FOLDED))
    (first, *rest) = words or [""]
    if not first:
        return ""
    return join_words(
        [
            f"{format_count(counts[first], 'measurement')} {first}",
            *(f"{counts[word]:,} {word}" for word in rest),
        ]
    )


def _shared_reasons(metrics: Sequence[MetricComparison]) -> dict[str, str]:
    """Return reasons that several measurements have, with the sentence that stands once for all of them."""
    reasons = {because(item): outcome_word(item) for item in metrics if item.reason}
    counts = Counter(because(item) for item in metrics if item.reason)
    return {
        reason: f"{format_count(counts[reason], 'measurement')} {'is' if counts[reason] == 1 else 'are'} {word}: {reason}."
        for reason, word in reasons.items()
        if counts[reason] > 1
    }


def _usual_method(metrics: Sequence[MetricComparison]) -> str | None:
    """Return the method of most measurements that are compared by time."""
    counts = Counter(
        item.method for item in metrics if item.method not in (None, "exact") and not item.reason
    )
    return counts.most_common(1)[0][0] if counts else None


def _notes(shared: dict[str, str], method: str | None) -> list[str]:
    how = f"{_METHODS[method]}, unless a row says otherwise." if method in _METHODS else ""
    return [text for text in (*shared.values(), how) if text]


def _row(item: MetricComparison, shared: dict[str, str], method: str | None, reach: float) -> MetricRow:
    name, before, after, changed, _, _ = comparison_row(item)
    change, _, between = changed.partition(" (")
    full = item.explanation or because(item)
    return MetricRow(
        item,
        name,
        outcome_word(item),
        change,
        between.removesuffix(")"),
        before,
        after,
        _reason(item, shared, method) + (" (reported)" if item.reported else ""),
        full,
        interval(item, reach),
    )


def _reason(item: MetricComparison, shared: dict[str, str], method: str | None) -> str:
    if item.reason:
        return "" if because(item) in shared else because(item)
    parts = [] if item.method in (method, "exact") else [HOW.get(item.method or "", item.method or NOTHING)]
    if item.min_effect is not None:
        parts.append(f"limit {percentage(item.min_effect)}")
    if item.noise:
        parts.append(f"noise {percentage(item.noise)}")
    _, decided, mean = because(item).partition("; decided by ")
    return ", ".join([*parts, *([f"decided by {mean}"] if decided else [])])
