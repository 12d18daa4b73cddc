"""Where the time of an artifact's calls goes: the table beside a trace, and reading it as the words of a stranger."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

from pt2hub.domain.codec import decode
from pt2hub.errors import UNSEEN, BadResponse

PROFILE_SCHEMA = 2
MOST_ROWS = 200
MOST_NAME = 300
"""Characters of a name: the kernels of templates in C++ have long ones."""
MOST_PROFILE_BYTES = 256 << 10
_MOST_CALLS = 10**9
_MOST_US = 1e12


@dataclass(frozen=True, slots=True)
class ProfileRow:
    """An operation or a kernel in the calls that were traced.

    Attributes:
        name: As the profiler names it.
        calls: How often it ran, in all of them.
        total_us: Time in it in all of them, microseconds, without what it calls that has a row of its own.
        mean_us: The same for each time it ran.
        share: From 0 to 1: on a GPU of the time in which it ran anything (kernels and copies, all streams added up), on
            a CPU of the time of the calls.
    """

    name: str
    calls: int
    total_us: float
    mean_us: float
    share: float


@dataclass(frozen=True, slots=True)
class Profile:
    """Where the time of some calls went. Calls are slower while they are watched: shares tell more than times.

    Attributes:
        schema: `PROFILE_SCHEMA`.
        device: `cpu`: the rows are operations and kernels of the calling thread. `cuda`: kernels and copies of the GPU.
        calls: How many calls of the artifact.
        call_us: Time of one of them under the profiler, microseconds, the mean.
        rest_us: Time of one of them that is in no row: between operations; of a GPU before its first kernel began and
            after its last one ended.
        rows: The longest first, `MOST_ROWS` at most.
        left_out: Rows that are not listed.
        batch: The calls' batch size, None where they have none.
        device_us: Time of one call in which the GPU ran something, microseconds; None for a CPU.
        gap_us: Time of one call in which the GPU was idle between two kernels, waiting for a launch; None for a CPU, and
            where an older pt2hub did not tell it from `rest_us`.
        plain_us: Time of one call without the profiler, from the same process; None where it is not known.
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

    @property
    def profiler_us(self) -> float | None:
        """What the profiler adds to a call: launching while it is watched is slow. None where that is not known."""
        return None if self.plain_us is None else max(0.0, self.call_us - self.plain_us)

    @property
    def idle_us(self) -> float | None:
        """Time of a call without the profiler in which the GPU is idle; None for a CPU or where it is not known."""
        if self.plain_us is None or self.device_us is None:
            return None
        return max(0.0, self.plain_us - self.device_us)


def read_profile(value: Any) -> Profile:  # noqa: ANN401  # any JSON value
    """A profile out of JSON values.

    Raises:
        BadResponse: It is none, or its numbers cannot be.
    """
    try:
        found = _upgraded(decode(Profile, value))
        further = [found.device_us, found.gap_us, found.plain_us]
        numbers = [
            found.call_us,
            found.rest_us,
            *(n for n in further if n is not None),
            *(n for row in found.rows for n in _times(row)),
        ]
        counts = [found.calls, found.left_out, found.batch or 0, *(row.calls for row in found.rows)]
        sound = len(found.rows) <= MOST_ROWS and all(_is_time(number) for number in numbers)
        sound = sound and all(_is_count(count) for count in counts) and found.calls > 0
    except (TypeError, ValueError, RecursionError) as error:
        raise BadResponse(f"It is no profile: {error}") from error
    if not sound:
        raise BadResponse("Its figures are none, or more than there can be")
    return found


def _upgraded(found: Profile) -> Profile:
    """A profile of schema 1, whose shares of a GPU were of the calls' time, as one of today."""
    if found.schema != 1 or found.device != "cuda":
        return found
    device = found.call_us - found.rest_us
    whole = device * found.calls
    rows = tuple(
        replace(row, share=min(1.0, row.total_us / whole) if whole > 0 else 0.0) for row in found.rows
    )
    return replace(found, rows=rows, device_us=max(0.0, device))


def fit_name(name: str) -> str:
    """A name as a row may have it: not long, and without what cannot be seen or has no form in UTF-8."""
    seen = name[: 2 * MOST_NAME].translate(UNSEEN).replace("\n", " ").replace("\t", " ")
    return seen.encode(errors="replace").decode()[:MOST_NAME]


def _times(row: ProfileRow) -> tuple[float, float, float]:
    return row.total_us, row.mean_us, row.share


def _is_time(number: object) -> bool:
    plain = isinstance(number, int | float) and not isinstance(number, bool)
    return plain and math.isfinite(number) and 0 <= number <= _MOST_US  # type: ignore[arg-type, operator]  # plain says it


def _is_count(number: object) -> bool:
    return isinstance(number, int) and not isinstance(number, bool) and 0 <= number <= _MOST_CALLS
