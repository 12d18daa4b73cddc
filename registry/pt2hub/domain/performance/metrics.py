"""Metrics, thresholds and comparison results."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal, TypeAlias

Better: TypeAlias = Literal["lower", "higher"]
Outcome: TypeAlias = Literal["better", "worse", "same", "inconclusive"]
InconclusiveReason: TypeAlias = Literal[
    "environment_differs",
    "too_noisy",
    "too_few",
    "not_measured",
    "unit_differs",
    "no_direction",
    "inputs_differ",
]
"""Reasons why two measurements are not comparable."""
Method: TypeAlias = Literal["paired", "replicates", "series", "exact", "code"]
"""Methods of comparison: both in the same processes (`paired`); replicates of two separate runs; single values against
the usual noise between neighbours in the series; exact values without noise, such as sizes; or equal code and toolchain."""
Settled: TypeAlias = Literal["steady", "too_few", "apart"]
"""Assessments of a series without change points: too few measurements to find one, or the newest one differs from the
previous level."""

METRIC_PATTERN = r"[a-z][a-z0-9_]{0,63}"
_METRIC = re.compile(METRIC_PATTERN)


BETWEEN_RUNS = 0.08
"""Default standard deviation, as a logarithm, between runs of one artifact at different times. Medians of five processes
each, minutes apart on a quiet shared machine, varied by 0.06 (resnet18) to 0.13 (mobilenet_v3_small)."""


@dataclass(frozen=True, slots=True)
class Metric:
    """A known metric.

    Attributes:
        name: Its name.
        unit: Its unit; `1` for a ratio.
        better: The direction of improvement.
        text: Description.
        min_effect: Smallest relative change that is flagged.
        exact: Whether the same artifact always gives the same value.
        between: Default spread between runs of one artifact at different times in addition to that between their
            replicates, as a logarithm.
    """

    name: str
    unit: str
    better: Better
    text: str
    min_effect: float
    exact: bool = False
    between: float = BETWEEN_RUNS


METRICS: dict[str, Metric] = {
    metric.name: metric
    for metric in (
        Metric("latency_p50", "ms", "lower", "median time of a call", 0.05),
        Metric("latency_p95", "ms", "lower", "95th percentile of a call's time", 0.10),
        Metric("latency_p99", "ms", "lower", "99th percentile of a call's time", 0.15),
        Metric("throughput", "1/s", "higher", "samples per second, calls back to back", 0.05),
        Metric("first_inference", "ms", "lower", "first call in a fresh process", 0.20),
        Metric(
            "first_inference_warm",
            "ms",
            "lower",
            "first call of torch.compile in a fresh process, with the caches of an earlier one",
            0.25,
        ),
        Metric(
            "first_inference_speedup",
            "1",
            "higher",
            "first call of torch.compile with cold caches, divided by the artifact's first call",
            0.25,
        ),
        Metric("load_time", "ms", "lower", "loading the artifact's files, without importing torch", 0.20),
        Metric("speedup", "1", "higher", "baseline's time divided by the artifact's, in one process", 0.10),
        Metric(
            "host_memory_peak",
            "B",
            "lower",
            "memory that loading and calling adds to a process",
            0.05,
        ),
        Metric(
            "device_memory_peak",
            "B",
            "lower",
            "memory that torch allocates on the device",
            0.02,
            between=0.001,
        ),
        Metric("package_bytes", "B", "lower", "size of the single model.pt2", 0.01, exact=True),
        Metric("code_bytes", "B", "lower", "size of the code layer", 0.01, exact=True),
        Metric("weights_bytes", "B", "lower", "size of the weights layer", 0.01, exact=True),
        Metric(
            "relative_error", "1", "lower", "largest error relative to the signal, from verification", 1.0
        ),
        Metric("compile_time", "s", "lower", "the compiler's time", 0.25),
        *(
            Metric(f"{step}_time", "s", "lower", f"time of the build step {step}", 0.25)
            for step in ("fetch", "export", "key", "reuse", "pack", "verify")
        ),
    )
}
"""Known metrics with units, directions and default minimum effects, which a model's policy may override; the table in
`docs/how-to/performance-history.md`."""

OF_JOBS = frozenset(
    (
        "latency_p50",
        "latency_p95",
        "latency_p99",
        "throughput",
        "first_inference",
        "first_inference_warm",
        "first_inference_speedup",
        "load_time",
        "host_memory_peak",
        "device_memory_peak",
    )
)
"""Metrics that measuring jobs measure; others come from builds or reports."""

SAME_CODE_FACTOR = 2.0
"""Largest factor between two single latencies of the same code that counts as unchanged. The same kernels may have other work
with other weights: subnormal numbers, or sizes that depend on the data."""
DEFAULT_CONFIDENCE = 0.99
FREE_MIN_EFFECT = 0.05
"""Default minimum effect of custom metrics, which only reports contain."""


@dataclass(frozen=True, slots=True)
class Threshold:
    """Threshold above which a change of a metric counts.

    Attributes:
        better: Direction of improvement; None if unknown.
        min_effect: Smallest relative change, such as 0.05.
        confidence: Confidence of the interval that must exclude "no change", such as 0.99.
    """

    better: Better | None
    min_effect: float
    confidence: float = DEFAULT_CONFIDENCE


def default_threshold(metric: str) -> Threshold:
    """Return a metric's default threshold."""
    known = METRICS.get(metric)
    return Threshold(known.better, known.min_effect) if known else Threshold(None, FREE_MIN_EFFECT)


def is_metric(name: str) -> bool:
    """Return whether a text is a valid metric name."""
    return _METRIC.fullmatch(name) is not None


@dataclass(frozen=True, slots=True)
class SeriesFilter:
    """Filter for the series of a model; None matches everything.

    Attributes:
        metric: Name of the metric.
        implementation: `artifact`, or a baseline.
        target: The target's name.
        batch: Batch size.
        environment: Digest of the environment class, or a prefix of it.
    """

    metric: str
    implementation: str = "artifact"
    target: str | None = None
    batch: int | None = None
    environment: str | None = None


@dataclass(frozen=True, slots=True)
class ComparisonResult:
    """Result of comparing two measurements.

    Attributes:
        outcome: One of `Outcome`.
        ratio: After divided by before, None if undefined.
        low: Lower bound of the ratio's confidence interval, None if the method has none.
        high: Upper bound of the interval.
        method: The method, None if nothing could be compared.
        reason: Why they are not comparable; else None.
        detail: The reason in words; else None.
    """

    outcome: Outcome
    ratio: float | None = None
    low: float | None = None
    high: float | None = None
    method: Method | None = None
    reason: InconclusiveReason | None = None
    detail: str | None = None
