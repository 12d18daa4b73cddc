"""What a comparison of one metric rests on: the figures of both sides that may be compared, and how they are judged."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from pt2hub.domain.measurements import OF_TARGET, differing
from pt2hub.domain.performance import BETWEEN_RUNS, METRICS, OF_JOBS, Judgement, Threshold
from pt2hub.server.analysis import judging
from pt2hub.server.db.stores.performance import Measured
from pt2hub.server.db.stores.verdicts import Figure

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from pt2hub.domain.digests import Digest
    from pt2hub.domain.performance import Why
    from pt2hub.server.db.stores.verdicts import PairRow

_OF_CPU = ("cpu_model", "cpu_level", "cores", "threads", "governor", "cpu_max_mhz")
_OF_GPU = ("gpu_power_limit_w", "gpu_max_mhz")
_OF_INPUTS = frozenset(
    (
        "latency_p50",
        "latency_p95",
        "latency_p99",
        "throughput",
        "first_inference",
        "host_memory_peak",
        "device_memory_peak",
    )
)
"""Metrics that other inputs change, whatever the model."""
_OTHER_INPUTS = "the versions are measured with inputs of other shapes or dtypes"
_DIGITS = 9
"""Digits to which the widths of intervals are compared: beyond are errors of the arithmetic."""
_FEWEST = 2
"""Processes that make a spread."""
UNCHANGED = Judgement("same", ratio=1.0, low=1.0, high=1.0, method="code")
"""Where code and toolchain are the same and there are too few figures to say more: no kernel can differ."""
_FAR_OFF, _FAR_OFF_CALL = 4.0, 2.0
"""How many times the other a single figure of the same code is before more processes must say why. The same kernels may
have other work with other weights: subnormal numbers, or sizes that depend on the data."""
_STEADY = frozenset(("latency_p50", "throughput"))
"""Metrics of which one process on a quiet device tells most; the others take `_FAR_OFF`."""


@dataclass(frozen=True, slots=True)
class Sides:
    """Two artifacts.

    Attributes:
        before: The earlier one, or whatever the other is compared with.
        after: The one that is judged.
        specs: The specs of their versions, likewise.
    """

    before: Measured
    after: Measured
    specs: tuple[Mapping[str, Any], Mapping[str, Any]]

    @property
    def across(self) -> bool:
        """Whether they are for different targets."""
        return self.before.target != self.after.target

    def same_inputs(self, batch: int) -> bool:
        """Whether both were measured with inputs of the same names, shapes and dtypes."""
        one, other = (inputs_of(spec, batch) for spec in self.specs)
        return one == other


@dataclass(frozen=True, slots=True)
class Evidence:
    """What one metric's verdict rests on.

    Attributes:
        before: The earlier figure to show, None where there is none.
        after: The later one.
        verdict: The judgement, where nothing else must be asked.
        usual: Row of the series whose usual noise judges two single figures; None where that is not needed.
    """

    before: Figure | None
    after: Figure | None
    verdict: Judgement | None = None
    usual: int | None = None


def inputs_of(spec: Mapping[str, Any], batch: int) -> list[Any]:
    """What is fed into a model when it is measured, as far as timings depend on it.

    Ranges of dimensions and how values are drawn are left out: they change what an artifact takes, not what was timed.

    Args:
        spec: The version's spec.
        batch: Batch size, 0 for the example's.
    """
    inputs, dims = spec.get("inputs", []), spec.get("dims", {})
    sizes = {name: dim.get("example") for name, dim in dims.items()}
    first = inputs[0]["shape"][0] if inputs and inputs[0].get("shape") else None
    if batch and first in sizes:
        sizes[first] = batch
    said = [
        (item["name"], item.get("dtype"), [sizes.get(size, size) for size in item.get("shape", ())])
        for item in inputs
    ]
    return [said, spec.get("fixed", {})]


def spread_between(again: Mapping[int, Sequence[float]]) -> dict[int, float]:
    """How much runs differ in each series that tells it, as `judge_replicates` takes it.

    Args:
        again: Differences between runs of one artifact, by series.
    """
    found = ((series, judging.between_runs(differences)) for series, differences in again.items())
    return {series: spread for series, spread in found if spread is not None}


def judged_by_runs(figures: Sequence[Figure], paired: Collection[tuple[str, int]] = ()) -> set[int]:
    """The series of which it must be known how much runs differ.

    Args:
        figures: What is compared.
        paired: Metrics and batch sizes that need it not, since both sides ran beside each other.
    """
    return {
        item.series
        for item in figures
        if len(item.replicates or ()) >= _FEWEST and (item.metric, item.batch) not in paired
    }


def gathered(
    sides: Sides,
    pairs: Sequence[PairRow],
    figures: Sequence[Figure],
    threshold: Threshold,
    between: Mapping[int, float],
) -> Evidence:
    """The best evidence that there is on one metric at one batch size.

    Args:
        sides: The two artifacts.
        pairs: Where they ran beside each other, newest first.
        figures: Those of both, newest first.
        threshold: What counts.
        between: How much runs differ, by series, where that is known.
    """
    figures = believed(figures)
    before = [item for item in figures if item.artifact == sides.before.artifact]
    after = [item for item in figures if item.artifact == sides.after.artifact]
    if pairs:
        return _paired(sides, pairs, before, after, threshold)
    if not before or not after:
        return _missing(sides, before, after)
    exact = (known := METRICS.get(before[0].metric)) is not None and known.exact
    unit = next((item.unit for item in after if any(item.unit == other.unit for other in before)), None)
    if unit is None:
        return _not(before[0], after[0], "unit_differs", f"{before[0].unit}, then {after[0].unit}")
    before, after = ([item for item in found if item.unit == unit] for found in (before, after))
    if exact:
        verdict = judging.judge_exact(before[0].value, after[0].value, threshold)
        return Evidence(before[0], after[0], verdict)
    if before[0].metric in _OF_INPUTS and not sides.same_inputs(before[0].batch):
        return _not(before[0], after[0], "inputs_differ", _OTHER_INPUTS)
    return _separate(sides, before, after, threshold, between)


def believed(figures: Sequence[Figure]) -> Sequence[Figure]:
    """pt2hub's own figures; those that were reported where it took none of either side.

    Any token may report. What a stranger says of an artifact that pt2hub measured, or of the one beside it, must
    neither let a version through a gate nor hold it back.

    Args:
        figures: Of both sides.
    """
    return [item for item in figures if item.run is not None] or figures


def shared_class(
    before: Sequence[Figure], after: Sequence[Figure], sides: Sides
) -> tuple[Digest, Digest] | None:
    """The environment classes of both sides whose figures may be compared, those with the newest figures.

    Args:
        before: Figures of the first side, newest first.
        after: Of the second.
        sides: Says whether they are for different targets.
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
    """The fields of two environments that make their figures incomparable, with both values.

    Args:
        before: Fields of an environment class.
        after: Of another one.
        across: Whether they are of different targets: what the targets name may differ then, on a GPU also the
            processor beside it, and of two GPU models what comes with each.
    """
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


def in_words(fields: Mapping[str, tuple[Any, Any]]) -> str:
    """Fields that differ, for people."""
    return "; ".join(
        f"{name}: {'unknown' if one is None else one}, then {'unknown' if other is None else other}"
        for name, (one, other) in fields.items()
    )


def _paired(
    sides: Sides,
    pairs: Sequence[PairRow],
    before: Sequence[Figure],
    after: Sequence[Figure],
    threshold: Threshold,
) -> Evidence:
    """The run that knows the change best, of equal ones the newest: a busy machine must not undo what a quiet one said."""
    judged = [(pair, judging.judge_paired(_ratios(pair, sides), threshold)) for pair in pairs]
    pair, verdict = min(judged, key=lambda item: _width(item[1]))
    return Evidence(_of_run(before, pair), _of_run(after, pair), verdict)


def _width(verdict: Judgement) -> float:
    """Of its interval, as a logarithm; infinite where it knows none."""
    if verdict.low is None or verdict.high is None:
        return math.inf
    return round(math.log(verdict.high) - math.log(verdict.low), _DIGITS)


def _ratios(pair: PairRow, sides: Sides) -> list[float]:
    """After over before, whichever of the two was the run's baseline."""
    if pair.artifact == sides.after.artifact:
        return pair.ratios
    return [1 / ratio if ratio else 0.0 for ratio in pair.ratios]


def _of_run(figures: Sequence[Figure], pair: PairRow) -> Figure | None:
    """The figure that a run of pairs gave; the newest where that one is not among the last."""
    same = [item for item in figures if (item.class_digest, item.unit) == (pair.class_digest, pair.unit)]
    return next((item for item in same if item.run == pair.run), same[0] if same else None)


def _separate(
    sides: Sides,
    before: Sequence[Figure],
    after: Sequence[Figure],
    threshold: Threshold,
    between: Mapping[int, float],
) -> Evidence:
    """Figures of two runs, in the newest environment class that both have."""
    classes = shared_class(before, after, sides)
    if classes is None and _is_unchanged(sides, before[0], after[0]):
        return Evidence(before[0], after[0], UNCHANGED)
    if classes is None:
        fields = hindrances(before[0].fields, after[0].fields, across=sides.across)
        return _not(before[0], after[0], "environment_differs", in_words(fields))
    earlier = [item for item in before if item.class_digest == classes[0]]
    later = [item for item in after if item.class_digest == classes[1]]
    one, other = (_spread(found) for found in (earlier, later))
    if one and other and one.replicates and other.replicates:
        known = METRICS.get(one.metric)
        usual = known.between if known else BETWEEN_RUNS
        moods = [between.get(item.series, usual) for item in (one, other)]
        mood = math.hypot(*moods) / math.sqrt(2)
        verdict = judging.judge_replicates(one.replicates, other.replicates, threshold, mood)
        return Evidence(one, other, verdict)
    if _is_unchanged(sides, earlier[0], later[0]):
        return _by_code(earlier[0], later[0])
    one, other = (replace(found[0], value=found[0].typical) for found in (earlier, later))
    return Evidence(one, other, usual=one.series)


def _by_code(before: Figure, after: Figure) -> Evidence:
    """Judge two single figures of the same code, which are from one environment class."""
    one, other = before.value, after.value
    times = max(one, other) / min(one, other) if min(one, other) > 0 else math.inf
    if times < (_FAR_OFF_CALL if before.metric in _STEADY else _FAR_OFF):
        return Evidence(before, after, UNCHANGED)
    detail = f"the code is unchanged, but the figures differ by a factor of {times:.3g}"
    return _not(before, after, "too_few", detail)


def _is_unchanged(sides: Sides, before: Figure, after: Figure) -> bool:
    """Return whether two figures of pt2hub's own are of the same code on the same toolchain and target.

    Two GPU models may run the same code, and are compared because they are not equally fast.
    """
    if sides.across:
        return False
    own = before.run is not None and after.run is not None and before.metric in OF_JOBS
    return own and bool(before.built) and before.built == after.built


def _spread(figures: Sequence[Figure]) -> Figure | None:
    """The newest figure that several processes stand behind."""
    return next((item for item in figures if len(item.replicates or ()) >= _FEWEST), None)


def _missing(sides: Sides, before: Sequence[Figure], after: Sequence[Figure]) -> Evidence:
    there = (before or after)[0] if before or after else None
    if there and there.metric in _OF_INPUTS and not sides.same_inputs(there.batch):
        verdict = Judgement("not_comparable", why="inputs_differ", detail=_OTHER_INPUTS)
        return Evidence(before[0] if before else None, after[0] if after else None, verdict)
    lacking = [side for side, found in ((sides.before, before), (sides.after, after)) if not found]
    who = " and ".join(
        f"version {side.number}" + (f" for {side.target}" if sides.across else "") for side in lacking
    )
    verdict = Judgement("not_comparable", why="not_measured", detail=f"it was not measured of {who}")
    return Evidence(before[0] if before else None, after[0] if after else None, verdict)


def _not(before: Figure, after: Figure, why: Why, detail: str) -> Evidence:
    return Evidence(before, after, Judgement("not_comparable", why=why, detail=detail))
