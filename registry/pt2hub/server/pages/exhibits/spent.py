"""Where the time of a call goes: a row for each operation or kernel, with a bar."""

from __future__ import annotations

import re
from dataclasses import dataclass

from pt2hub.domain.profiles import Profile, ProfileRow

SHOWN = 20
WIDTH = 120.0
"""Of the longest bar, in its own unit."""
_GENERATED = re.compile(r"(?:model_(?=triton_))?((?:triton|cpp|aoti_torch)_[A-Za-z0-9_]{1,250})")
"""What has a place in the generated sources: kernels, and the operations that the wrapper calls. In tables of an older
pt2hub the package's name stands before a kernel's."""


@dataclass(frozen=True, slots=True)
class Spent:
    """An operation or a kernel.

    Attributes:
        row: Its figures.
        each: How often it runs in a call.
        per_call: Its time in a call, microseconds.
        width: Length of its bar, of `WIDTH`.
        generated: Its name in the sources; empty where they do not have it.
    """

    row: ProfileRow
    each: float
    per_call: float
    width: float
    generated: str


@dataclass(frozen=True, slots=True)
class Spending:
    """The whole table.

    Attributes:
        profile: What it is made of.
        shown: The rows that come first.
        others: Those behind them.
        rest_share: Share of the calls' time that is in no row, for a CPU; None for a GPU, whose rows share what it ran.
        rest_width: Length of its bar.
        whole: The parts of a call beside each other, each with its name and microseconds; empty for a CPU.
    """

    profile: Profile
    shown: tuple[Spent, ...]
    others: tuple[Spent, ...]
    rest_share: float | None
    rest_width: float
    whole: tuple[tuple[str, float], ...] = ()

    @property
    def on_device(self) -> bool:
        """Whether the rows are of a GPU."""
        return self.profile.device == "cuda"


def spending(profile: Profile) -> Spending:
    """The table of a profile.

    Args:
        profile: Its rows, the longest first.
    """
    on_device = profile.device == "cuda"
    rest = min(1.0, profile.rest_us / profile.call_us) if profile.call_us and not on_device else 0.0
    longest = max([rest, *(min(1.0, row.share) for row in profile.rows)]) or 1.0
    rows = tuple(_spent(row, profile.calls, WIDTH / longest) for row in profile.rows)
    width = round(rest * WIDTH / longest, 1)
    told = None if on_device else rest
    return Spending(profile, rows[:SHOWN], rows[SHOWN:], told, width, _whole(profile))


def _whole(profile: Profile) -> tuple[tuple[str, float], ...]:
    """A call on a GPU: what it does under the profiler, what that adds, and what is left without it."""
    named = (
        ("the GPU runs kernels and copies", profile.device_us),
        ("the GPU waits for the next launch (launch gaps)", profile.gap_us),
        (
            "before the first kernel and after the last" if profile.gap_us is not None else "the GPU is idle",
            profile.rest_us if profile.device_us is not None else None,
        ),
        ("a call under the profiler", profile.call_us if profile.device_us is not None else None),
        ("a call without it", profile.plain_us),
        ("the profiler's own cost", profile.profiler_us),
        ("the GPU is idle in a call without the profiler", profile.idle_us),
    )
    return tuple((name, time) for name, time in named if time is not None)


def _spent(row: ProfileRow, calls: int, scale: float) -> Spent:
    width = round(min(1.0, row.share) * scale, 1)
    found = _GENERATED.fullmatch(row.name)
    return Spent(row, row.calls / calls, row.total_us / calls, width, found[1] if found else "")
