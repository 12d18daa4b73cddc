"""What sentences call metrics; tables and commands call them by their names."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pt2hub.rendering.lists import join_words

if TYPE_CHECKING:
    from collections.abc import Iterable

SUBJECTS = {
    "latency_p50": "the median latency",
    "latency_p95": "the 95th percentile",
    "latency_p99": "the 99th percentile",
    "throughput": "throughput",
    "first_inference": "the first call",
    "load_time": "loading",
    "speedup": "the speedup over eager",
    "host_memory_peak": "host memory",
    "device_memory_peak": "device memory",
    "package_bytes": "the package",
    "code_bytes": "the code",
    "weights_bytes": "the size of the weights",
    "relative_error": "the numerical error",
}


def name_metric(metric: str, batches: Iterable[int | None] = ()) -> str:
    """Return what a sentence calls a metric: `the median latency at batch 1 and 8`."""
    sizes = [str(batch) for batch in sorted({batch for batch in batches if batch})]
    return f"{SUBJECTS.get(metric, metric)}{f' at batch {join_words(sizes)}' if sizes else ''}"
