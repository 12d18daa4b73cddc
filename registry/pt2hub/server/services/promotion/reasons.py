"""Reasons of alias moves and yanks, which their histories keep."""

from __future__ import annotations

from pt2hub.domain.limits import MAX_REASON_CHARS
from pt2hub.errors import InvalidInput
from pt2hub.server.services.publishing.descriptions import plain

_MAX_SHOWN_REASON_CHARS = 200


def check_reason(reason: str) -> str:
    """Return a normalized reason.

    Raises:
        InvalidInput: It is missing, too long, or has characters that cannot be shown.
    """
    text = plain(reason, what="The reason", where="reason")
    if not 1 <= len(text) <= MAX_REASON_CHARS:
        raise InvalidInput(
            f"The reason is too long ({len(text)} characters, at most {MAX_REASON_CHARS})"
            if text
            else "The reason is missing",
            where="reason",
            hint=f"Give the reason in 1 to {MAX_REASON_CHARS} characters; the history keeps it.",
        )
    return text


def shorten_reason(text: str) -> str:
    """Return a reason on one line, for a message."""
    line = " ".join(text.split())
    return line if len(line) <= _MAX_SHOWN_REASON_CHARS else f"{line[:_MAX_SHOWN_REASON_CHARS]}..."
