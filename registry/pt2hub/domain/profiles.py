"""Where the time of an artifact's calls goes: the table beside a trace, and reading it as the words of a stranger."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from pt2hub.domain.codec import decode
from pt2hub.errors import UNSEEN, BadResponse

PROFILE_SCHEMA = 1
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
        share: Of the time of the calls, from 0 to 1.
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
        call_us: Time of one of them, microseconds, the mean.
        rest_us: Time of one of them that is in no row: between operations, or with an idle GPU.
        rows: The longest first, `MOST_ROWS` at most.
        left_out: Rows that are not listed.
        batch: The calls' batch size, None where they have none.
    """

    schema: int
    device: str
    calls: int
    call_us: float
    rest_us: float
    rows: tuple[ProfileRow, ...]
    left_out: int = 0
    batch: int | None = None


def read_profile(value: Any) -> Profile:  # noqa: ANN401  # any JSON value
    """A profile out of JSON values.

    Raises:
        BadResponse: It is none, or its numbers cannot be.
    """
    try:
        found = decode(Profile, value)
        numbers = [found.call_us, found.rest_us, *(n for row in found.rows for n in _times(row))]
        counts = [found.calls, found.left_out, found.batch or 0, *(row.calls for row in found.rows)]
        sound = len(found.rows) <= MOST_ROWS and all(_is_time(number) for number in numbers)
        sound = sound and all(_is_count(count) for count in counts) and found.calls > 0
    except (TypeError, ValueError, RecursionError) as error:
        raise BadResponse(f"It is no profile: {error}") from error
    if not sound:
        raise BadResponse("Its figures are none, or more than there can be")
    return found


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
