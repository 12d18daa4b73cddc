"""Events of a profiler trace, after they were checked and rebuilt."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

ON_DEVICE = frozenset({"kernel", "gpu_memcpy", "gpu_memset"})
"""Categories of what a GPU does."""
RUNTIME = frozenset({"cuda_runtime", "cuda_driver"})
"""Categories of the host's calls of CUDA: launches, copies, waits."""
ON_HOST = frozenset({"cpu_op", "user_annotation"}) | RUNTIME
HOST, DEVICES = 1, 10
"""Process numbers in stored traces: the host, and the first device."""


@dataclass(frozen=True, slots=True)
class Event:
    """Event of a trace.

    Attributes:
        process: `HOST`, or a device's number.
        begin: Microseconds since the first call began.
        length: Microseconds.
    """

    category: str
    name: str
    process: int
    thread: int
    begin: float
    length: float
    args: dict[str, Any] = field(default_factory=dict)

    @property
    def end(self) -> float:
        """End of the event, in microseconds since the first call began."""
        return self.begin + self.length

    @property
    def correlation(self) -> int | None:
        """Number that a launch shares with what it starts on the GPU; None if there is none."""
        number = self.args.get("correlation")
        return number if isinstance(number, int) and number > 0 else None

    def within(self, other: Event) -> bool:
        """Return whether the event began during another one."""
        return other.begin <= self.begin < other.end
