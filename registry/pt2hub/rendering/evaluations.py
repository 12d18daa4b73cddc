"""Evaluations as text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pt2hub.domain.performance.data_sets import DataSet

if TYPE_CHECKING:
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
