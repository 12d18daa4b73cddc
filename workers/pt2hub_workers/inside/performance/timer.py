"""Times several implementations in short alternating blocks, so that disturbances affect all of them equally."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import torch

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

BLOCK_SECONDS = 0.03
"""A block is long compared with the time to refill the caches after the other implementation, and short compared with
the seconds over which a machine's clock speeds drift."""
MAX_BLOCK_SECONDS = 0.3
"""A block on a busy machine ends after this time, with fewer calls than planned."""
WARM_SECONDS = 0.1
SLOW_SECONDS = 0.1
"""A call this long is a block of its own: reloading caches is a small part of it, and a dropped call would double the
cost."""
MIN_CALLS = 3
MAX_CALLS = 200_000
"""Maximum number of calls of one implementation at one size."""
MAX_BLOCK_CALLS = 1000
MAX_SAMPLES = 40
"""Maximum number of samples of one process that are kept, evenly spread over its calls."""


@dataclass(slots=True)
class TimedCall:
    """The calls of one implementation."""

    samples: list[float] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def calls(self) -> int:
        """Number of calls."""
        return len(self.samples)

    def quantile(self, share: float) -> float:
        """Return a quantile of the calls' times in milliseconds, with linear interpolation."""
        ordered = sorted(self.samples)
        at = share * (len(ordered) - 1)
        low = int(at)
        high = min(low + 1, len(ordered) - 1)
        return ordered[low] + (ordered[high] - ordered[low]) * (at - low)

    def thin(self) -> list[float]:
        """Return at most `MAX_SAMPLES` samples in their order, with 4 significant digits."""
        step = max(1.0, self.calls / MAX_SAMPLES)
        return [
            float(f"{self.samples[int(place * step)]:.4g}") for place in range(min(self.calls, MAX_SAMPLES))
        ]

    def as_dict(self, batch: int | None) -> dict[str, Any]:
        """Return the fields of `measurements.BatchTimes`."""
        return {
            "batch": batch,
            "calls": self.calls,
            "seconds": self.seconds,
            "p50": self.quantile(0.50),
            "p95": self.quantile(0.95),
            "p99": self.quantile(0.99),
            "samples": self.thin(),
        }


class Clock(Protocol):
    """Clock that times calls on a device."""

    def wait(self) -> None:
        """Wait until the device has finished its work."""

    def block(self, call: Callable[[], object], count: int) -> tuple[list[float], float]:
        """Make calls back to back, at least one.

        Returns:
            Milliseconds of each call, and the seconds of all.
        """


class ProcessorClock:
    """Clock for the CPU, on which a call ends when it returns."""

    def wait(self) -> None:
        """Do nothing: CPU calls are synchronous."""

    def block(self, call: Callable[[], object], count: int) -> tuple[list[float], float]:
        """See `Clock.block`."""
        samples = []
        began = last = time.perf_counter()
        for _ in range(count):
            call()
            now = time.perf_counter()
            samples.append((now - last) * 1000)
            last = now
            if last - began > MAX_BLOCK_SECONDS:
                break
        return samples, last - began


class DeviceClock:
    """Clock for a GPU: events before and after each call, read at the end of the block."""

    def __init__(self) -> None:
        self._events: list[Any] = []

    def wait(self) -> None:
        """See `Clock.wait`."""
        torch.cuda.synchronize()

    def block(self, call: Callable[[], object], count: int) -> tuple[list[float], float]:
        """See `Clock.block`."""
        while len(self._events) < 2 * count:
            self._events.append(torch.cuda.Event(enable_timing=True))
        pairs = [(self._events[2 * place], self._events[2 * place + 1]) for place in range(count)]
        self.wait()
        began = time.perf_counter()
        done = 0
        for before, after in pairs:
            before.record()
            call()
            after.record()
            done += 1
            if time.perf_counter() - began > MAX_BLOCK_SECONDS:
                break
        self.wait()
        seconds = time.perf_counter() - began
        return [before.elapsed_time(after) for before, after in pairs[:done]], seconds


def make_clock(device: str) -> Clock:
    """Return a clock for a device."""
    return DeviceClock() if device == "cuda" else ProcessorClock()


def time_alternating(
    calls: Sequence[Callable[[], object]], clock: Clock, *, seconds: float
) -> list[TimedCall]:
    """Time implementations in alternating blocks; the first call of a block is not counted.

    Args:
        seconds: Time of all calls of each implementation. At least `MIN_CALLS` and at most `MAX_CALLS` are made.
    """
    paces = [_warm_up(call, clock) for call in calls]
    found = [TimedCall() for _ in calls]
    end = time.perf_counter() + seconds * len(calls)
    while True:
        for call, pace, timed in zip(calls, paces, found, strict=True):
            _add_block(call, pace, clock, timed)
        fewest, most = min(timed.calls for timed in found), max(timed.calls for timed in found)
        if most >= MAX_CALLS or (fewest >= MIN_CALLS and time.perf_counter() >= end):
            return found


def _warm_up(call: Callable[[], object], clock: Clock) -> float:
    """Warm up an implementation; return the seconds that a call takes."""
    clock.wait()
    _, seconds = clock.block(call, 1)
    if seconds >= SLOW_SECONDS:  # an implementation that loads code on first use may be quick from then on
        _, seconds = clock.block(call, 1)
    if seconds >= SLOW_SECONDS:
        return seconds
    for share in (0.1, 1.0):  # the first call says little of the next ones
        samples, whole = clock.block(call, _count(seconds, share * WARM_SECONDS))
        seconds = whole / len(samples)
    return seconds


def _add_block(call: Callable[[], object], pace: float, clock: Clock, timed: TimedCall) -> None:
    count = 1
    if pace < SLOW_SECONDS:
        call()
        clock.wait()
        count = _count(pace, BLOCK_SECONDS)
    samples, seconds = clock.block(call, count)
    timed.samples += samples
    timed.seconds += seconds


def _count(pace: float, seconds: float) -> int:
    """Return the number of calls that take this time together, at least two."""
    return max(2, min(MAX_BLOCK_CALLS, round(seconds / max(pace, 1e-9))))
