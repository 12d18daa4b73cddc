"""Choices in the address of a page."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pt2hub.errors import InvalidInput

if TYPE_CHECKING:
    from collections.abc import Collection

_MAX_SHOWN = 40


def check_choice(given: str, known: Collection[str], where: str) -> None:
    """Check that a text is one of those to choose from.

    Args:
        known: What may be chosen; an empty text is accepted only if it is among them.

    Raises:
        InvalidInput: It is none of them; the hint lists them.
    """
    if given not in known:
        raise InvalidInput(
            f"Invalid {where} {given[:_MAX_SHOWN]!a}",
            where=where,
            hint=f"Must be one of {', '.join(filter(None, known))}.",
        )
