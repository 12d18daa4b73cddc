"""Timing calls of several subjects in short alternating blocks, so that whatever the machine does meets all alike."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import torch

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

BLOCK_SECONDS = 0.03
"""A block is long beside the moment in which a subject finds the caches full of the other's data, and short beside the
seconds in which a machine's clocks drift."""
HELD_UP_SECONDS = 0.3
"""A block on a busy machine ends here, with fewer calls than it was to have."""
WARM_SECONDS = 0.1
SLOW_SECONDS = 0.1
"""A call this long is a block of its own: what it loads anew is little of it, and dropping one would double its cost."""
LEAST_CALLS = 3
MOST_CALLS = 200_000
"""Of one subject at one size."""
MOST_IN_BLOCK = 1000
KEPT = 40
"""Samples of one process that are kept, evenly spread over its calls."""


@dataclass(slots=True)
class Timed:
    """The calls of one subject.

    Attributes:
        samples: Milliseconds of each call that counts.
        seconds: Wall time of the same calls, back to back.
    """

    samples: list[float] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def calls(self) -> int:
        """How many there are."""
        return len(self.samples)

    def quantile(self, share: float) -> float:
        """The time within which a share of the calls ended, in milliseconds, between neighbours by their distance."""
        ordered = sorted(self.samples)
        at = share * (len(ordered) - 1)
        low = int(at)
        high = min(low + 1, len(ordered) - 1)
        return ordered[low] + (ordered[high] - ordered[low]) * (at - low)

    def thinned(self) -> list[float]:
        """At most `KEPT` of the samples, in their order, with 4 significant digits."""
        step = max(1.0, self.calls / KEPT)
        return [float(f"{self.samples[int(place * step)]:.4g}") for place in range(min(self.calls, KEPT))]


class Clock(Protocol):
    """Times calls on a device."""

    def wait(self) -> None:
        """Waits until the device has done what it was given."""

    def block(self, call: Callable[[], object], count: int) -> tuple[list[float], float]:
        """Calls back to back, at least one.

        Returns:
            Milliseconds of each call, and the seconds of all.
        """


class ProcessorClock:
    """A call on the CPU is over when it returns."""

    def wait(self) -> None:
        """There is nothing to wait for."""

    def block(self, call: Callable[[], object], count: int) -> tuple[list[float], float]:
        """As `Clock.block`."""
        samples = []
        began = last = time.perf_counter()
        for _ in range(count):
            call()
            now = time.perf_counter()
            samples.append((now - last) * 1000)
            last = now
            if last - began > HELD_UP_SECONDS:
                break
        return samples, last - began


class DeviceClock:
    """A call on a GPU is over when the device says so: events before and after it, read at the end of the block."""

    def __init__(self) -> None:
        """Makes no events yet."""
        self._events: list[Any] = []

    def wait(self) -> None:
        """As `Clock.wait`."""
        torch.cuda.synchronize()

    def block(self, call: Callable[[], object], count: int) -> tuple[list[float], float]:
        """As `Clock.block`."""
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
            if time.perf_counter() - began > HELD_UP_SECONDS:
                break
        self.wait()
        seconds = time.perf_counter() - began
        return [before.elapsed_time(after) for before, after in pairs[:done]], seconds


def clock_of(device: str) -> Clock:
    """The clock of a device.

    Args:
        device: `cpu` or `cuda`.
    """
    return DeviceClock() if device == "cuda" else ProcessorClock()


def alternate(calls: Sequence[Callable[[], object]], clock: Clock, *, seconds: float) -> list[Timed]:
    """Times subjects in alternating blocks; the first call of a block is not counted.

    Args:
        calls: One of each subject, with its inputs.
        clock: Of their device.
        seconds: Time of each subject's calls together. `LEAST_CALLS` are made in any case, `MOST_CALLS` at most.
    """
    paces = [_warm_up(call, clock) for call in calls]
    found = [Timed() for _ in calls]
    end = time.perf_counter() + seconds * len(calls)
    while True:
        for call, pace, timed in zip(calls, paces, found, strict=True):
            _add_block(call, pace, clock, timed)
        fewest, most = min(timed.calls for timed in found), max(timed.calls for timed in found)
        if most >= MOST_CALLS or (fewest >= LEAST_CALLS and time.perf_counter() >= end):
            return found


def _warm_up(call: Callable[[], object], clock: Clock) -> float:
    """Warms a subject up; returns the seconds that a call takes."""
    clock.wait()
    _, seconds = clock.block(call, 1)
    if seconds >= SLOW_SECONDS:  # what loads code when it is first used may be quick from then on
        _, seconds = clock.block(call, 1)
    if seconds >= SLOW_SECONDS:
        return seconds
    for share in (0.1, 1.0):  # the first call says little of the next ones
        samples, whole = clock.block(call, _count(seconds, share * WARM_SECONDS))
        seconds = whole / len(samples)
    return seconds


def _add_block(call: Callable[[], object], pace: float, clock: Clock, timed: Timed) -> None:
    count = 1
    if pace < SLOW_SECONDS:
        call()
        clock.wait()
        count = _count(pace, BLOCK_SECONDS)
    samples, seconds = clock.block(call, count)
    timed.samples += samples
    timed.seconds += seconds


def _count(pace: float, seconds: float) -> int:
    """Calls that take some time together, at least two."""
    return max(2, min(MOST_IN_BLOCK, round(seconds / max(pace, 1e-9))))
