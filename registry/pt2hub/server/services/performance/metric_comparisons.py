"""Comparison of two artifacts over all their metrics."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from pt2hub.analysis.comparison import compare_single
from pt2hub.domain.performance.metrics import METRICS, Threshold, default_threshold
from pt2hub.rendering.reasons import because, noise_of
from pt2hub.server.db.stores.performance.comparisons import ComparableMeasurement, ComparisonStore, PairRow
from pt2hub.server.db.stores.promotion.policies import PolicyStore
from pt2hub.server.services.performance.comparison_evidence import (
    MetricEvidence,
    Sides,
    gather_evidence,
    select_trusted,
    series_with_replicates,
    shared_class,
    spread_between,
)
from pt2hub.wire.performance import MetricComparison

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from sqlalchemy.orm import Session

    from pt2hub.domain.digests import Digest
    from pt2hub.domain.performance.metrics import ComparisonResult
    from pt2hub.server.db.stores.performance.measurements import MeasuredArtifact

_ORDER = {name: index for index, name in enumerate(METRICS)}


@dataclass(frozen=True, slots=True)
class MetricComparisons:
    """The comparisons of two artifacts' metrics.

    Attributes:
        before: Environment fields of the first artifact's measurements; empty where there are none.
        after: The same for the second.
    """

    metrics: tuple[MetricComparison, ...]
    before: dict[str, Any]
    after: dict[str, Any]


class ArtifactComparison:
    """Compares all measurements of pairs of artifacts, with at most seven statements for any number of pairs."""

    def __init__(self, session: Session) -> None:
        self._evidence = ComparisonStore(session)
        self._policies = PolicyStore(session)

    def compare(
        self, before: MeasuredArtifact, after: MeasuredArtifact, metrics: Collection[str] | None = None
    ) -> MetricComparisons:
        """Compare two artifacts; see `compare_all`."""
        return self.compare_all([(before, after)], metrics)[0]

    def compare_all(
        self,
        pairs: Sequence[tuple[MeasuredArtifact, MeasuredArtifact]],
        metrics: Collection[str] | None = None,
    ) -> list[MetricComparisons]:
        """Compare each metric and batch size that one of two artifacts has, of each pair.

        Args:
            pairs: The second ones are of versions of one model, whose thresholds count.
            metrics: Only these; all where omitted. Metrics that neither artifact has are left out.
        """
        if not pairs:
            return []
        specs = self._evidence.specs({_version(side) for pair in pairs for side in pair})
        artifacts = [side.artifact for pair in pairs for side in pair]
        runs = self._evidence.pairs(artifacts)
        measurements = self._measurements(artifacts, metrics, runs)
        gathered = [
            _Gathered.of(
                Sides(*pair, (specs.get(_version(pair[0]), {}), specs.get(_version(pair[1]), {}))),
                measurements,
                runs,
            )
            for pair in pairs
        ]
        return [
            MetricComparisons(found, *_environments(item.sides, item.measurements))
            for item, found in zip(gathered, self._comparisons(gathered), strict=True)
        ]

    def _measurements(
        self, artifacts: Collection[Digest], metrics: Collection[str] | None, pairs: Sequence[PairRow]
    ) -> list[ComparableMeasurement]:
        """Return the newest measurements and those of the pairs' runs, newest first."""
        measurements = self._evidence.of_artifacts(artifacts, metrics)
        known = {_source(item) for item in measurements}
        there = {(item.artifact, item.metric, item.batch, item.run) for item in measurements}
        runs = {
            pair.run
            for pair in pairs
            for artifact in (pair.artifact, pair.baseline)
            if (artifact, pair.metric, pair.batch, pair.run) not in there
            and (metrics is None or pair.metric in metrics)
        }
        if runs:
            older = self._evidence.of_runs(artifacts, runs, metrics)
            measurements += [item for item in older if _source(item) not in known]
            measurements.sort(key=lambda item: item.measured_at, reverse=True)
        return measurements

    def _comparisons(self, gathered: Sequence[_Gathered]) -> list[tuple[MetricComparison, ...]]:
        known = self._policies.thresholds(gathered[0].sides.after.model_id)
        repeated = set().union(*(item.find_repeated() for item in gathered))
        between = spread_between(self._evidence.again(repeated))
        evidence = [item.gather(known, between) for item in gathered]
        bounds = {
            each.usual: item.first_number
            for item, found in zip(gathered, evidence, strict=True)
            for each in found.values()
            if each.usual is not None
        }
        usual = self._evidence.values_before(bounds)
        return [
            tuple(
                _comparison(metric, batch, _threshold(known, metric), item, usual.get(item.usual or 0, ()))
                for (metric, batch), item in found.items()
            )
            for found in evidence
        ]


@dataclass(frozen=True, slots=True)
class _Gathered:
    """What is known of two artifacts.

    Attributes:
        measurements: Of both, newest first.
        by_key: The same by metric and batch size.
        paired: Runs of both in the same processes, by metric and batch size.
    """

    sides: Sides
    measurements: list[ComparableMeasurement]
    by_key: dict[tuple[str, int], list[ComparableMeasurement]]
    paired: dict[tuple[str, int], list[PairRow]]

    @classmethod
    def of(
        cls, sides: Sides, measurements: Sequence[ComparableMeasurement], pairs: Sequence[PairRow]
    ) -> _Gathered:
        """Select what belongs to two artifacts."""
        both = {sides.before.artifact, sides.after.artifact}
        mine = [item for item in measurements if item.artifact in both]
        by_key: dict[tuple[str, int], list[ComparableMeasurement]] = defaultdict(list)
        paired: dict[tuple[str, int], list[PairRow]] = defaultdict(list)
        for measurement in mine:
            by_key[measurement.metric, measurement.batch].append(measurement)
        for pair in pairs:
            if pair.artifact in both and pair.baseline in both:
                paired[pair.metric, pair.batch].append(pair)
        return cls(sides, mine, by_key, paired)

    @property
    def first_number(self) -> int:
        """Number of the earlier version."""
        return min(self.sides.before.number, self.sides.after.number)

    def find_repeated(self) -> set[int]:
        """Return the series whose spread between runs is needed."""
        return series_with_replicates(self.measurements, self.paired)

    def gather(
        self, thresholds: Mapping[str, Threshold], between: Mapping[int, float]
    ) -> dict[tuple[str, int], MetricEvidence]:
        """Return the evidence by metric and batch size, in the order in which they are shown."""
        return {
            key: gather_evidence(
                self.sides, self.paired[key], self.by_key[key], _threshold(thresholds, key[0]), between
            )
            for key in sorted(self.by_key, key=_order)
        }


def _version(side: MeasuredArtifact) -> tuple[int, int]:
    return side.model_id, side.number


def _threshold(known: Mapping[str, Threshold], metric: str) -> Threshold:
    return known.get(metric) or default_threshold(metric)


def to_result(evidence: MetricEvidence, usual: Sequence[float], threshold: Threshold) -> ComparisonResult:
    """Return the comparison result of the evidence.

    Args:
        evidence: Has a result already, or two single measurements.
        usual: Values of their series before both versions, oldest first.
    """
    if evidence.outcome is not None:
        return evidence.outcome
    assert evidence.before is not None, "single measurements are compared where both sides have one"
    assert evidence.after is not None, "single measurements are compared where both sides have one"
    return compare_single(evidence.before.value, evidence.after.value, usual, threshold)


def _comparison(
    metric: str, batch: int, threshold: Threshold, evidence: MetricEvidence, usual: Sequence[float]
) -> MetricComparison:
    """Return the comparison of a metric, with its measurements."""
    result = to_result(evidence, usual, threshold)
    before, after = evidence.before, evidence.after
    shown = after or before
    made = MetricComparison(
        metric=metric,
        unit=shown.unit if shown else "",
        outcome=result.outcome,
        batch=batch or None,
        before=before.value if before else None,
        after=after.value if after else None,
        ratio=result.ratio,
        low=result.low,
        high=result.high,
        method=result.method,
        min_effect=threshold.min_effect,
        confidence=None if result.method == "exact" else threshold.confidence,
        reason=result.reason,
        detail=result.detail,
        reported=any(side is not None and side.run is None for side in (before, after)),
        noise=noise_of(result.low, result.high),
    )
    return replace(made, explanation=because(made))


def _source(measurement: ComparableMeasurement) -> tuple[int, int, str | None]:
    return measurement.series, measurement.number, measurement.run


def _order(key: tuple[str, int]) -> tuple[int, str, int]:
    metric, batch = key
    return _ORDER.get(metric, len(_ORDER)), metric, batch


def _environments(
    sides: Sides, measurements: Sequence[ComparableMeasurement]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the environments of the compared measurements, or else the newest of each side."""
    measurements = select_trusted(measurements)
    before = [item for item in measurements if item.artifact == sides.before.artifact]
    after = [item for item in measurements if item.artifact == sides.after.artifact]
    classes = shared_class(before, after, sides)
    if classes is not None:
        before = [item for item in before if item.class_digest == classes[0]]
        after = [item for item in after if item.class_digest == classes[1]]
    return before[0].fields if before else {}, after[0].fields if after else {}
