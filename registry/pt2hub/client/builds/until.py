"""The event that a caller waits for: all builds have ended, or their artifacts are measured."""

from __future__ import annotations

from typing import Literal, TypeAlias, get_args

from pt2hub.errors import InvalidInput

Until: TypeAlias = Literal["ready", "measured"]
"""`ready`: every build has ended; `measured`: their artifacts are also measured."""
_UNTIL: tuple[Until, ...] = get_args(Until)


def parse_until(wait: object) -> Until | None:
    """Return the event to wait for; None for no waiting.

    Args:
        wait: A boolean, where `True` means `ready`, or one of `Until`.

    Raises:
        InvalidInput: The value is neither.
    """
    if wait is None or isinstance(wait, bool):
        return "ready" if wait else None
    for until in _UNTIL:
        if wait == until:
            return until
    raise InvalidInput(
        f"wait must be True, False, 'ready' or 'measured', got {wait!r:.80}",
        where="wait",
        hint="'ready' waits for the builds, 'measured' also for the measurements; timeout= takes seconds.",
    )
