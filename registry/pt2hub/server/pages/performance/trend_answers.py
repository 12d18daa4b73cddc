"""The answer of the performance page as one sentence: what changed since which version, and where."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING

from pt2hub.rendering.changes import format_change, join_changes
from pt2hub.rendering.comparison_answers import Answer
from pt2hub.rendering.lists import all_targets, count_word, join_words
from pt2hub.rendering.metric_subjects import SUBJECTS, name_metric
from pt2hub.rendering.quantities import format_count
from pt2hub.rendering.targets import short_target
from pt2hub.server.pages.template_filters import upper_first

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pt2hub.server.pages.performance.charts import Chart, Trend

_MAX_NAMED = 3
"""Targets that a sentence names; of more it says how many."""
_MAX_CHANGES = 3
"""Versions that the sentence names."""


def answer_trends(chart: Chart) -> Answer:
    """Answer where a metric changed last: `The median latency is 11.0 % slower on H100 · torch 2.13 since version 16`."""
    trends, name = chart.trends, _name(chart)
    marked = [trend for trend in trends if trend.mark]
    marked.sort(
        key=lambda trend: (trend.mark.word != "worse", -trend.mark.point.number) if trend.mark else (True, 0)
    )
    groups = groupby(
        marked, key=lambda trend: (trend.mark.word, trend.mark.point.number) if trend.mark else ("", 0)
    )
    clauses = [_clause(number, list(same), trends) for (_, number), same in groups]
    more = len(clauses) - _MAX_CHANGES
    clauses = clauses[:_MAX_CHANGES] + ([f"{format_count(more, 'more change')}"] if more > 0 else [])
    words = {trend.mark.word for trend in marked if trend.mark}
    tone = "bad" if "worse" in words else "good" if "better" in words else "calm"
    steady = _steady(len(trends) - len(marked), len(trends))
    if not clauses:
        return Answer(tone, f"{name} has {steady}.")
    return Answer(tone, f"{'; '.join([f'{name} is {clauses[0]}', *clauses[1:], *filter(None, [steady])])}.")


def _name(chart: Chart) -> str:
    """Return what the sentence calls the chart; metrics without such a name keep their own."""
    metric = chart.view.metric
    if metric not in SUBJECTS or chart.view.implementation != "artifact":
        return chart.name
    return upper_first(name_metric(metric, [chart.view.batch]))


def _steady(steady: int, count: int) -> str:
    """Return on how many targets nothing changed; empty where there are none."""
    if not steady:
        return ""
    if steady < count:
        return f"no flagged change on {steady} of {format_count(count, 'target')}"
    return "no flagged change" if count == 1 else f"no flagged change on any of {count_word(count)} targets"


def _clause(number: int, same: Sequence[Trend], every: Sequence[Trend]) -> str:
    names = [trend.line.series.target for trend in every]
    targets = [trend.line.series.target for trend in same]
    if len(targets) == len(names) > 1:
        where = all_targets(len(names))
    elif len(targets) <= _MAX_NAMED:
        where = join_words(short_target(target, names) for target in targets)
    else:
        where = f"{len(targets)} of {len(names)} targets"
    return f"{_amounts(same)} on {where} since version {number}"


def _amounts(same: Sequence[Trend]) -> str:
    found = [
        (
            trend.mark.change.ratio,
            format_change(trend.mark.change.ratio, trend.line.series.metric, trend.line.series.unit),
        )
        for trend in same
        if trend.mark
    ]
    (_, low), (_, high) = min(found), max(found)
    if abs(min(found)[0] - 1) > abs(max(found)[0] - 1):
        low, high = high, low
    return join_changes(low, high) or f"up to {high}"
