"""Evaluations as text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pt2hub.domain.performance.data_sets import DataSet
from pt2hub.rendering.lists import join_words

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pt2hub.domain.digests import Digest
    from pt2hub.wire.evaluations import EvaluationComparison, EvaluationView

EVALUATION_HEADINGS = ("METRIC", "DATA SET", "BEFORE", "AFTER", "CHANGE", "OUTCOME", "WHY")


def with_unit(number: str, unit: str) -> str:
    """Return a number with its unit; plain numbers have none."""
    return number if unit == "1" else f"{number} {unit}"


def with_unit_of_difference(number: str, unit: str) -> str:
    """Return a difference of two values with its unit; that of two percentages is in points, since it is no ratio."""
    return with_unit(number, "points" if unit == "%" else unit)


def value_text(item: EvaluationView | None) -> str:
    """Return the value of an evaluation with its unit."""
    if item is None:
        return "-"
    return with_unit(f"{item.value:.6g}", item.unit)


def data_text(digest: Digest, name: str) -> str:
    """Return the name of a data set with the beginning of its digest."""
    return str(DataSet(digest, name))


def evaluation_text(item: EvaluationView) -> str:
    """Return an evaluation on one line."""
    return f"{value_text(item)} on {item.count:,} of {data_text(item.data_digest, item.data_set)}"


def difference_text(item: EvaluationComparison) -> str:
    """Return how far the second version is from the first, with a sign."""
    if item.difference is None or item.after is None:
        return "-"
    return with_unit_of_difference(f"{item.difference:+.3g}", item.after.unit)


def evaluation_row(item: EvaluationComparison) -> tuple[str, ...]:
    """Return a comparison of evaluations as cells, in the order of the headings."""
    return (
        item.metric,
        data_text(item.data_digest, item.data_set),
        value_text(item.before),
        value_text(item.after),
        difference_text(item),
        item.outcome,
        item.reason,
    )


def evaluation_clauses(changed: Sequence[EvaluationComparison]) -> list[str]:
    """Return a clause for each metric that changed: `accuracy is better by 0.47 to 0.6 points`.

    Args:
        changed: Comparisons whose outcome is `better` or `worse`.
    """
    metrics = dict.fromkeys(item.metric for item in changed)
    return [_clause(metric, [item for item in changed if item.metric == metric]) for metric in metrics]


def _clause(metric: str, found: Sequence[EvaluationComparison]) -> str:
    sides = [
        (outcome, [item for item in found if item.outcome == outcome]) for outcome in ("worse", "better")
    ]
    said = [(outcome, items) for outcome, items in sides if items]
    if len(said) == 1:
        outcome, items = said[0]
        return f"{metric} is {outcome}{_amount(items)}"
    parts = [
        f"{outcome}{_amount(items)} on {join_words(item.data_set or item.data_digest[:19] for item in items)}"
        for outcome, items in said
    ]
    return f"{metric} is {' and '.join(parts)}"


def _amount(items: Sequence[EvaluationComparison]) -> str:
    """Return by how much values differ: ` by 0.47 to 0.6 points`; empty where their units differ."""
    units = {item.after.unit for item in items if item.after}
    differences = sorted(abs(item.difference) for item in items if item.difference is not None)
    if len(units) != 1 or not differences:
        return ""
    low, high = (f"{value:.3g}" for value in (differences[0], differences[-1]))
    return f" by {with_unit_of_difference(low if low == high else f'{low} to {high}', units.pop())}"
