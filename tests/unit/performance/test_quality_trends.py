"""How the quality of versions moved: which values make a line, and what sentences say of changes."""

from __future__ import annotations

from typing import Any

import pytest

from pt2hub.domain.digests import Digest
from pt2hub.rendering.evaluations import evaluation_clauses
from pt2hub.server.pages.publishing.quality import compose_trends
from pt2hub.wire.evaluations import EvaluationComparison, EvaluationView

RULES = {"accuracy": {"better": "higher"}}


def evaluation(number: int, value: float, data: str = "a", **changes: Any) -> EvaluationView:
    given: dict[str, Any] = {
        "model": "team/net",
        "number": number,
        "metric": "accuracy",
        "value": value,
        "unit": "%",
        "data_digest": Digest(f"sha256:{data * 64}"),
        "data_set": f"set-{data}",
        "count": 100,
        "reporter": "eval",
        "measured_at": "2026-11-28T00:00:00+00:00",
    }
    return EvaluationView(**given | changes)


def test_a_line_has_what_can_be_compared_with_the_newest_evaluated_version() -> None:
    items = [
        evaluation(1, 70.0),
        evaluation(2, 0.71, unit="1"),
        evaluation(3, 72.0, count=50),
        evaluation(4, 73.0),
        evaluation(4, 60.0, "b"),
        evaluation(5, 72.5),
    ]
    (first, second), more = compose_trends(items, 4, RULES)
    assert (first.values, first.newest.number, more) == ((70.0, 73.0, 72.5), 5, 0)
    assert first.label == "accuracy of 3 versions, from 70 % to 73 %"
    assert first.against is not None
    assert (first.against.outcome, first.against.difference) == ("worse", -0.5)
    assert (second.newest.number, second.against) == (4, None), "it is the one in production"


@pytest.mark.parametrize(
    ("production", "rules", "outcome", "reason"),
    [
        (1, RULES, "inconclusive", "not comparable: the units differ: 1 and %"),
        (2, RULES, "inconclusive", "version 2 was not evaluated on this data set"),
        (3, {}, "inconclusive", "the policy does not say whether lower or higher accuracy is better"),
        (3, RULES, "same", ""),
    ],
)
def test_what_cannot_be_compared_with_production_says_why(
    production: int, rules: dict[str, Any], outcome: str, reason: str
) -> None:
    items = [evaluation(1, 0.7, unit="1"), evaluation(3, 72.0), evaluation(4, 72.0 if rules else 73.0)]
    (trend,), _ = compose_trends(items, production, rules)
    assert trend.against is not None
    assert (trend.against.outcome, trend.against.reason) == (outcome, reason)


def test_without_production_nothing_is_compared_and_many_trends_are_cut() -> None:
    items = [evaluation(1, 1.0, metric=f"metric_{place}") for place in range(23)]
    trends, more = compose_trends(items, None, RULES)
    assert (len(trends), more, {trend.against for trend in trends}) == (20, 3, {None})


def changed(
    difference: float, data: str = "a", metric: str = "accuracy", unit: str = "%"
) -> EvaluationComparison:
    outcome = "better" if difference > 0 else "worse"
    after = evaluation(2, 70.0, data, metric=metric, unit=unit)
    return EvaluationComparison(
        metric, after.data_digest, after.data_set, outcome, after=after, difference=difference
    )


@pytest.mark.parametrize(
    ("found", "clauses"),
    [
        ([], []),
        ([changed(0.47)], ["accuracy is better by 0.47 points"]),
        ([changed(0.47), changed(0.6, "b")], ["accuracy is better by 0.47 to 0.6 points"]),
        (
            [changed(0.4), changed(-2.0, "b"), changed(-0.01, metric="recall", unit="1")],
            [
                "accuracy is worse by 2 points on set-b and better by 0.4 points on set-a",
                "recall is worse by 0.01",
            ],
        ),
        ([changed(0.4), changed(0.004, "b", unit="1")], ["accuracy is better"]),
    ],
)
def test_a_sentence_names_each_metric_once(found: list[EvaluationComparison], clauses: list[str]) -> None:
    assert evaluation_clauses(found) == clauses
