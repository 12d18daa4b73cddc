"""How a model's quality on data of its users moved over its versions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pt2hub.rendering.evaluations import value_text
from pt2hub.server.services.performance.evaluations import compare_pair, find_obstacle
from pt2hub.wire.evaluations import EvaluationComparison, EvaluationView

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from pt2hub.domain.digests import Digest

VERSIONS = 50
"""Newest versions whose evaluations a model's page shows."""
_MAX_TRENDS = 20


@dataclass(frozen=True, slots=True)
class QualityTrend:
    """A metric on one data set over a model's versions.

    Attributes:
        newest: The evaluation of the newest version that has one.
        values: Values of the versions that can be compared with the newest one, oldest first.
        against: The newest one compared with the version in production; None where it is that, or where none is.
        label: The line in words, for screen readers.
    """

    newest: EvaluationView
    values: tuple[float, ...]
    against: EvaluationComparison | None
    label: str


def compose_trends(
    evaluations: Sequence[EvaluationView], production: int | None, rules: Mapping[str, Any]
) -> tuple[list[QualityTrend], int]:
    """Return the trend of each metric and data set, those with the newest evaluated version first, and how many more there are.

    Args:
        evaluations: At most one by version, metric and data set, oldest version first.
        production: Number of the version in production.
        rules: What the policy says of each metric.
    """
    series: dict[tuple[str, Digest], list[EvaluationView]] = {}
    for item in evaluations:
        series.setdefault((item.metric, item.data_digest), []).append(item)
    found = [_compose(items, production, rules) for items in series.values()]
    found.sort(key=lambda trend: (-trend.newest.number, trend.newest.metric, trend.newest.data_set))
    return found[:_MAX_TRENDS], len(found[_MAX_TRENDS:])


def _compose(
    items: Sequence[EvaluationView], production: int | None, rules: Mapping[str, Any]
) -> QualityTrend:
    newest = items[-1]
    alike = [item for item in items if not find_obstacle(item, newest)]
    against = None
    if production is not None and newest.number != production:
        before = next((item for item in items if item.number == production), None)
        absence = "" if before else f"version {production} was not evaluated on this data set"
        against = compare_pair(before, newest, rules, absence)
    low, high = (pick(alike, key=lambda item: item.value) for pick in (min, max))
    label = f"{newest.metric} of {len(alike)} versions, from {value_text(low)} to {value_text(high)}"
    return QualityTrend(newest, tuple(item.value for item in alike), against, label)
