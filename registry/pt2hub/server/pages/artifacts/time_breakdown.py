"""Time breakdown of a call: a row with a bar for each operation or kernel."""

from __future__ import annotations

import re
from dataclasses import dataclass

from pt2hub.domain.performance.profiles import Profile, ProfileRow

SHOWN = 20
WIDTH = 120.0
"""Length of the longest bar, in SVG units."""
_GENERATED = re.compile(r"((?:triton|cpp|aoti_torch)_[A-Za-z0-9_]{1,250})")
"""Names in the generated sources: kernels, and operations that the wrapper calls."""


@dataclass(frozen=True, slots=True)
class TimeShare:
    """An operation or a kernel.

    Attributes:
        each: Runs per call.
        per_call: Time per call, microseconds.
        width: Length of its bar, of `WIDTH`.
        generated: Its name in the generated sources; may be empty.
    """

    row: ProfileRow
    each: float
    per_call: float
    width: float
    generated: str


@dataclass(frozen=True, slots=True)
class TimeBreakdown:
    """The time breakdown of a profile.

    Attributes:
        rest_share: Share of the time outside all rows on a CPU; None for a GPU, where shares are of its busy time.
        whole: Parts of a whole call with their microseconds; empty for a CPU.
    """

    profile: Profile
    shown: tuple[TimeShare, ...]
    others: tuple[TimeShare, ...]
    rest_share: float | None
    rest_width: float
    whole: tuple[tuple[str, float], ...] = ()

    @property
    def on_device(self) -> bool:
        """Whether the rows are of a GPU."""
        return self.profile.device == "cuda"


def break_down(profile: Profile) -> TimeBreakdown:
    """Return the time breakdown of a profile."""
    on_device = profile.device == "cuda"
    rest = min(1.0, profile.rest_us / profile.call_us) if profile.call_us and not on_device else 0.0
    longest = max([rest, *(min(1.0, row.share) for row in profile.rows)]) or 1.0
    rows = tuple(_time_share(row, profile.calls, WIDTH / longest) for row in profile.rows)
    width = round(rest * WIDTH / longest, 1)
    share = None if on_device else rest
    return TimeBreakdown(profile, rows[:SHOWN], rows[SHOWN:], share, width, _whole(profile))


def _whole(profile: Profile) -> tuple[tuple[str, float], ...]:
    """Return the parts of a call on a GPU, with and without the profiler."""
    named = (
        ("GPU busy with kernels and copies", profile.device_us),
        ("GPU waiting for the next launch (launch gaps)", profile.gap_us),
        (
            "before the first kernel and after the last" if profile.gap_us is not None else "GPU idle",
            profile.rest_us if profile.device_us is not None else None,
        ),
        ("call under the profiler", profile.call_us if profile.device_us is not None else None),
        ("call without the profiler", profile.plain_us),
        ("profiler overhead", profile.profiler_us),
        ("GPU idle in a call without the profiler", profile.idle_us),
    )
    return tuple((name, time) for name, time in named if time is not None)


def _time_share(row: ProfileRow, calls: int, scale: float) -> TimeShare:
    width = round(min(1.0, row.share) * scale, 1)
    found = _GENERATED.fullmatch(row.name)
    return TimeShare(row, row.calls / calls, row.total_us / calls, width, found[1] if found else "")
