"""Profiles of an artifact's calls, and validation of untrusted ones."""

from __future__ import annotations

import math
from dataclasses import astuple, dataclass
from typing import Any

from pt2hub.domain.codec import decode
from pt2hub.errors import INVISIBLE_CHARACTERS, BadResponse

PROFILE_SCHEMA = 3
TORCH_COMPILE = "torch_compile"
"""Implementation whose profile stands beside an artifact's."""
MAX_ROWS = 200
MAX_NAME_CHARS = 300
"""C++ template kernels have long names."""
MAX_PROFILE_BYTES = 256 << 10
_MAX_CALLS = 10**9
_MAX_US = 1e12


@dataclass(frozen=True, slots=True)
class ProfileRow:
    """An operation or kernel in the traced calls.

    Attributes:
        name: The profiler's name for it.
        calls: How often it ran in all traced calls.
        total_us: Total time in microseconds, excluding callees that have rows of their own.
        mean_us: Mean time per execution in microseconds.
        share: Share of the time, from 0 to 1: on a GPU of its busy time (kernels and copies, summed over all streams),
            on a CPU of the calls' time.
        operator: The operator that launches the kernel (`aten::convolution`); None if there is none, as for generated
            kernels, or on a CPU.
    """

    name: str
    calls: int
    total_us: float
    mean_us: float
    share: float
    operator: str | None = None


@dataclass(frozen=True, slots=True)
class Gaps:
    """Times of a call in which the GPU was idle between two kernels, by cause, in microseconds.

    Attributes:
        launch_us: Launch-bound: the host launched the next kernel too late.
        sync_us: The host launched it too late because a synchronising call, such as `cudaStreamSynchronize`, held it up.
        device_us: It was launched in time and waited on the GPU: for another stream, or for the hardware's scheduler.
        unknown_us: Its launch is not in the trace.
    """

    launch_us: float = 0.0
    sync_us: float = 0.0
    device_us: float = 0.0
    unknown_us: float = 0.0

    @property
    def total_us(self) -> float:
        """All gaps of a call, in microseconds."""
        return self.launch_us + self.sync_us + self.device_us + self.unknown_us


@dataclass(frozen=True, slots=True)
class Profile:
    """Where the time of some calls went. The profiler slows calls down, so shares are more reliable than times.

    Attributes:
        schema: `PROFILE_SCHEMA`.
        device: `cpu`: rows are operations and kernels of the calling thread; `cuda`: kernels and copies of the GPU.
        calls: Number of traced calls.
        call_us: Mean time of a call under the profiler, in microseconds.
        rest_us: Mean time of a call outside all rows: between operations; on a GPU before the first kernel and after the
            last one.
        rows: At most 200 rows, longest first.
        left_out: Number of rows that are not listed.
        batch: Batch size of the calls, or None if not applicable.
        device_us: GPU busy time per call, in microseconds; None for a CPU.
        gap_us: GPU idle time between kernels per call; None for a CPU.
        plain_us: Time of a call without the profiler in the same process; None if unknown.
        gaps: That idle time by cause; None for a CPU, and in profiles of schema 2.
        implementation: Whose calls were traced: `artifact`, or the baseline `torch_compile`.
    """

    schema: int
    device: str
    calls: int
    call_us: float
    rest_us: float
    rows: tuple[ProfileRow, ...]
    left_out: int = 0
    batch: int | None = None
    device_us: float | None = None
    gap_us: float | None = None
    plain_us: float | None = None
    gaps: Gaps | None = None
    implementation: str = "artifact"

    @property
    def profiler_us(self) -> float | None:
        """Overhead of the profiler per call, since profiled launches are slow; None if unknown."""
        return None if self.plain_us is None else max(0.0, self.call_us - self.plain_us)

    @property
    def idle_us(self) -> float | None:
        """GPU idle time of a call without the profiler; None for a CPU or if unknown."""
        if self.plain_us is None or self.device_us is None:
            return None
        return max(0.0, self.plain_us - self.device_us)


def read_profile(value: Any) -> Profile:
    """Read a profile from JSON values.

    Raises:
        BadResponse: The profile is malformed or has impossible numbers.
    """
    try:
        found = decode(Profile, value)
        further = [
            found.device_us,
            found.gap_us,
            found.plain_us,
            *(astuple(found.gaps) if found.gaps else ()),
        ]
        numbers = [
            found.call_us,
            found.rest_us,
            *(n for n in further if n is not None),
            *(n for row in found.rows for n in _times(row)),
        ]
        counts = [found.calls, found.left_out, found.batch or 0, *(row.calls for row in found.rows)]
        texts = [
            found.implementation,
            *(text for row in found.rows for text in (row.name, row.operator or "")),
        ]
        sound = len(found.rows) <= MAX_ROWS and all(_is_time(number) for number in numbers)
        sound = sound and all(len(text) <= MAX_NAME_CHARS for text in texts)
        sound = sound and all(_is_count(count) for count in counts) and found.calls > 0
    except (TypeError, ValueError, RecursionError) as error:
        raise BadResponse(f"Invalid profile: {error}") from error
    if not sound:
        raise BadResponse("Invalid profile: numbers, names or row count out of range")
    return found


def fit_name(name: str) -> str:
    """Shorten a row's name and drop characters that are invisible or not valid in UTF-8."""
    seen = name[: 2 * MAX_NAME_CHARS].translate(INVISIBLE_CHARACTERS).replace("\n", " ").replace("\t", " ")
    return seen.encode(errors="replace").decode()[:MAX_NAME_CHARS]


def _times(row: ProfileRow) -> tuple[float, float, float]:
    return row.total_us, row.mean_us, row.share


def _is_time(number: object) -> bool:
    plain = isinstance(number, int | float) and not isinstance(number, bool)
    return plain and math.isfinite(number) and 0 <= number <= _MAX_US  # type: ignore[arg-type, operator]  # checked by plain


def _is_count(number: object) -> bool:
    return isinstance(number, int) and not isinstance(number, bool) and 0 <= number <= _MAX_CALLS
