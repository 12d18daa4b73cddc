"""Verdicts over all metrics of two artifacts."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from pt2hub.domain.performance import METRICS, Threshold, default_threshold
from pt2hub.rendering.reasons import because, noise_of
from pt2hub.server.analysis.judging import judge_single
from pt2hub.server.db.stores.policies import PolicyStore
from pt2hub.server.db.stores.verdicts import EvidenceStore
from pt2hub.server.services.evidence import (
    Evidence,
    Sides,
    believed,
    gathered,
    judged_by_runs,
    shared_class,
    spread_between,
)
from pt2hub.wire.performance import MetricComparison

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from sqlalchemy.orm import Session

    from pt2hub.domain.digests import Digest
    from pt2hub.domain.performance import Judgement
    from pt2hub.server.db.stores.performance import Measured
    from pt2hub.server.db.stores.verdicts import Figure, PairRow

_ORDER = {name: place for place, name in enumerate(METRICS)}


@dataclass(frozen=True, slots=True)
class Compared:
    """Two artifacts, compared.

    Attributes:
        metrics: Every metric that one of them has, known ones first.
        before: Fields of the environment class that the first one's figures are from; empty where there are none.
        after: Likewise of the second.
    """

    metrics: tuple[MetricComparison, ...]
    before: dict[str, Any]
    after: dict[str, Any]


@dataclass(frozen=True, slots=True)
class _Question:
    """A metric at a batch size, and what is there to answer."""

    metric: str
    batch: int
    threshold: Threshold
    evidence: Evidence


class Verdicts:
    """Compares artifacts by everything that was measured of them, with seven statements at most."""

    def __init__(self, session: Session) -> None:
        """Works in the caller's transaction."""
        self._evidence = EvidenceStore(session)
        self._policies = PolicyStore(session)

    def of(
        self, before: Measured, after: Measured, metrics: Collection[str] | None = None
    ) -> tuple[MetricComparison, ...]:
        """One verdict for each metric and batch size that one of the two artifacts has.

        Args:
            before: What is compared with.
            after: What is judged, by the policy of its model.
            metrics: Only these; all where omitted. One that neither has is not in the answer.
        """
        return self.compared(before, after, metrics).metrics

    def compared(self, before: Measured, after: Measured, metrics: Collection[str] | None = None) -> Compared:
        """As `of`, with the environments that the figures are from."""
        places = [(side.model_id, side.number) for side in (before, after)]
        specs = self._evidence.specs(places)
        sides = Sides(before, after, (specs.get(places[0], {}), specs.get(places[1], {})))
        artifacts = (before.artifact, after.artifact)
        pairs = self._evidence.pairs(artifacts)
        figures = self._figures(artifacts, metrics, pairs)
        questions = self._questions(sides, figures, pairs)
        earlier, later = _environments(sides, figures)
        return Compared(self._answers(sides, questions), earlier, later)

    def _figures(
        self, artifacts: Collection[Digest], metrics: Collection[str] | None, pairs: Sequence[PairRow]
    ) -> list[Figure]:
        """The newest figures, newest first, and those of the pairs' runs where they are not among them."""
        figures = self._evidence.of_artifacts(artifacts, metrics)
        known = {_source(item) for item in figures}
        there = {(item.artifact, item.metric, item.batch, item.run) for item in figures}
        runs = {
            pair.run
            for pair in pairs
            for artifact in (pair.artifact, pair.baseline)
            if (artifact, pair.metric, pair.batch, pair.run) not in there
            and (metrics is None or pair.metric in metrics)
        }
        if runs:
            older = self._evidence.of_runs(artifacts, runs, metrics)
            figures += [item for item in older if _source(item) not in known]
            figures.sort(key=lambda item: item.measured_at, reverse=True)
        return figures

    def _questions(
        self, sides: Sides, figures: Sequence[Figure], pairs: Sequence[PairRow]
    ) -> list[_Question]:
        thresholds = self._policies.thresholds(sides.after.model_id)
        by_place: dict[tuple[str, int], list[Figure]] = defaultdict(list)
        beside: dict[tuple[str, int], list[PairRow]] = defaultdict(list)
        for figure in figures:
            by_place[figure.metric, figure.batch].append(figure)
        for pair in pairs:
            beside[pair.metric, pair.batch].append(pair)
        between = spread_between(self._evidence.again(judged_by_runs(figures, beside)))
        questions = []
        for metric, batch in sorted(by_place, key=_order):
            threshold = thresholds.get(metric) or default_threshold(metric)
            evidence = gathered(sides, beside[metric, batch], by_place[metric, batch], threshold, between)
            questions.append(_Question(metric, batch, threshold, evidence))
        return questions

    def _answers(self, sides: Sides, questions: Sequence[_Question]) -> tuple[MetricComparison, ...]:
        first = min(sides.before.number, sides.after.number)
        bounds = {item.evidence.usual: first for item in questions if item.evidence.usual is not None}
        usual = self._evidence.values_before(bounds)
        return tuple(
            comparison(item.metric, item.batch, item.threshold, item.evidence, judged(item, usual))
            for item in questions
        )


def judged(question: _Question, usual: Mapping[int, Sequence[float]]) -> Judgement:
    """The judgement of a metric, its single figures compared by what is usual in their series."""
    return judge(question.evidence, usual.get(question.evidence.usual or 0, ()), question.threshold)


def judge(evidence: Evidence, usual: Sequence[float], threshold: Threshold) -> Judgement:
    """The judgement that evidence leads to.

    Args:
        evidence: It holds a judgement already, or two single figures.
        usual: What their series says of the versions before both, oldest first.
        threshold: What counts.
    """
    if evidence.verdict is not None:
        return evidence.verdict
    assert evidence.before is not None, "single figures are compared where both sides have one"
    assert evidence.after is not None, "likewise"
    return judge_single(evidence.before.value, evidence.after.value, usual, threshold)


def comparison(
    metric: str, batch: int, threshold: Threshold, evidence: Evidence, judgement: Judgement
) -> MetricComparison:
    """A judgement with the figures that it is of."""
    before, after = evidence.before, evidence.after
    shown = after or before
    made = MetricComparison(
        metric=metric,
        unit=shown.unit if shown else "",
        verdict=judgement.verdict,
        batch=batch or None,
        before=before.value if before else None,
        after=after.value if after else None,
        ratio=judgement.ratio,
        low=judgement.low,
        high=judgement.high,
        method=judgement.method,
        min_effect=threshold.min_effect,
        confidence=None if judgement.method == "exact" else threshold.confidence,
        why=judgement.why,
        detail=judgement.detail,
        reported=any(side is not None and side.run is None for side in (before, after)),
        noise=noise_of(judgement.low, judgement.high),
    )
    return replace(made, because=because(made))


def _source(figure: Figure) -> tuple[int, int, str | None]:
    return figure.series, figure.number, figure.run


def _order(place: tuple[str, int]) -> tuple[int, str, int]:
    metric, batch = place
    return _ORDER.get(metric, len(_ORDER)), metric, batch


def _environments(sides: Sides, figures: Sequence[Figure]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The environments to name: those whose figures are compared, else the newest of each."""
    figures = believed(figures)
    before = [item for item in figures if item.artifact == sides.before.artifact]
    after = [item for item in figures if item.artifact == sides.after.artifact]
    classes = shared_class(before, after, sides)
    if classes is not None:
        before = [item for item in before if item.class_digest == classes[0]]
        after = [item for item in after if item.class_digest == classes[1]]
    return before[0].fields if before else {}, after[0].fields if after else {}
