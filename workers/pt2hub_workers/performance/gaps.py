"""Idle times of a GPU between the kernels of a call, and their causes.

A gap ends with a kernel, or a copy. Its cause is read from the host's call that launched it:

* launch: the call had not returned when the GPU became idle, so the host was late;
* sync: the host was late because a synchronising call (`cudaStreamSynchronize`, `cudaMemcpy`) held it up: it began while
  the GPU was busy, and returned after that;
* device: the kernel was launched in time, and waited on the GPU: for another stream, or for the hardware's scheduler.
  Within a CUDA graph all kernels are launched at once, so only its first one can be late.
"""

from __future__ import annotations

import math
import re
from bisect import bisect_left
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, TypeAlias

from pt2hub_workers.performance.trace_events import ON_DEVICE, RUNTIME

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pt2hub_workers.performance.trace_events import Event

Cause: TypeAlias = Literal["launch", "sync", "device", "unknown"]
_BLOCKING = re.compile(
    r"(?:cuda|cu)(?:(?:Stream|Device|Event|Ctx)Synchronize(?:_\w+)?|Memcpy(?!\w*Async)\w*)"
)
"""CUDA's calls that return only when work on the GPU has ended."""


@dataclass(slots=True)
class Timeline:
    """How the time of a call passed on the GPU, over all its streams.

    Attributes:
        busy: Microseconds in which anything ran.
        gaps: Microseconds in which nothing ran between two kernels, by cause.
    """

    busy: float = 0.0
    gaps: dict[Cause, float] = field(default_factory=dict)


def follow_device(call: Event, events: Sequence[Event]) -> Timeline:
    """Return how the time of a call passed on the GPU.

    Args:
        events: Events of the trace, by their beginnings.
    """
    own = [item for item in events if item.within(call)]
    host = HostCalls(own)
    timeline = Timeline()
    begun: set[int] = set()
    until: float | None = None
    for item in own:
        if item.category not in ON_DEVICE:
            continue
        if until is not None and item.begin > until:
            cause = host.find_cause(until, item, begun)
            timeline.gaps[cause] = timeline.gaps.get(cause, 0.0) + item.begin - until
        until = item.begin if until is None else until
        timeline.busy += max(0.0, item.end - max(item.begin, until))
        until = max(until, item.end)
        if item.correlation is not None:
            begun.add(item.correlation)
    return timeline


class HostCalls:
    """The host's calls of CUDA: which launched what, and which of them waited for the GPU.

    Args:
        events: Events by their beginnings; others than these calls are ignored.
    """

    def __init__(self, events: Iterable[Event]) -> None:
        self._launches: dict[int, Event] = {}
        self._waits: dict[int, _Waits] = {}
        for item in events:
            if item.category not in RUNTIME:
                continue
            if item.correlation is not None:
                self._launches.setdefault(item.correlation, item)
            if _BLOCKING.fullmatch(item.name):
                self._waits.setdefault(item.thread, _Waits()).add(item)

    def launch_of(self, item: Event) -> Event | None:
        """Return the call that launched something on the GPU; None if the trace does not have it."""
        return self._launches.get(item.correlation) if item.correlation is not None else None

    def find_cause(self, since: float, item: Event, begun: set[int]) -> Cause:
        """Return why the GPU was idle before a kernel.

        Args:
            since: When the GPU became idle.
            begun: Correlations of what already ran; a CUDA graph's kernels share that of its launch.
        """
        launch = self.launch_of(item)
        if launch is None:
            return "unknown"
        if item.correlation in begun:
            return "device"
        waits = self._waits.get(launch.thread)
        # A wait that begins when the GPU is idle already has nothing to wait for.
        if waits is not None and waits.last_end_before(min(launch.begin, since)) > since:
            return "sync"
        return "launch" if launch.end > since else "device"


class _Waits:
    """Synchronising calls of a thread, in order."""

    def __init__(self) -> None:
        self._begins: list[float] = []
        self._last_ends: list[float] = []

    def add(self, wait: Event) -> None:
        """Add a call."""
        self._begins.append(wait.begin)
        self._last_ends.append(max(wait.end, self._last_ends[-1] if self._last_ends else 0.0))

    def last_end_before(self, begin: float) -> float:
        """Return when the last call ended that began before a time; minus infinity if there is none."""
        place = bisect_left(self._begins, begin)
        return self._last_ends[place - 1] if place else -math.inf
