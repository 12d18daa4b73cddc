"""Groups of metrics: what belongs together on a page and in a sentence."""

from __future__ import annotations

GROUPS = ("speed", "memory", "size", "numerics", "other", "build")
"""In the order in which they are shown; `other` has the metrics of reports."""
MAIN_METRICS = ("latency_p50", "throughput")
"""The metrics that say how fast an artifact is, the first measured one alone."""
_SPEED = frozenset(
    (
        "latency_p50",
        "latency_p95",
        "latency_p99",
        "throughput",
        "first_inference",
        "first_inference_warm",
        "first_inference_speedup",
        "load_time",
        "speedup",
    )
)
_BUILD = frozenset(
    (
        "compile_time",
        "fetch_time",
        "export_time",
        "key_time",
        "reuse_time",
        "pack_time",
        "verify_time",
    )
)


def group_of(metric: str) -> str:
    """Return the group of a metric."""
    if metric in _SPEED:
        return "speed"
    if metric in _BUILD:
        return "build"
    if metric.endswith("_memory_peak"):
        return "memory"
    if metric.endswith("_bytes"):
        return "size"
    return "numerics" if metric == "relative_error" else "other"
