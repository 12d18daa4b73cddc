"""Evidence for the comparison of one metric: the comparable measurements of both sides, and the method."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from pt2hub.analysis import comparison
from pt2hub.domain.performance.measurements import OF_TARGET, differing
from pt2hub.domain.performance.metrics import (
    BETWEEN_RUNS,
    METRICS,
    OF_JOBS,
    SAME_CODE_FACTOR,
    ComparisonResult,
    Threshold,
)
from pt2hub.server.db.stores.performance.comparisons import ComparableMeasurement
from pt2hub.server.db.stores.performance.measurements import MeasuredArtifact

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from pt2hub.domain.digests import Digest
    from pt2hub.domain.performance.metrics import InconclusiveReason
    from pt2hub.server.db.stores.performance.comparisons import PairRow

_OF_CPU = ("cpu_model", "cpu_level", "cores", "threads", "governor", "cpu_max_mhz")
_OF_GPU = ("gpu_power_limit_w", "gpu_max_mhz")
_OF_INPUTS = frozenset(
    (
        "latency_p50",
        "latency_p95",
        "latency_p99",
        "throughput",
        "first_inference",
        "first_inference_warm",
        "first_inference_speedup",
        "host_memory_peak",
        "device_memory_peak",
    )
)
"""Metrics that depend on the inputs, for any model."""
_OTHER_INPUTS = "the versions are measured with different input shapes or dtypes"
_DIGITS = 9
"""Digits to which widths of intervals are compared, above rounding errors."""
_MIN_REPLICATES = 2
UNCHANGED = ComparisonResult("same", ratio=1.0, low=1.0, high=1.0, method="code")
"""Result for equal code and toolchain with too few measurements: no kernel can differ."""
_MAX_FACTOR = 4.0
"""As `SAME_CODE_FACTOR`, for metrics that a single process does not measure well."""
_STEADY = frozenset(("latency_p50", "throughput"))
"""Metrics that a single process on a quiet device measures well."""


@dataclass(frozen=True, slots=True)
class Sides:
    """The two compared artifacts, with their specs."""

    before: MeasuredArtifact
    after: MeasuredArtifact
    specs: tuple[Mapping[str, Any], Mapping[str, Any]]

    @property
    def across(self) -> bool:
        """Whether the artifacts are for different targets."""
        return self.before.target != self.after.target

    def same_inputs(self, batch: int) -> bool:
        """Return whether both are measured with inputs of the same names, shapes and dtypes."""
        one, other = (inputs_of(spec, batch) for spec in self.specs)
        return one == other


@dataclass(frozen=True, slots=True)
class MetricEvidence:
    """The evidence for one metric's comparison.

    Attributes:
        before: The earlier measurement to show, None where there is none.
        outcome: The result, if it is already determined.
        usual: Id of the series whose noise decides between two single measurements; None where not needed.
    """

    before: ComparableMeasurement | None
    after: ComparableMeasurement | None
    outcome: ComparisonResult | None = None
    usual: int | None = None


def inputs_of(spec: Mapping[str, Any], batch: int) -> list[Any]:
    """Return the benchmark inputs of a spec, as far as timings depend on them.

    Ranges of dimensions and the distribution of values are left out: they do not change what is timed.

    Args:
        batch: Batch size, 0 for the example's.
    """
    inputs, dims = spec.get("inputs", []), spec.get("dims", {})
    sizes = {name: dim.get("example") for name, dim in dims.items()}
    first = inputs[0]["shape"][0] if inputs and inputs[0].get("shape") else None
    if batch and first in sizes:
        sizes[first] = batch
    inputs_at_batch = [
        (item["name"], item.get("dtype"), [sizes.get(size, size) for size in item.get("shape", ())])
        for item in inputs
    ]
    return [inputs_at_batch, spec.get("fixed", {})]


def spread_between(again: Mapping[int, Sequence[float]]) -> dict[int, float]:
    """Return the spread between runs of each series that has repeated runs, for `compare_replicates`."""
    found = ((series, comparison.between_runs(differences)) for series, differences in again.items())
    return {series: spread for series, spread in found if spread is not None}


def series_with_replicates(
    measurements: Sequence[ComparableMeasurement], paired: Collection[tuple[str, int]] = ()
) -> set[int]:
    """Return the series whose spread between runs is needed."""
    return {
        item.series
        for item in measurements
        if len(item.replicates or ()) >= _MIN_REPLICATES and (item.metric, item.batch) not in paired
    }


def gather_evidence(
    sides: Sides,
    pairs: Sequence[PairRow],
    measurements: Sequence[ComparableMeasurement],
    threshold: Threshold,
    between: Mapping[int, float],
) -> MetricEvidence:
    """Return the best available evidence for one metric at one batch size.

    Args:
        pairs: Runs of both artifacts alongside each other, newest first.
        measurements: Of both artifacts, newest first.
        between: Spread between runs by series, where known.
    """
    measurements = select_trusted(measurements)
    before = [item for item in measurements if item.artifact == sides.before.artifact]
    after = [item for item in measurements if item.artifact == sides.after.artifact]
    if pairs:
        return _pair_evidence(sides, pairs, before, after, threshold)
    if not before or not after:
        return _missing(sides, before, after)
    exact = (known := METRICS.get(before[0].metric)) is not None and known.exact
    unit = next((item.unit for item in after if any(item.unit == other.unit for other in before)), None)
    if unit is None:
        return _not(before[0], after[0], "unit_differs", f"{before[0].unit}, then {after[0].unit}")
    before, after = ([item for item in found if item.unit == unit] for found in (before, after))
    if exact:
        outcome = comparison.compare_exact(before[0].value, after[0].value, threshold)
        return MetricEvidence(before[0], after[0], outcome)
    if before[0].metric in _OF_INPUTS and not sides.same_inputs(before[0].batch):
        return _not(before[0], after[0], "inputs_differ", _OTHER_INPUTS)
    return _separate(sides, before, after, threshold, between)


def select_trusted(measurements: Sequence[ComparableMeasurement]) -> Sequence[ComparableMeasurement]:
    """Return pt2hub's own measurements, or reported ones where it has none of either side.

    Any token may report. A reported measurement must not decide a promotion check if pt2hub measured either artifact.
    """
    return [item for item in measurements if item.run is not None] or measurements


def shared_class(
    before: Sequence[ComparableMeasurement], after: Sequence[ComparableMeasurement], sides: Sides
) -> tuple[Digest, Digest] | None:
    """Return the newest pair of comparable environment classes.

    Args:
        before: Measurements of the first side, newest first.
        after: Of the second.
    """
    of_before = {item.class_digest: item.fields for item in before}
    of_after = {item.class_digest: item.fields for item in after}
    for later, fields in of_after.items():
        if later in of_before:
            return later, later
        for earlier, others in of_before.items():
            if sides.across and not hindrances(others, fields, across=True):
                return earlier, later
    return None


def hindrances(
    before: Mapping[str, Any], after: Mapping[str, Any], *, across: bool
) -> dict[str, tuple[Any, Any]]:
    """Return the fields that make two environments incomparable, with both values."""
    found = differing(dict(before), dict(after))
    if not across:
        return found
    allowed = {*OF_TARGET}
    if before.get("gpu") or after.get("gpu"):
        allowed.update(_OF_CPU)
    if before.get("gpu") != after.get("gpu"):
        allowed.update(_OF_GPU)
    if not (before.get("gpu") and after.get("gpu")):
        allowed.add("driver")
    return {name: values for name, values in found.items() if name not in allowed}


def describe_differences(fields: Mapping[str, tuple[Any, Any]]) -> str:
    """Return the differing fields as text."""
    return "; ".join(
        f"{name}: {'unknown' if one is None else one}, then {'unknown' if other is None else other}"
        for name, (one, other) in fields.items()
    )


def _pair_evidence(
    sides: Sides,
    pairs: Sequence[PairRow],
    before: Sequence[ComparableMeasurement],
    after: Sequence[ComparableMeasurement],
    threshold: Threshold,
) -> MetricEvidence:
    """Return the pair of runs with the narrowest interval, so that a busy machine does not override a quiet one."""
    compared = [(pair, comparison.compare_paired(_ratios(pair, sides), threshold)) for pair in pairs]
    pair, outcome = min(compared, key=lambda item: _width(item[1]))
    return MetricEvidence(_of_run(before, pair), _of_run(after, pair), outcome)


def _width(outcome: ComparisonResult) -> float:
    """Return the width of the interval, as a logarithm; infinite where there is none."""
    if outcome.low is None or outcome.high is None:
        return math.inf
    return round(math.log(outcome.high) - math.log(outcome.low), _DIGITS)


def _ratios(pair: PairRow, sides: Sides) -> list[float]:
    """Return the ratios after / before, whichever of the two was the run's baseline."""
    if pair.artifact == sides.after.artifact:
        return pair.ratios
    return [1 / ratio if ratio else 0.0 for ratio in pair.ratios]


def _of_run(measurements: Sequence[ComparableMeasurement], pair: PairRow) -> ComparableMeasurement | None:
    """Return the measurement of a pair's run, or else the newest comparable one."""
    same = [item for item in measurements if (item.class_digest, item.unit) == (pair.class_digest, pair.unit)]
    return next((item for item in same if item.run == pair.run), same[0] if same else None)


def _separate(
    sides: Sides,
    before: Sequence[ComparableMeasurement],
    after: Sequence[ComparableMeasurement],
    threshold: Threshold,
    between: Mapping[int, float],
) -> MetricEvidence:
    """Return the evidence of two separate runs, in the newest environment class that both have."""
    classes = shared_class(before, after, sides)
    if classes is None and _is_unchanged(sides, before[0], after[0]):
        return MetricEvidence(before[0], after[0], UNCHANGED)
    if classes is None:
        fields = hindrances(before[0].fields, after[0].fields, across=sides.across)
        return _not(before[0], after[0], "environment_differs", describe_differences(fields))
    earlier = [item for item in before if item.class_digest == classes[0]]
    later = [item for item in after if item.class_digest == classes[1]]
    one, other = (_spread(found) for found in (earlier, later))
    if one and other and one.replicates and other.replicates:
        known = METRICS.get(one.metric)
        usual = known.between if known else BETWEEN_RUNS
        spreads = [between.get(item.series, usual) for item in (one, other)]
        spread = math.hypot(*spreads) / math.sqrt(2)
        outcome = comparison.compare_replicates(one.replicates, other.replicates, threshold, spread)
        return MetricEvidence(one, other, outcome)
    if _is_unchanged(sides, earlier[0], later[0]):
        return _by_code(earlier[0], later[0])
    one, other = (replace(found[0], value=found[0].typical) for found in (earlier, later))
    return MetricEvidence(one, other, usual=one.series)


def _by_code(before: ComparableMeasurement, after: ComparableMeasurement) -> MetricEvidence:
    """Compare two single measurements of the same code in one environment class."""
    one, other = before.value, after.value
    factor = max(one, other) / min(one, other) if min(one, other) > 0 else math.inf
    if factor < (SAME_CODE_FACTOR if before.metric in _STEADY else _MAX_FACTOR):
        return MetricEvidence(before, after, UNCHANGED)
    detail = f"the code is unchanged, but the measurements differ by a factor of {factor:.3g}"
    return _not(before, after, "too_few", detail)


def _is_unchanged(sides: Sides, before: ComparableMeasurement, after: ComparableMeasurement) -> bool:
    """Return whether two of pt2hub's own measurements are of the same code, toolchain and target.

    Different GPU models may run the same code at different speeds, so they are not unchanged.
    """
    if sides.across:
        return False
    own = before.run is not None and after.run is not None and before.metric in OF_JOBS
    return own and bool(before.built) and before.built == after.built


def _spread(measurements: Sequence[ComparableMeasurement]) -> ComparableMeasurement | None:
    """Return the newest measurement with several replicates."""
    return next((item for item in measurements if len(item.replicates or ()) >= _MIN_REPLICATES), None)


def _missing(
    sides: Sides, before: Sequence[ComparableMeasurement], after: Sequence[ComparableMeasurement]
) -> MetricEvidence:
    one, other = (before[0] if before else None), (after[0] if after else None)
    there = one or other
    if there and there.metric in _OF_INPUTS and not sides.same_inputs(there.batch):
        return _not(one, other, "inputs_differ", _OTHER_INPUTS)
    lacking = [side for side, found in ((sides.before, before), (sides.after, after)) if not found]
    names = " and ".join(
        f"version {side.number}" + (f" for {side.target}" if sides.across else "") for side in lacking
    )
    return _not(one, other, "not_measured", f"it was not measured for {names}")


def _not(
    before: ComparableMeasurement | None,
    after: ComparableMeasurement | None,
    why: InconclusiveReason,
    detail: str,
) -> MetricEvidence:
    return MetricEvidence(before, after, ComparisonResult("inconclusive", reason=why, detail=detail))
