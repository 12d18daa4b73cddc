"""Measurements of benchmark processes, validated as untrusted input and combined over processes."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from statistics import median
from typing import Any

from pt2hub.domain.codec import decode
from pt2hub.domain.performance.measurements import Measurement, Pair
from pt2hub.domain.performance.metrics import METRICS
from pt2hub.errors import BadResponse, OutputRefused

ARTIFACT, BASELINE, TORCH_COMPILE = "artifact", "baseline", "torch_compile"
IMPLEMENTATIONS = (ARTIFACT, "eager", TORCH_COMPILE)
"""Implementations that one process times when it rebuilds the model's source; the last may be missing."""
MAX_SAMPLES = 40
"""Samples of one process."""
MAX_THREADS = 65536
MAX_BYTES = 1 << 50
_CALL_BESIDE = 1.05
"""Tolerated ratio of GPU times to wall-clock times: GPU events use another clock."""


@dataclass(frozen=True, slots=True)
class BatchTimes:
    """Call times of one implementation at one batch size, in one process.

    Attributes:
        p50: Median, milliseconds.
    """

    batch: int | None
    calls: int
    seconds: float
    p50: float
    p95: float
    p99: float
    samples: list[float]


@dataclass(frozen=True, slots=True)
class ImplementationTimes:
    """Times of an implementation in one process; load, first call and memory are known for the first one only.

    Attributes:
        first_ms: First call in a fresh process; of torch.compile with cold caches.
        first_warm_ms: First call of torch.compile in a fresh process, with the caches of another one.
    """

    name: str
    batches: list[BatchTimes]
    load_ms: float | None = None
    first_ms: float | None = None
    first_warm_ms: float | None = None
    host_bytes: int | None = None
    device_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Times:
    """Measurements of one process.

    Attributes:
        implementations: Implementations in the order in which they were loaded.
    """

    threads: int
    implementations: list[ImplementationTimes] = field(default_factory=list)

    def of(self, name: str) -> ImplementationTimes | None:
        """Return the times of an implementation."""
        return next((item for item in self.implementations if item.name == name), None)


def read_times(
    value: Any,
    *,
    names: Sequence[str],
    batches: Sequence[int | None],
    seconds: float,
) -> Times:
    """Decode and check the times that a process sent.

    Args:
        names: The requested implementations, in order.
        batches: The requested batch sizes; None for the example's, which the process reports.
        seconds: Run time of the process, which bounds its calls.
    """
    try:
        times = decode(Times, value)
    except (BadResponse, TypeError, ValueError) as error:
        raise _output_refused(str(error)) from error
    if isinstance(times.threads, bool) or not 1 <= times.threads <= MAX_THREADS:
        raise _output_refused(f"invalid number of threads: {times.threads}")
    if [item.name for item in times.implementations] != list(names):
        raise _output_refused("the timed implementations differ from the requested ones")
    for item in times.implementations:
        _check_implementation(item, batches, seconds)
    if (
        sum(batch.seconds for item in times.implementations for batch in item.batches)
        > seconds * _CALL_BESIDE
    ):
        raise _output_refused("the calls took longer than the process ran")
    return times


def _check_implementation(item: ImplementationTimes, batches: Sequence[int | None], seconds: float) -> None:
    if len(item.batches) != len(batches):
        raise _output_refused(
            f"{item.name} has measurements of {len(item.batches)} batch sizes, expected {len(batches)}"
        )
    if any(asked not in (None, given.batch) for asked, given in zip(batches, item.batches, strict=True)):
        raise _output_refused(f"{item.name} has measurements of other batch sizes than {list(batches)}")
    for name in ("load_ms", "first_ms", "first_warm_ms"):
        value = getattr(item, name)
        if value is not None and not _positive(value, seconds * 1000 * _CALL_BESIDE):
            raise _output_refused(f"invalid {name} of {item.name}: {value!r}")
    for name in ("host_bytes", "device_bytes"):
        value = getattr(item, name)
        if value is not None and (isinstance(value, bool) or not -MAX_BYTES <= value <= MAX_BYTES):
            raise _output_refused(f"invalid {name} of {item.name}: {value!r}"[:200])
    for times in item.batches:
        _check_batch(item.name, times, seconds)


def _check_batch(name: str, times: BatchTimes, seconds: float) -> None:
    wall = times.seconds * 1000 * _CALL_BESIDE
    numbers = [times.p50, times.p95, times.p99, *times.samples]
    if times.calls < 1 or not _positive(times.seconds, seconds * _CALL_BESIDE):
        raise _output_refused(f"invalid calls of {name}: {times.calls} in {times.seconds} s"[:200])
    if not all(_positive(value, wall) for value in numbers):
        raise _output_refused(f"impossible duration of a call of {name}")
    if not times.p50 <= times.p95 <= times.p99:
        raise _output_refused(f"the percentiles of {name} are not in ascending order")
    if not 1 <= len(times.samples) <= min(MAX_SAMPLES, times.calls):
        raise _output_refused(
            f"invalid number of samples of {name}: {len(times.samples)} of {times.calls} calls"
        )
    # Half of the calls take at least the median, except the two that it lies between.
    if math.fsum(times.samples) > wall or (times.calls - 1) // 2 * times.p50 > wall:
        raise _output_refused(f"the calls of {name} are longer than their sum")
    if times.batch is not None and not 0 <= times.batch < 1 << 40:
        raise _output_refused(f"invalid batch size of {name}")


def _positive(value: float, most: float) -> bool:
    return not isinstance(value, bool) and math.isfinite(value) and 0 < value <= most


def _output_refused(why: str) -> OutputRefused:
    return OutputRefused(
        f"the benchmark process sent invalid measurements: {why}",
        where="measure",
        hint="An artifact must not write to the channel of its process. If this one does not, please report the build's log.",
    )


Quantity = Callable[[BatchTimes], float]
_OF_BATCH: dict[str, Quantity] = {
    "latency_p50": lambda times: times.p50,
    "latency_p95": lambda times: times.p95,
    "latency_p99": lambda times: times.p99,
    "throughput": lambda times: (times.batch or 1) * times.calls / times.seconds,
}
_OF_PROCESS: dict[str, Callable[[ImplementationTimes], float | None]] = {
    "first_inference": lambda item: item.first_ms,
    "load_time": lambda item: item.load_ms,
    "host_memory_peak": lambda item: item.host_bytes,
    "device_memory_peak": lambda item: item.device_bytes,
}


def combine_measurements(processes: Sequence[Times], name: str) -> list[Measurement]:
    """Return an implementation's measurements: medians over the processes, with one replicate per process."""
    own = [item for times in processes if (item := times.of(name))]
    if not own:
        return []
    sizes = len(own[0].batches)
    calls = [
        _combine_batch(metric, [item.batches[index] for item in own])
        for index in range(sizes)
        for metric in _OF_BATCH
    ]
    return [*calls, *_combine_processes(own)]


def read_baselines(value: Any, *, seconds: float) -> Times:
    """Decode and check the times of the artifact, eager and, if it was timed, torch.compile; see `read_times`."""
    sent = value.get("implementations") if isinstance(value, dict) else None
    names = IMPLEMENTATIONS[: max(1, len(sent))] if isinstance(sent, list) else IMPLEMENTATIONS
    return read_times(value, names=names, batches=[None], seconds=seconds)


def combine_baselines(times: Times) -> list[Measurement]:
    """Return the measurements of eager and torch.compile."""
    own, *others = times.implementations
    artifact = own.batches[0].p50
    return [
        replace(measurement, implementation=item.name)
        for item in others
        for batch in item.batches
        for measurement in (
            _combine_batch("latency_p50", [batch]),
            _measurement("speedup", [batch.p50 / artifact], batch.batch),
            *_first_calls(item, batch.batch),
        )
    ]


def _first_calls(item: ImplementationTimes, batch: int | None) -> list[Measurement]:
    given = {"first_inference": item.first_ms, "first_inference_warm": item.first_warm_ms}
    return [_measurement(metric, [value], batch) for metric, value in given.items() if value is not None]


def compare_first_calls(own: Sequence[Measurement], others: Sequence[Measurement]) -> list[Measurement]:
    """Return how many times faster the artifact's first call is than torch.compile's, where both are measured."""
    fresh = next((item for item in own if item.metric == "first_inference"), None)
    cold = next((item for item in others if item.metric == "first_inference"), None)
    if fresh is None or cold is None or fresh.value <= 0 or fresh.batch != cold.batch:
        return []
    return [_measurement("first_inference_speedup", [cold.value / fresh.value], fresh.batch)]


def _combine_batch(metric: str, times: Sequence[BatchTimes]) -> Measurement:
    samples = [item.samples for item in times] if metric == "latency_p50" else None
    return _measurement(metric, [_OF_BATCH[metric](item) for item in times], times[0].batch, samples)


def _combine_processes(own: Sequence[ImplementationTimes]) -> list[Measurement]:
    found = []
    for metric, quantity in _OF_PROCESS.items():
        values = [value for item in own if (value := quantity(item)) is not None and value > 0]
        if values:
            batch = own[0].batches[0].batch if metric == "first_inference" else None
            found.append(_measurement(metric, values, batch))
    return found


def _measurement(
    metric: str, values: Iterable[float], batch: int | None, samples: list[Any] | None = None
) -> Measurement:
    replicates = [_round(value) for value in values]
    value = _round(median(replicates))
    return Measurement(metric, value, METRICS[metric].unit, ARTIFACT, batch, samples, replicates)


def combine_pairs(processes: Sequence[Times]) -> list[Pair]:
    """Return the ratios of artifact to baseline, from the processes that ran both."""
    both = [
        (own, other) for times in processes if (own := times.of(ARTIFACT)) and (other := times.of(BASELINE))
    ]
    if not both:
        return []
    return [
        Pair(
            metric,
            METRICS[metric].unit,
            [_round(quantity(own.batches[at]) / quantity(other.batches[at])) for own, other in both],
            both[0][0].batches[at].batch,
        )
        for at in range(len(both[0][0].batches))
        for metric, quantity in _OF_BATCH.items()
    ]


def _round(value: float) -> float:
    """Round to six significant digits, more than any clock here resolves."""
    return float(f"{value:.6g}")
