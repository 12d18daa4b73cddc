"""Traces a few calls of an artifact with torch's profiler, after all timing in its process."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch.autograd.profiler import profile, record_function

from pt2hub_workers.inside.operations.files import CALL_NAME, MAX_TRACE_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pt2hub_workers.inside.performance.timer import Clock

MAX_TRACED_CALLS = 3
"""Maximum number of traced calls."""
_WARM_UP_CALLS = 2
"""Calls before the traced ones: the profiler's preparations slow down the first call."""
_MAX_SECONDS = 3.0
"""Time limit of all calls; fewer calls are made if they would take longer, but at least one."""
_MAX_CALL_S = 30.0


def trace_calls(call: Callable[[], object], clock: Clock, *, device: str, pace: float, into: Path) -> str:
    """Trace some calls.

    `torch.profiler.profile` does the same and costs 1.6 s more of imports (torch 2.13).

    Args:
        pace: Seconds that a call takes.

    Returns:
        Why there is no trace, as the end of a sentence; empty if there is one.
    """
    if pace > _MAX_CALL_S:
        return f"one call takes {pace:.0f} s, longer than {_MAX_CALL_S:.0f} s"
    warm = _WARM_UP_CALLS if _WARM_UP_CALLS * pace < _MAX_SECONDS else 0
    calls = max(1, min(MAX_TRACED_CALLS, int(_MAX_SECONDS / max(pace, 1e-9)) - warm))
    try:
        for count in dict.fromkeys((calls, 1)):
            _write(call, clock, device, (warm, count), into)
            if into.stat().st_size <= MAX_TRACE_BYTES:
                return ""
    except (RuntimeError, OSError) as error:
        into.unlink(missing_ok=True)
        return " ".join(str(error).split())[:300] or type(error).__name__
    size = into.stat().st_size
    into.unlink()
    return f"the trace of one call has {size:,} bytes, more than the maximum of {MAX_TRACE_BYTES:,}"


def _write(
    call: Callable[[], object], clock: Clock, device: str, counts: tuple[int, int], into: Path
) -> None:
    warm, count = counts
    with profile(use_kineto=True, use_device="cuda" if device == "cuda" else None) as profiler:
        for number in range(warm + count):
            with record_function(CALL_NAME if number >= warm else "warm-up"):
                call()
                clock.wait()  # so that the call's work on the device ends within it
    profiler.export_chrome_trace(str(into))
