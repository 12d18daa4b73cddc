"""Comparison of two measurements, taking noise into account.

The rule is one for all methods that know an interval. Figures are compared as logarithms of ratios, so that "twice" and
"half" are equally far away. With `e` the least effect that counts and the interval at the threshold's confidence:

* **worse, better**: the estimate is beyond `e`, the interval excludes no change, and the interval is narrow
  (half of it at most `NARROW` times `e`) or lies beyond `e` as a whole;
* **same**: the estimate is within `e` and the interval is narrow;
* **too noisy**: all else. More processes may help.

Why both the interval and the least effect: with five processes no interval without assumptions exists (five of equal
sign happen once in 16 times), so the interval is Student's over the processes, which are independent, and heavy tails
make it wider rather than wrong. The least effect guards against intervals that are narrow by chance and against the
small lasting differences that two builds of one program have. A wide interval must clear the least effect as a whole,
since there the guard alone would let one comparison in a hundred through at every look.

Workers look at paired figures after K, 2K and 3K processes, later ones only while the verdict is too noisy. So that three
looks together are wrong as seldom as the threshold's confidence says, each has a third of the error (Bonferroni): equal
artifacts were flagged in 0.6 % of simulated comparisons at the worst level of normal noise, and in 0.2 % of comparisons
drawn from real builds: `docs/decisions/0037-comparisons-over-fresh-processes.md`.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import lru_cache
from itertools import pairwise
from statistics import fmean, median, stdev
from typing import TYPE_CHECKING

from pt2hub.domain.performance.metrics import BETWEEN_RUNS, DEFAULT_CONFIDENCE, ComparisonResult

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pt2hub.domain.performance.metrics import InconclusiveReason, Method, Outcome, Threshold

NARROW = 2.0
"""Widest half interval, over the least effect, of a verdict that rests on the least effect."""
LOOKS = 3
"""How often a worker asks at most whether more processes are needed."""
FEWEST = 2
"""Fewest processes that have a spread."""
FEWEST_NEIGHBOURS = 4
"""Fewest steps of a series that say what is usual."""
FEWEST_AGAIN = 5
"""Fewest artifacts or runs measured again that tell how much runs differ."""
_MIN_BETWEEN = 0.01
_NORMAL_MAD = 1.4826
_MANY_DEGREES = 200
"""Beyond these the quantile is taken as that of 200: 1 % too wide at most for a confidence of 0.99."""


def compare_paired(ratios: Sequence[float], threshold: Threshold) -> ComparisonResult:
    """Compare two artifacts that ran in the same fresh processes.

    The reported ratio is the median of the processes, so that a bad one among them does not move it; the verdict is
    by their mean and its interval.

    Args:
        threshold: What counts; its confidence is that of all `LOOKS` together.
    """
    if not _usable(ratios):
        return _not("not_measured", "a ratio is zero, negative or not finite", "paired")
    if len(ratios) < FEWEST:
        return _not(
            "too_few",
            f"only {len(ratios)} processes ran both, at least {FEWEST} are required",
            "paired",
            ratios,
        )
    logs = [math.log(ratio) for ratio in ratios]
    error = stdev(logs) / math.sqrt(len(logs))
    reach = error * half_width(len(logs) - 1, 1 - (1 - threshold.confidence) / LOOKS)
    result = _result(fmean(logs), reach, threshold, "paired")
    return replace(result, ratio=_within(_exp(median(logs)), result))


def between_runs(differences: Sequence[float]) -> float | None:
    """Estimate the standard deviation between runs of one artifact at different times.

    The standard deviation of one run, pooled: half the mean square of the differences, of which each has two runs'. Not
    by their median, which a few bad days leave alone: in simulated series with one bad day in ten equal artifacts were
    then flagged 3 times in 100. Few differences know it badly, so that it is made as much wider as Student's interval is
    than the normal one.

    Returns:
        It, 0.01 at least; None where there are too few.
    """
    if len(differences) < FEWEST_AGAIN:
        return None
    pooled = math.sqrt(fmean(step * step for step in differences) / 2)
    wider = half_width(len(differences), DEFAULT_CONFIDENCE) / half_width(_MANY_DEGREES, DEFAULT_CONFIDENCE)
    return max(pooled, _MIN_BETWEEN) * wider


def compare_replicates(
    before: Sequence[float], after: Sequence[float], threshold: Threshold, between: float = BETWEEN_RUNS
) -> ComparisonResult:
    """Compare two separate runs, each with several fresh processes.

    Welch's interval over the processes, widened by how much runs differ: a machine is faster on one day than on another.

    Args:
        between: Standard deviation of runs of one artifact, as a logarithm; see `between_runs`.
    """
    if not (_usable(before) and _usable(after)):
        return _not("not_measured", "a value is zero, negative or not finite", "replicates")
    fewest = min(len(before), len(after))
    if fewest < FEWEST:
        return _not(
            "too_few",
            f"one of the runs has only {fewest} processes, at least {FEWEST} are required",
            "replicates",
        )
    old, new = [[math.log(value) for value in values] for values in (before, after)]
    parts = [stdev(logs) ** 2 / len(logs) for logs in (old, new)]
    degrees = _welch(parts, [len(old) - 1, len(new) - 1])
    mood = (
        math.sqrt(2) * between * half_width(_MANY_DEGREES, threshold.confidence)
    )  # each run has its own day
    reach = math.hypot(math.sqrt(sum(parts)) * half_width(degrees, threshold.confidence), mood)
    return _result(fmean(new) - fmean(old), reach, threshold, "replicates")


def compare_single(
    before: float, after: float, usual: Sequence[float], threshold: Threshold
) -> ComparisonResult:
    """Compare two single values, based on the usual noise between neighbours of their series.

    Args:
        usual: Figures of the series before them, by version.
    """
    if not _usable((before, after)):
        return _not("not_measured", "a value is zero, negative or not finite", "series")
    steps = _steps([value for value in usual if _usable((value,))])
    if len(steps) < FEWEST_NEIGHBOURS:
        detail = f"the series has {_few_steps(len(steps))}, at least {FEWEST_NEIGHBOURS} are required to estimate its noise"
        return _not("too_few", detail, "series", (after / before,))
    noise = _NORMAL_MAD * median(abs(step) for step in steps)
    reach = noise * half_width(len(steps), threshold.confidence)
    return _result(math.log(after) - math.log(before), reach, threshold, "series")


def _few_steps(count: int) -> str:
    if not count:
        return "no earlier steps"
    return f"only {count} earlier step{'' if count == 1 else 's'}"


def compare_exact(before: float, after: float, threshold: Threshold) -> ComparisonResult:
    """Compare values without noise, such as sizes."""
    if before == after and math.isfinite(before):
        return ComparisonResult("same", 1.0, 1.0, 1.0, "exact")
    if not _usable((before, after)):
        return _not("not_measured", "a value is zero, negative or not finite", "exact")
    return _result(math.log(after) - math.log(before), 0.0, threshold, "exact")


def _result(estimate: float, reach: float, threshold: Threshold, method: Method) -> ComparisonResult:
    """Apply the comparison rule of this module.

    Args:
        estimate: Logarithm of after over before.
        method: How they were found.
    """
    ratio, low, high = (_exp(value) for value in (estimate, estimate - reach, estimate + reach))
    least = math.log1p(threshold.min_effect)
    beyond = abs(estimate) > least
    narrow = reach <= NARROW * least
    if narrow and not beyond:
        return ComparisonResult("same", ratio, low, high, method)
    if reach >= abs(estimate) or not (narrow or abs(estimate) - reach > least):
        return ComparisonResult(
            "inconclusive", ratio, low, high, method, "too_noisy", _noise(reach, threshold)
        )
    if threshold.better is None:
        detail = "the direction of improvement is unknown; set it in the model's policy"
        return ComparisonResult("inconclusive", ratio, low, high, method, "no_direction", detail)
    return ComparisonResult(_outcome(estimate, threshold), ratio, low, high, method)


def _within(ratio: float, result: ComparisonResult) -> float:
    """Clamp a ratio to the result's interval."""
    assert result.low is not None, "the rule returns an interval"
    assert result.high is not None, "likewise"
    return min(max(ratio, result.low), result.high)


def _outcome(estimate: float, threshold: Threshold) -> Outcome:
    return "better" if (estimate < 0) == (threshold.better == "lower") else "worse"


def _noise(reach: float, threshold: Threshold) -> str:
    spread = "more than ten times" if reach > math.log(10) else f"{100 * math.expm1(reach):.1f} %"
    return (
        f"the uncertainty is {spread}, "
        f"too large to distinguish a change of {100 * threshold.min_effect:g} % from noise"
    )


def _not(
    why: InconclusiveReason, detail: str, method: Method, ratios: Sequence[float] = ()
) -> ComparisonResult:
    ratio = ratios[0] if len(ratios) == 1 else None
    return ComparisonResult("inconclusive", ratio, None, None, method, why, detail)


def _usable(values: Sequence[float]) -> bool:
    return all(math.isfinite(value) and value > 0 for value in values)


def _steps(values: Sequence[float]) -> list[float]:
    return [math.log(b) - math.log(a) for a, b in pairwise(values)]


def _welch(parts: Sequence[float], degrees: Sequence[int]) -> int:
    """Degree of freedom by Welch and Satterthwaite, rounded down; the least where nothing varies."""
    below = sum(part**2 / count for part, count in zip(parts, degrees, strict=True))
    return max(min(degrees), math.floor(sum(parts) ** 2 / below)) if below > 0 else min(degrees)


def _exp(value: float) -> float:
    """`exp` that ends at the largest and smallest float, so that no view holds an infinity."""
    return math.exp(max(-700.0, min(700.0, value)))


@lru_cache(maxsize=256)
def half_width(degrees: int, confidence: float) -> float:
    """Return how many standard errors lie between a mean and the end of Student's two-sided interval.

    Args:
        degrees: Degrees of freedom, at least 1.
        confidence: Between 0 and 1, exclusively.
    """
    from scipy.special import stdtrit  # a fifth of a second, which only those pay who compare

    return float(stdtrit(min(degrees, _MANY_DEGREES), (1 + confidence) / 2))
