"""Where the time of a call goes: a row for each operation or kernel, with a bar."""

from __future__ import annotations

import re
from dataclasses import dataclass

from pt2hub.domain.profiles import Profile, ProfileRow

SHOWN = 20
WIDTH = 120.0
"""Of the longest bar, in its own unit."""
_GENERATED = re.compile(r"(?:triton|cpp|aoti_torch)_[A-Za-z0-9_]{1,250}")
"""What has a place in the generated sources: kernels, and the operations that the wrapper calls."""


@dataclass(frozen=True, slots=True)
class Spent:
    """An operation or a kernel.

    Attributes:
        row: Its figures.
        each: How often it runs in a call.
        per_call: Its time in a call, microseconds.
        width: Length of its bar, of `WIDTH`.
        generated: Whether the sources have it.
    """

    row: ProfileRow
    each: float
    per_call: float
    width: float
    generated: bool


@dataclass(frozen=True, slots=True)
class Spending:
    """The whole table.

    Attributes:
        profile: What it is made of.
        shown: The rows that come first.
        others: Those behind them.
        rest_share: Share of what is in no row.
        rest_width: Length of its bar.
    """

    profile: Profile
    shown: tuple[Spent, ...]
    others: tuple[Spent, ...]
    rest_share: float
    rest_width: float

    @property
    def on_device(self) -> bool:
        """Whether the rows are of a GPU."""
        return self.profile.device == "cuda"


def spending(profile: Profile) -> Spending:
    """The table of a profile.

    Args:
        profile: Its rows, the longest first.
    """
    rest = min(1.0, profile.rest_us / profile.call_us) if profile.call_us else 0.0
    longest = max([rest, *(min(1.0, row.share) for row in profile.rows)]) or 1.0
    rows = tuple(_spent(row, profile.calls, WIDTH / longest) for row in profile.rows)
    return Spending(profile, rows[:SHOWN], rows[SHOWN:], rest, round(rest * WIDTH / longest, 1))


def _spent(row: ProfileRow, calls: int, scale: float) -> Spent:
    width = round(min(1.0, row.share) * scale, 1)
    generated = _GENERATED.fullmatch(row.name) is not None
    return Spent(row, row.calls / calls, row.total_us / calls, width, generated)
