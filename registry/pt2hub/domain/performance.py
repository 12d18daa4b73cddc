"""Performance: what is measured, which way is better, and when two figures may be compared."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal, TypeAlias

Better: TypeAlias = Literal["lower", "higher"]
Verdict: TypeAlias = Literal["better", "worse", "same", "not_comparable"]
Why: TypeAlias = Literal[
    "environment_differs",
    "too_noisy",
    "too_few",
    "not_measured",
    "unit_differs",
    "no_direction",
    "inputs_differ",
]
"""Why two figures are not comparable."""
Method: TypeAlias = Literal["paired", "replicates", "series", "exact", "code"]
"""How a verdict was reached: by runs of both side by side in the same processes; by the processes of two separate
runs; by what is usual between neighbours in the series, where there are single figures; because the figure has no noise,
such as a size; or because code and toolchain are the same, so that no kernel can differ."""
Settled: TypeAlias = Literal["steady", "too_few", "apart"]
"""What may be said of a series in which no change was found: too few figures for one to be found, or the newest lies
apart from the level before it."""

METRIC_PATTERN = r"[a-z][a-z0-9_]{0,63}"
_METRIC = re.compile(METRIC_PATTERN)


BETWEEN_RUNS = 0.08
"""Standard deviation, as a logarithm, of one artifact's runs at different times, where its series does not say it: medians
of five processes each, minutes apart on a quiet shared machine, had 0.06 (resnet18) to 0.13 (mobilenet_v3_small)."""


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric that pt2hub knows.

    Attributes:
        name: Its name.
        unit: Its unit; `1` for a ratio.
        better: Which way is better.
        text: What it is, for people.
        min_effect: Relative change below which nobody is told.
        exact: Whether the same artifact always gives the same figure.
        between: Spread of two runs of one artifact at different times beyond that of their processes, as a logarithm, where
            its series does not tell it.
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
        Metric("load_time", "ms", "lower", "loading the artifact's files, without importing torch", 0.20),
        Metric("speedup", "1", "higher", "time of the subject over the artifact's, in one process", 0.10),
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
        Metric("relative_error", "1", "lower", "largest error relative to signal, from the gate", 1.0),
        Metric("compile_time", "s", "lower", "the compiler's time", 0.25),
        *(
            Metric(f"{step}_time", "s", "lower", f"time of the build's step {step}", 0.25)
            for step in ("fetch", "export", "key", "reuse", "pack", "verify")
        ),
    )
}
"""Units and directions of known metrics, and the least change that counts by default (a model's policy may say
otherwise): the table of `docs/how-to/performance-history.md`."""

OF_JOBS = frozenset(
    (
        "latency_p50",
        "latency_p95",
        "latency_p99",
        "throughput",
        "first_inference",
        "load_time",
        "host_memory_peak",
        "device_memory_peak",
    )
)
"""Metrics that a measuring job takes too; the others are of the build, or reported."""

DEFAULT_CONFIDENCE = 0.99
FREE_MIN_EFFECT = 0.05
"""The least change that counts of a metric that only its reporters know."""


@dataclass(frozen=True, slots=True)
class Threshold:
    """When a change of a metric counts.

    Attributes:
        better: Which way is better; None where nobody has said it.
        min_effect: Least relative change, such as 0.05.
        confidence: Of the interval that must lie beyond no change, such as 0.99.
    """

    better: Better | None
    min_effect: float
    confidence: float = DEFAULT_CONFIDENCE


def default_threshold(metric: str) -> Threshold:
    """The threshold of a metric where a model's policy says nothing."""
    known = METRICS.get(metric)
    return Threshold(known.better, known.min_effect) if known else Threshold(None, FREE_MIN_EFFECT)


def is_metric(name: str) -> bool:
    """Whether a text can be a metric's name."""
    return _METRIC.fullmatch(name) is not None


@dataclass(frozen=True, slots=True)
class SeriesFilter:
    """Which series of a model; None is no filter.

    Attributes:
        metric: What is measured.
        subject: `artifact`, or what ran beside it.
        target: The target's name.
        batch: Batch size.
        environment: The environment class's digest, or its beginning.
    """

    metric: str
    subject: str = "artifact"
    target: str | None = None
    batch: int | None = None
    environment: str | None = None


@dataclass(frozen=True, slots=True)
class Judgement:
    """What a comparison of two figures says.

    Attributes:
        verdict: One of `Verdict`.
        ratio: After over before, None where there is none.
        low: Lower end of the ratio's confidence interval, None where the method knows none.
        high: Its upper end.
        method: How it was reached, None where nothing could be compared.
        why: Why not comparable; else None.
        detail: That reason in words, for people; else None.
    """

    verdict: Verdict
    ratio: float | None = None
    low: float | None = None
    high: float | None = None
    method: Method | None = None
    why: Why | None = None
    detail: str | None = None
