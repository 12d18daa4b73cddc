"""A few calls of an artifact under torch's profiler, in a process in which nothing is timed any more."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch.autograd.profiler import profile, record_function

from pt2hub_workers.inside.files import CALL, MOST_TRACE_BYTES
from pt2hub_workers.inside.interposing import show_calls

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pt2hub_workers.inside.timing import Clock

CALLS = 3
"""The traced ones."""
_WARM = 2
"""The first call that is watched pays for what the profiler prepares."""
_SECONDS = 3.0
"""Calls are left out where all of them would take longer, down to one."""
_LONGEST_CALL = 30.0


def trace(call: Callable[[], object], clock: Clock, *, device: str, pace: float, into: Path) -> str:
    """Traces some calls.

    `torch.profiler.profile` does the same and costs 1.6 s of imports more (torch 2.13).

    Args:
        call: The call, made before.
        clock: Of its device.
        device: `cpu` or `cuda`.
        pace: Seconds that a call takes.
        into: Where the trace goes, as the profiler writes it.

    Returns:
        Why there is none, as the end of a sentence; empty where there is one.
    """
    if pace > _LONGEST_CALL:
        return f"one call takes {pace:.0f} s, and is not made again for it"
    if device == "cpu":
        show_calls()
    warm = _WARM if _WARM * pace < _SECONDS else 0
    calls = max(1, min(CALLS, int(_SECONDS / max(pace, 1e-9)) - warm))
    try:
        for count in dict.fromkeys((calls, 1)):
            _write(call, clock, device, (warm, count), into)
            if into.stat().st_size <= MOST_TRACE_BYTES:
                return ""
    except (RuntimeError, OSError) as error:
        into.unlink(missing_ok=True)
        return " ".join(str(error).split())[:300] or type(error).__name__
    size = into.stat().st_size
    into.unlink()
    return f"the trace of one call has {size:,} bytes, more than the {MOST_TRACE_BYTES:,} that are kept"


def _write(
    call: Callable[[], object], clock: Clock, device: str, counts: tuple[int, int], into: Path
) -> None:
    warm, count = counts
    with profile(use_kineto=True, use_device="cuda" if device == "cuda" else None) as profiler:
        for number in range(warm + count):
            with record_function(CALL if number >= warm else "warm-up"):
                call()
                clock.wait()  # so that what the call began on the device ends within it
    profiler.export_chrome_trace(str(into))
