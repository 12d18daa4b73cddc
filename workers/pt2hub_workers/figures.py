"""What measuring processes say: read as the words of code that nobody has proven, and put together over processes."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from pt2hub.domain.codec import decode
from pt2hub.domain.measurements import Measurement, Pair
from pt2hub.domain.performance import METRICS
from pt2hub.errors import BadResponse, OutputRefused

ARTIFACT, BASELINE = "artifact", "baseline"
MOST_SAMPLES = 40
"""Of one process."""
MOST_THREADS = 65536
MOST_BYTES = 1 << 50
MOST_MS = 10 * 86400.0 * 1000
_CALL_BESIDE = 1.05
"""By how much the calls of a GPU may seem to last longer than the wall's clock says: its events are another clock's."""


@dataclass(frozen=True, slots=True)
class BatchTimes:
    """The calls of one subject at one size, in one process.

    Attributes:
        batch: Batch size, None where there is none.
        calls: How many.
        seconds: Wall time of all of them, back to back.
        p50: Median, milliseconds.
        p95: 95th percentile.
        p99: 99th percentile.
        samples: Some of the calls.
    """

    batch: int | None
    calls: int
    seconds: float
    p50: float
    p95: float
    p99: float
    samples: list[float]


@dataclass(frozen=True, slots=True)
class SubjectTimes:
    """A subject in one process; what belongs to a fresh process is known of whoever came first there.

    Attributes:
        name: `artifact` or `baseline`.
        batches: Its calls by size.
        load_ms: Time of loading, milliseconds.
        first_ms: Time of the first call.
        host_bytes: Memory that loading and calling added to the process.
        device_bytes: Memory that it added on the device.
    """

    name: str
    batches: list[BatchTimes]
    load_ms: float | None = None
    first_ms: float | None = None
    host_bytes: int | None = None
    device_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Times:
    """What one process measured.

    Attributes:
        threads: Threads of its torch.
        subjects: In the order in which they were loaded.
    """

    threads: int
    subjects: list[SubjectTimes] = field(default_factory=list)

    def of(self, name: str) -> SubjectTimes | None:
        """A subject's."""
        return next((item for item in self.subjects if item.name == name), None)


def read_times(
    value: Any,  # noqa: ANN401  # whatever was sent
    *,
    names: Sequence[str],
    batches: Sequence[int | None],
    seconds: float,
) -> Times:
    """What a process sent.

    Args:
        value: JSON values.
        names: The subjects that it was to load, in that order.
        batches: The sizes at which it was to time them; None for the example's own, which it tells.
        seconds: How long it was at work: its calls took no longer.

    Raises:
        OutputRefused: It is no such thing, or its numbers cannot be.
    """
    try:
        times = decode(Times, value)
    except (BadResponse, TypeError, ValueError) as error:
        raise _refused(str(error)) from error
    if isinstance(times.threads, bool) or not 1 <= times.threads <= MOST_THREADS:
        raise _refused(f"it has {times.threads} threads")
    if [item.name for item in times.subjects] != list(names):
        raise _refused("it measured other subjects than it was given")
    for item in times.subjects:
        _check_subject(item, batches, seconds)
    if sum(batch.seconds for item in times.subjects for batch in item.batches) > seconds * _CALL_BESIDE:
        raise _refused("its calls took longer than the process was at work")
    return times


def _check_subject(item: SubjectTimes, batches: Sequence[int | None], seconds: float) -> None:
    if len(item.batches) != len(batches):
        raise _refused(f"{item.name} has figures of {len(item.batches)} sizes, not of {len(batches)}")
    if any(asked not in (None, told.batch) for asked, told in zip(batches, item.batches, strict=True)):
        raise _refused(f"{item.name} has figures of other sizes than {list(batches)}")
    for name in ("load_ms", "first_ms"):
        value = getattr(item, name)
        if value is not None and not _positive(value, seconds * 1000 * _CALL_BESIDE):
            raise _refused(f"{name} of {item.name} is {value!r}")
    for name in ("host_bytes", "device_bytes"):
        value = getattr(item, name)
        if value is not None and (isinstance(value, bool) or not -MOST_BYTES <= value <= MOST_BYTES):
            raise _refused(f"{name} of {item.name} is {value!r}"[:200])
    for times in item.batches:
        _check_batch(item.name, times, seconds)


def _check_batch(name: str, times: BatchTimes, seconds: float) -> None:
    wall = times.seconds * 1000 * _CALL_BESIDE
    said = [times.p50, times.p95, times.p99, *times.samples]
    if times.calls < 1 or not _positive(times.seconds, seconds * _CALL_BESIDE):
        raise _refused(f"{name} made {times.calls} calls in {times.seconds} s"[:200])
    if not all(_positive(value, wall) for value in said):
        raise _refused(f"a call of {name} took no time that can be")
    if not times.p50 <= times.p95 <= times.p99:
        raise _refused(f"the percentiles of {name} are in no order")
    if not 1 <= len(times.samples) <= min(MOST_SAMPLES, times.calls):
        raise _refused(f"{name} has {len(times.samples)} samples of {times.calls} calls")
    # Half of the calls take the median or longer, but for the two that it lies between.
    if math.fsum(times.samples) > wall or (times.calls - 1) // 2 * times.p50 > wall:
        raise _refused(f"the calls of {name} took longer than all of them together")
    if times.batch is not None and not 0 <= times.batch < 1 << 40:
        raise _refused(f"{name} has a batch size that is none")


def _positive(value: float, most: float) -> bool:
    return not isinstance(value, bool) and math.isfinite(value) and 0 < value <= most


def _refused(why: str) -> OutputRefused:
    return OutputRefused(
        f"the process that measures sent figures that are none: {why}",
        where="measure",
        hint="An artifact must leave the channel of its process alone; if this one does, report it with the build's log.",
    )


Figure = Callable[[BatchTimes], float]
_OF_BATCH: dict[str, Figure] = {
    "latency_p50": lambda times: times.p50,
    "latency_p95": lambda times: times.p95,
    "latency_p99": lambda times: times.p99,
    "throughput": lambda times: (times.batch or 1) * times.calls / times.seconds,
}
_OF_PROCESS: dict[str, Callable[[SubjectTimes], float | None]] = {
    "first_inference": lambda item: item.first_ms,
    "load_time": lambda item: item.load_ms,
    "host_memory_peak": lambda item: item.host_bytes,
    "device_memory_peak": lambda item: item.device_bytes,
}


def measurements_of(processes: Sequence[Times], name: str) -> list[Measurement]:
    """A subject's figures: medians over the processes, each with a replicate of every process that has one.

    Args:
        processes: What each measured.
        name: The subject.
    """
    own = [item for times in processes if (item := times.of(name))]
    if not own:
        return []
    sizes = len(own[0].batches)
    calls = [
        _of_batch(metric, [item.batches[place] for item in own])
        for place in range(sizes)
        for metric in _OF_BATCH
    ]
    return [*calls, *_of_processes(own)]


def _of_batch(metric: str, times: Sequence[BatchTimes]) -> Measurement:
    samples = [item.samples for item in times] if metric == "latency_p50" else None
    return _measurement(metric, [_OF_BATCH[metric](item) for item in times], times[0].batch, samples)


def _of_processes(own: Sequence[SubjectTimes]) -> list[Measurement]:
    found = []
    for metric, figure in _OF_PROCESS.items():
        values = [value for item in own if (value := figure(item)) is not None and value > 0]
        if values:
            batch = own[0].batches[0].batch if metric == "first_inference" else None
            found.append(_measurement(metric, values, batch))
    return found


def _measurement(
    metric: str, values: Iterable[float], batch: int | None, samples: list[Any] | None = None
) -> Measurement:
    replicates = [_rounded(value) for value in values]
    value = _rounded(median(replicates))
    return Measurement(metric, value, METRICS[metric].unit, ARTIFACT, batch, samples, replicates)


def pairs_of(processes: Sequence[Times]) -> list[Pair]:
    """The artifact against its baseline, of the processes that ran both."""
    both = [
        (own, other) for times in processes if (own := times.of(ARTIFACT)) and (other := times.of(BASELINE))
    ]
    if not both:
        return []
    return [
        Pair(
            metric,
            METRICS[metric].unit,
            [_rounded(figure(own.batches[at]) / figure(other.batches[at])) for own, other in both],
            both[0][0].batches[at].batch,
        )
        for at in range(len(both[0][0].batches))
        for metric, figure in _OF_BATCH.items()
    ]


def _rounded(value: float) -> float:
    """Six significant digits: more than any clock here tells."""
    return float(f"{value:.6g}")
