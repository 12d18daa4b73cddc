"""Priorities of builds."""

from __future__ import annotations

from pt2hub.domain.builds import HIGHEST_PRIORITY, LOWEST_PRIORITY
from pt2hub.errors import InvalidInput


def check_priority(priority: int) -> None:
    """Refuses priorities that there are not.

    Raises:
        InvalidInput: It is out of range.
    """
    if not LOWEST_PRIORITY <= priority <= HIGHEST_PRIORITY:
        raise InvalidInput(
            f"{priority} is no priority",
            where="priority",
            hint=f"Give a whole number from {LOWEST_PRIORITY} to {HIGHEST_PRIORITY}; 0 is usual, higher comes first.",
        )
