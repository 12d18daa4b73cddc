"""Priorities of builds and measuring jobs."""

from __future__ import annotations

from pt2hub.domain.builds import HIGHEST_PRIORITY, LOWEST_PRIORITY
from pt2hub.errors import InvalidInput


def check_priority(priority: int) -> None:
    """Refuse a priority that is out of range.

    Raises:
        InvalidInput: It is out of range.
    """
    if not LOWEST_PRIORITY <= priority <= HIGHEST_PRIORITY:
        raise InvalidInput(
            f"priority must be between {LOWEST_PRIORITY} and {HIGHEST_PRIORITY}, got {priority}",
            where="priority",
            hint="The default is 0; higher priorities run first.",
        )
