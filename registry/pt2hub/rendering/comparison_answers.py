"""The answer of comparisons as one sentence: better or worse, where and by how much."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING

from pt2hub.domain.performance.metric_groups import GROUPS, MAIN_METRICS, group_of
from pt2hub.rendering.changes import format_change, join_changes
from pt2hub.rendering.comparison_words import ABSENT, UNCHANGED, explain_reason, outcome_word
from pt2hub.rendering.evaluations import evaluation_clauses
from pt2hub.rendering.lists import all_targets, count_word, join_words
from pt2hub.rendering.metric_subjects import SUBJECTS
from pt2hub.rendering.reasons import percentage
from pt2hub.rendering.targets import short_target
from pt2hub.wire.performance import MetricComparison

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pt2hub.wire.performance import ComparisonView, SideView

_ORDER = ("worse", "mixed", "better", "same", "inconclusive", "not comparable", ABSENT)
"""Findings in the order in which a sentence names them."""
_COMPARED = frozenset(("worse", "mixed", "better", "same"))
_MAX_NAMED = 2
"""Targets that a sentence names; of more it says how many."""
_QUIET = ("memory", "size")
"""Groups that a sentence also names where nothing changed in them."""


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to a question, in words.

    Attributes:
        tone: `good`, `bad`, `warn` or `calm`.
    """

    tone: str
    text: str


@dataclass(frozen=True, slots=True)
class SpeedFinding:
    """What is known of the speed on one target.

    Attributes:
        state: One of `better`, `worse`, `mixed`, `same`, `inconclusive`, `not comparable` and `not measured`.
        item: The measurement that says it, of several the strongest; None where there is none.
        other: Of `mixed`, the strongest improvement.
        least: Of `better` and `worse`, the weakest measurement that says it, of another batch size.
    """

    target: str
    state: str
    item: MetricComparison | None = None
    other: MetricComparison | None = None
    least: MetricComparison | None = None


def answer_comparison(views: Sequence[ComparisonView]) -> Answer:
    """Answer whether the second side is better or worse.

    Args:
        views: Comparisons of the same two versions, one for each target; at least one.
    """
    found = [find_speed(view) for view in views]
    speed = _of_one(views[0], found[0]) if len(views) == 1 else _of_many(views[0], found)
    others, tones = _other_clauses(views)
    quality = [item for item in views[0].evaluations if item.outcome in ("worse", "better")]
    tones += [item.outcome for item in quality]
    return Answer(_tone(found, tones), "; ".join((speed, *evaluation_clauses(quality), *others)) + ".")


def find_speed(view: ComparisonView) -> SpeedFinding:
    """Return what a comparison says of the median time of a call, or of the throughput where that is not measured."""
    target = view.after.target
    for name in MAIN_METRICS:
        found = [item for item in view.metrics if item.metric == name and not _is_absent(item)]
        if found:
            return _summarize(target, found)
    missing = next((item for item in view.metrics if item.metric in MAIN_METRICS), None)
    return SpeedFinding(target, ABSENT, missing)


def changed_subjects(view: ComparisonView) -> list[str]:
    """Return what else changed on a target, apart from the speed: `device memory is 12.0 % larger`."""
    return _other_clauses([view])[0]


def _is_absent(item: MetricComparison) -> bool:
    return item.reason == "not_measured"


def _summarize(target: str, found: Sequence[MetricComparison]) -> SpeedFinding:
    worse, better = (
        sorted((item for item in found if item.outcome == outcome), key=_strength)
        for outcome in ("worse", "better")
    )
    if worse and better:
        return SpeedFinding(target, "mixed", worse[-1], better[-1])
    if changed := worse or better:
        return SpeedFinding(target, "worse" if worse else "better", changed[-1], least=changed[0])
    same = next((item for item in found if item.outcome == "same"), None)
    item = same or found[0]
    return SpeedFinding(target, "same" if same else outcome_word(item), item)


def _strength(item: MetricComparison) -> float:
    return abs(math.log(item.ratio)) if item.ratio and item.ratio > 0 and math.isfinite(item.ratio) else 0.0


def _of_one(view: ComparisonView, found: SpeedFinding) -> str:
    after, before = _names(view)
    where = "" if view.across else f" on {short_target(found.target)}"
    item = found.item
    if found.state in ("worse", "better") and item:
        return f"{after} is {describe_amount([found])}{_at_batch(view, item)} than {before}{where}"
    if found.state == "mixed" and item and found.other:
        both = f"{_speed(item)} at batch {item.batch} and {_speed(found.other)} at batch {found.other.batch}"
        return f"{after} is {both} than {before}{where}"
    if found.state == "same" and item:
        limit = f", within the limit of {percentage(item.min_effect)}" if item.min_effect else ""
        return f"{after} is as fast as {before}{where}{limit}"
    if found.state == "inconclusive" and item:
        why = explain_reason(item)
        return f"It is inconclusive whether {_lower(after)} is as fast as {before}{where}: {why}"
    if found.state == "not comparable" and item:
        return f"The speeds of {_lower(after)} and {before}{where} are not comparable: {explain_reason(item)}"
    return f"The speed of {_unmeasured(item, _lower(after), before)}{where} is not measured"


def _unmeasured(item: MetricComparison | None, after: str, before: str) -> str:
    if item is None or (item.before is None and item.after is None):
        return f"{after} and {before}"
    return after if item.after is None else before


def _at_batch(view: ComparisonView, item: MetricComparison) -> str:
    """Return the batch sizes where others of the metric did not change."""
    alike = [other for other in view.metrics if other.metric == item.metric]
    same = [other.batch for other in alike if other.outcome == item.outcome]
    sizes = sorted({batch for batch in same if batch})
    return f" at batch {join_words(map(str, sizes))}" if len(same) < len(alike) and sizes else ""


def _of_many(view: ComparisonView, found: Sequence[SpeedFinding]) -> str:
    after, before = _names(view)
    ordered = sorted(found, key=lambda item: _ORDER.index(item.state))
    groups = [(state, list(same)) for state, same in groupby(ordered, key=lambda item: item.state)]
    names = [item.target for item in found]
    if len(groups) == 1:
        return _uniform(groups[0][0], groups[0][1], after, before)
    (state, first), *rest = groups
    if state not in _COMPARED:
        clauses = [f"{state} on {_targets(same, names)}" for state, same in groups]
        return f"The comparison of {_lower(after)} with {before} is {join_words(clauses)}"
    verb = f"as fast as {before}" if state == "same" else f"{_range(state, first)} than {before}"
    clauses = [f"{verb} on {_targets(first, names)}"]
    clauses += [f"{_range(state, same)} on {_targets(same, names)}" for state, same in rest]
    return f"{after} is {join_words(clauses)}"


def _uniform(state: str, found: Sequence[SpeedFinding], after: str, before: str) -> str:
    every = all_targets(len(found))
    if state in ("worse", "better", "mixed"):
        return f"{after} is {_range(state, found)} than {before} on {every}"
    if state == "same":
        return f"{after} is as fast as {before} on {every}, within the limits"
    if state == "inconclusive":
        return f"It is inconclusive on {every} whether {_lower(after)} is as fast as {before}"
    if state == ABSENT:
        return f"The speeds of {_lower(after)} and {before} are not measured on any of {count_word(len(found))} targets"
    reasons = {explain_reason(item.item) for item in found if item.item}
    why = f": {reasons.pop()}" if len(reasons) == 1 else ""
    return f"The speeds of {_lower(after)} and {before} are not comparable on any of {count_word(len(found))} targets{why}"


def _range(state: str, found: Sequence[SpeedFinding]) -> str:
    """Return a finding of several targets: `3.1 to 10.5 % faster`."""
    if state == "mixed":
        return "faster or slower by batch size"
    if state == "same":
        return "as fast, within the limit,"
    return describe_amount(found) if state in ("worse", "better") else state


def describe_amount(found: Iterable[SpeedFinding]) -> str:
    """Return by how much something changed on targets where it did: `3.1 to 10.5 % faster`."""
    measured = (item for finding in found for item in (finding.least, finding.item) if item)
    items = sorted(measured, key=_strength)
    if len({item.metric for item in items}) > 1:  # a latency and a throughput make no range
        return "slower" if items[0].outcome == "worse" else "faster"
    low, high = _speed(items[0]), _speed(items[-1])
    return join_changes(low, high) or f"{low} to {high}"


def _amount(item: MetricComparison) -> str:
    return format_change(item.ratio or 1.0, item.metric, item.unit)


def _speed(item: MetricComparison) -> str:
    """Return a change of the speed, naming the throughput, which is lower or higher: `5.0 % lower in throughput`."""
    return f"{_amount(item)} in throughput" if item.metric == "throughput" else _amount(item)


def _targets(found: Sequence[SpeedFinding], among: Sequence[str]) -> str:
    if len(found) <= _MAX_NAMED:
        return join_words(short_target(item.target, among) for item in found)
    return f"{len(found)} of {len(among)} targets"


def _names(view: ComparisonView) -> tuple[str, str]:
    """Return what a sentence calls the second and the first side; the second begins the sentence."""
    before, after = view.before, view.after
    if before.model == after.model and before.number == after.number:
        return f"Version {after.number} on {_where(after)}", f"on {_where(before)}"
    one = f"Version {after.number}" if before.model == after.model else f"{after.model}@{after.number}"
    other = f"version {before.number}" if before.model == after.model else f"{before.model}@{before.number}"
    return (f"{one} on {_where(after)}", f"{other} on {_where(before)}") if view.across else (one, other)


def _where(side: SideView) -> str:
    return short_target(side.target)


def _lower(name: str) -> str:
    return name.replace("Version ", "version ", 1)


def _other_clauses(views: Sequence[ComparisonView]) -> tuple[list[str], list[str]]:
    """Return clauses on all measurements but those of the main metric, and the outcomes of what changed."""
    clauses, outcomes, unchanged = [], [], []
    said = {find_speed(view).state for view in views}
    for group in GROUPS:
        items = [item for view in views for item in view.metrics if group_of(item.metric) == group]
        changed = [item for item in items if item.outcome in ("worse", "better")]
        if group == "speed":  # other times of calls move with the median: only another direction is news
            changed = [item for item in changed if item.outcome not in said and "mixed" not in said]
        if changed and group != "build":
            clauses += _changed_clauses(changed, several=len(views) > 1)
            outcomes += [item.outcome for item in changed]
        elif group in _QUIET and _is_unchanged(items):
            unchanged.append(group)
    if unchanged:
        clauses.append(f"{join_words(unchanged)} {'is' if len(unchanged) == 1 else 'are'} {UNCHANGED}")
    return clauses, outcomes


def _is_unchanged(items: Iterable[MetricComparison]) -> bool:
    """Return whether everything that was measured of a group is within its limit."""
    outcomes = {item.outcome for item in items if not _is_absent(item)}
    return outcomes == {"same"}


def _changed_clauses(changed: Iterable[MetricComparison], *, several: bool) -> list[str]:
    """Return the strongest regression and the strongest improvement of a group.

    Args:
        several: Whether they are of several targets, of which the strongest is named.
    """
    up_to = "up to " if several else ""
    items = [item for item in changed if item.metric in SUBJECTS]
    found = [
        max((item for item in items if item.outcome == outcome), key=_strength, default=None)
        for outcome in ("worse", "better")
    ]
    return [f"{SUBJECTS[item.metric]} is {up_to}{_amount(item)}" for item in found if item]


def _tone(found: Sequence[SpeedFinding], others: Sequence[str]) -> str:
    states = {item.state for item in found}
    if states & {"worse", "mixed"}:
        return "bad"
    if "worse" in others or not states & _COMPARED:
        return "calm" if states == {ABSENT} and "worse" not in others else "warn"
    return "good" if "better" in (*states, *others) else "calm"
